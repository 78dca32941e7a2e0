"""``perdure store restore``: restores a backup, optionally as of an earlier time."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import require_folder
from perdure.apps.cli.store_options import CommonOptions, require_store_folder
from perdure.apps.maintenance.backup import check_copied, folder_named
from perdure.apps.maintenance.copy import copy_of
from perdure.apps.maintenance.trust import TrustOption, trust_store
from perdure.apps.maintenance.whole_store import (
    SQLITE,
    Report,
    likely_keys,
    upkeep_of_sqlite,
    with_key,
)
from perdure.apps.progress import progress_bar, untold
from perdure.apps.store_access import store_address
from perdure.apps.terminal.output import count_of
from perdure.apps.terminal.text import safe
from perdure.client.lookup.store_files import address_or_default
from perdure.client.open import open as open_store
from perdure.client.routes import routed
from perdure.errors import (
    BackupDamaged,
    StoreExists,
    StoreInUse,
    StoreReadOnly,
    StoreUnavailable,
    Unsupported,
)
from perdure.stores.copy import CopyReport
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.file_lock import alone_at
from perdure.stores.maintenance.manifest import (
    STORE_NAME,
    Manifest,
    check_file,
    hash_of,
    read_manifest,
)
from perdure.stores.maintenance.segments import SegmentState

FOREVER_MS = 2**53


class RestoreReport(msgspec.Struct, frozen=True):
    """The result of a restore. `aside` is the folder that contains the replaced store."""

    store: str
    streams: int
    entries: int
    aside: str | None = None


class _Bound(msgspec.Struct, frozen=True):
    """Where a restore ends: at a time, or an entry of `namespace`; None restores everything."""

    until: datetime | str | None
    namespace: str


class _Fetched(msgspec.Struct, frozen=True):
    """The verified copy of a backup, and the key that opens the copy."""

    path: Path
    key: StoreKey | None


async def restore_backup(
    folder: Path,
    address: str | None = None,
    *,
    until: datetime | str | None = None,
    namespace: str = "default",
    key: bytes | str | StoreKey | None = None,
    is_forced: bool = False,
    on_progress: Report | None = None,
) -> RestoreReport:
    """Restore the backup in `folder` to `address`, after checking the backup against its manifest.

    `until` is a time, or the id of an entry in `namespace`. The restored store ends with the last
    commit up to the time `until`, or with the commit of the entry `until`. If a store exists at
    `address`, the call fails; if `is_forced` is True, the existing store is moved to another
    folder. If `address` is not an SQLite store, the sessions are copied into it, and its existing
    sessions remain.
    Durable: the restored store is on disk when this call returns; after a kill, the existing store
    is unchanged.
    Raises: BackupDamaged if the backup does not match its manifest; EntryNotFound if `until` names
    no entry.
    Raises: StoreExists if a store is at `address`; StoreInUse if another process has that store
    open; CopyConflict if a session of that store differs from the backup.
    Raises: KeyMissing or KeyWrong if no key opens the backup; the errors of `perdure.open`.
    """
    address = routed(address_or_default(address, os.environ, sys.platform), namespace)
    if not address.startswith(SQLITE) and is_forced:
        raise Unsupported("replacing_by_a_backup", address.partition(":")[0])
    path = _path_of(address)
    # Unlike Path.exists, os.path.exists raises no error for a folder without permission.
    if path is not None and not is_forced and await asyncio.to_thread(os.path.exists, path):
        raise StoreExists(str(path), is_replaceable=True)
    manifest = await asyncio.to_thread(read_manifest, folder)
    await asyncio.to_thread(check_file, folder, manifest)
    bound, report = _Bound(until, namespace), on_progress or untold
    keys = (None,)
    if manifest.is_encrypted:
        keys = await likely_keys(address, key, "the backup")
    if path is not None:
        with _alone(path):
            try:
                fetched = await _fetched(folder, path, manifest, keys, report)
                return await _into_file(fetched, path, bound, is_forced=is_forced)
            finally:
                await asyncio.to_thread(_clear_beside, path)
    with tempfile.TemporaryDirectory(prefix="perdure-") as place:
        fetched = await _fetched(folder, Path(place, STORE_NAME), manifest, keys, report)
        return await _into_other(fetched, address, bound)


def _path_of(address: str) -> Path | None:
    """Return the file of an SQLite store; None for a store of another kind."""
    if not address.startswith(SQLITE):
        return None
    return Path(address.removeprefix(SQLITE)).absolute()


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """Lock `path` against concurrent restores, which would use the same temporary files.

    Raises: StoreInUse, StoreReadOnly, StoreUnavailable.
    """
    with ExitStack() as held:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            held.enter_context(alone_at(upkeep_of_sqlite("restore").unfinished_restore(path)))
        except BlockingIOError as error:
            raise StoreInUse(str(path)) from error
        except PermissionError as error:
            raise StoreReadOnly(str(path)) from error
        except OSError as error:
            raise StoreUnavailable(str(path), error.strerror or type(error).__name__) from error
        yield


async def _fetched(
    folder: Path,
    path: Path,
    manifest: Manifest,
    keys: Sequence[StoreKey | None],
    report: Report,
) -> _Fetched:
    """Copy the backup to a file next to `path`, and check the copy."""
    restoring = upkeep_of_sqlite("restore")
    try:
        copy = await asyncio.to_thread(restoring.fetch, folder, path, report)
    except OSError as error:
        raise StoreUnavailable(str(path), error.strerror or type(error).__name__) from error
    if (await asyncio.to_thread(hash_of, copy))[1] != manifest.sha256:
        raise BackupDamaged(str(folder), "its file changed while it was read")
    check = restoring.check_fetched
    fitting, _ = await with_key(keys, lambda key: check(copy, folder, manifest, key))
    return _Fetched(copy, fitting)


async def _into_file(
    fetched: _Fetched, path: Path, bound: _Bound, *, is_forced: bool
) -> RestoreReport:
    new = fetched.path if bound.until is None else await _earlier(fetched, path, bound)
    streams, entries = await asyncio.to_thread(_counted, new, fetched.key)
    put = upkeep_of_sqlite("restore").put_store
    aside = await asyncio.to_thread(put, new, path, fetched.key, is_forced=is_forced)
    return RestoreReport(
        SQLITE + str(path), streams, entries, None if aside is None else str(aside)
    )


async def _into_other(fetched: _Fetched, address: str, bound: _Bound) -> RestoreReport:
    streams = entries = 0
    for name, moment in await asyncio.to_thread(_moments, fetched, bound):
        done = await _copied(fetched, address, None, name, moment)
        streams += sum(each.outcome != "erased" for each in done.streams)
        entries += done.added_entries
    return RestoreReport(address, streams, entries)


async def _earlier(fetched: _Fetched, path: Path, bound: _Bound) -> Path:
    """Create a store next to `path` that contains the backup's data up to `bound`."""
    earlier: Path = upkeep_of_sqlite("restore").earlier_store(path)
    await asyncio.to_thread(upkeep_of_sqlite("restore").remove_with_logs, earlier)
    moments = await asyncio.to_thread(_moments, fetched, bound)
    for name, moment in moments or [(bound.namespace, [])]:
        await _copied(fetched, SQLITE + str(earlier), fetched.key, name, moment)
    return earlier


async def _copied(
    fetched: _Fetched,
    address: str,
    key: StoreKey | None,
    namespace: str,
    moment: Sequence[SegmentState],
) -> CopyReport:
    backup = SQLITE + str(fetched.path)
    async with (
        open_store(backup, namespace=namespace, key=fetched.key) as source,
        open_store(address, namespace=namespace, key=key) as target,
    ):
        done = await copy_of(source.backend, target.backend).run(moment)
    check_copied(done, address)
    return done


def _counted(file: Path, key: StoreKey | None) -> tuple[int, int]:
    with closing(upkeep_of_sqlite("backup").Content(file, key)) as content:
        return sum(1 for _ in content.standings()), content.entries()


def _moments(fetched: _Fetched, bound: _Bound) -> list[tuple[str, list[SegmentState]]]:
    """Return each namespace of the backup, with the state of the namespace's streams at `bound`."""
    with closing(upkeep_of_sqlite("backup").Content(fetched.path, fetched.key)) as content:
        if isinstance(bound.until, str):
            moment = content.moment_of(bound.namespace, bound.until)
        elif bound.until is None:
            moment = content.moment_at(FOREVER_MS)
        else:
            moment = content.moment_at(int(bound.until.timestamp() * 1000))
        return [(name, content.standings_at(name, moment)) for name in content.namespaces()]


def _clear_beside(path: Path) -> None:
    """Remove the temporary files that a restore creates next to the store."""
    restoring = upkeep_of_sqlite("restore")
    for left in (restoring.unfinished_restore(path), restoring.earlier_store(path)):
        restoring.remove_with_logs(left)


async def restore(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", parser=folder_named, help="The folder of the backup."),
    ],
    *,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Restore the state at this time (2026-11-21T14:30) or at the entry with this id.",
        ),
    ] = None,
    is_forced: Annotated[
        bool,
        typer.Option(
            "--force", help="Replace an existing store, which is moved to another folder."
        ),
    ] = False,
    is_trusting: TrustOption = False,
    common: CommonOptions,
) -> None:
    """Create a store from a backup, and verify it. An existing store is replaced only with --force.

    Permissions and open turns in the backup are in force only if your own perdure wrote them, or if
    you give --trust.

    Examples:
        perdure store restore backups/2026-11-21 --store sqlite:///again.db
    """
    address = store_address(common.store)
    require_folder(folder, "the folder of a backup")
    require_store_folder(address)
    moment = _moment(until)

    done = await restore_backup(
        folder,
        address,
        until=moment,
        namespace=common.namespace,
        is_forced=is_forced,
        on_progress=progress_bar("restore"),
    )
    if is_trusting:
        await trust_store(address, common.namespace)
    entries = count_of(done.entries, "entry", "entries")
    logs = count_of(done.streams, "log")
    lines = [f"{safe(done.store)}: {entries} in {logs}, every hash checked"]
    if done.aside is not None:
        lines.append(f"The previous store is now in {safe(done.aside)}")
    common.show(done, lines)


def _moment(until: str | None) -> datetime | str | None:
    """Parse a time (local if it has no zone), or the id of an entry."""
    if until is None or "/" in until:
        return until
    try:
        return datetime.fromisoformat(until).astimezone()
    except ValueError as error:
        hint = "use a time such as 2026-11-21T14:30 or the id of an entry such as SESSION/12"
        raise UsageMistake(f"{until!r} is no moment: {hint}") from error
