"""``perdure store backup``: copies a store into a folder with a manifest."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.store_options import CommonOptions, existing_address
from perdure.apps.maintenance.copy import copy_of
from perdure.apps.maintenance.whole_store import (
    SQLITE,
    Report,
    place_of,
    present_keys,
    upkeep_of_sqlite,
    with_key,
)
from perdure.apps.progress import progress_bar, untold
from perdure.apps.terminal.output import count_of, size
from perdure.apps.terminal.text import safe
from perdure.client.clock import SystemClock
from perdure.client.keys import configured_key
from perdure.client.lookup.store_files import address_or_default
from perdure.client.open import open as open_store
from perdure.client.routes import routed
from perdure.errors import (
    CopyConflict,
    StoreCorrupt,
    StoreExists,
    StoreFull,
    StoreNotEncrypted,
    StoreReadOnly,
    StoreUnavailable,
    Unsupported,
)
from perdure.stores.copy import CopyReport
from perdure.stores.fsync import sync_file, sync_folder
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.file_lock import alone_at
from perdure.stores.maintenance.manifest import (
    FORMAT,
    MANIFEST_NAME,
    STORE_NAME,
    Manifest,
    encode_manifest,
    hash_of,
    heads_of,
)
from perdure.stores.regular_files import check_folder
from perdure.stores.retention.backups import Backup

_PARTIAL = ".partial"


async def back_up(
    address: str | None,
    folder: Path,
    *,
    namespace: str = "default",
    key: bytes | str | StoreKey | None = None,
    on_progress: Report | None = None,
) -> Manifest:
    """Back up the store at `address` to the new `folder`; other processes can write meanwhile.

    For an SQLite store, the backup contains all namespaces and is encrypted with the store's own
    key. For any other store, only `namespace` is copied, into a new SQLite store. If `key` is given
    or a key is configured, this key encrypts the new store. Every hash of the backup is checked.
    The store records where the backup is, so that the certificate of a later erasure can name the
    backup.
    Durable: `folder` appears only when it is complete and on disk; if the process is killed, no
    folder appears.
    Raises: StoreExists if `folder` is not empty; StoreCorrupt if the store is damaged; StoreFull if
    the disk is full; the errors of `perdure.open`.
    """
    address = routed(address_or_default(address, os.environ, sys.platform), namespace)
    report = on_progress or untold
    folder = await asyncio.to_thread(folder.absolute)  # so that ``.`` has a name, too
    with _partial(folder) as partial:
        file = partial / STORE_NAME
        if address.startswith(SQLITE):
            used = await _snapshot(address, key, file, report)
        else:
            used = configured_key(key, os.environ, address)
            await _collect(address, namespace, file, used, report)
        manifest = await asyncio.to_thread(_manifest_of, file, used, address)
        _write(partial / MANIFEST_NAME, encode_manifest(manifest))
    place = await asyncio.to_thread(folder.resolve)
    own = used if address.startswith(SQLITE) else None
    await _remember(address, namespace, own, Backup(str(place), manifest.created_at))
    return manifest


async def _remember(address: str, namespace: str, key: StoreKey | None, backup: Backup) -> None:
    """Record the backup in the store, unless it is full, read-only or cannot record backups."""
    with suppress(StoreReadOnly, StoreFull, Unsupported):
        async with open_store(address, namespace=namespace, key=key) as store:
            await store.backend.retention.remember_backup(backup)


async def _snapshot(
    address: str, key: bytes | str | StoreKey | None, file: Path, report: Report
) -> StoreKey | None:
    """Copy the SQLite store to `file`; return the key of the store and of the copy."""
    address, path = place_of(address, "backups")
    keys = await present_keys(address, path, key)
    if keys == (None,) and configured_key(key, os.environ, address) is not None:
        raise StoreNotEncrypted(str(path))

    def copy(present: StoreKey | None) -> None:
        file.unlink(missing_ok=True)  # of a key that did not fit
        upkeep_of_sqlite("backup").snapshot(path, present, file, report)

    fitting, _ = await with_key(keys, copy)
    return fitting


async def _collect(
    address: str, namespace: str, file: Path, key: StoreKey | None, report: Report
) -> None:
    """Copy a namespace of a store that is not SQLite into a new SQLite store in `file`."""
    async with (
        open_store(address, namespace=namespace) as source,
        open_store(SQLITE + str(file), namespace=namespace, key=key, durability="normal") as there,
    ):
        moment = await source.backend.maintenance.segment_states()
        done = await copy_of(source.backend, there.backend, report).run(moment)
    check_copied(done, address)


def check_copied(done: CopyReport, store: str) -> None:
    """Raises: StoreCorrupt or CopyConflict if the report `done` shows an incomplete copy."""
    for each in done.streams:
        if each.outcome == "damaged":
            raise StoreCorrupt(store, f"session {each.stream}: {each.reason}")
        if each.outcome == "conflict":
            raise CopyConflict(each.stream, -1)
    for name in done.lost_contents:
        raise StoreCorrupt(store, f"the content {name} is damaged")


def _manifest_of(file: Path, key: StoreKey | None, address: str) -> Manifest:
    try:
        upkeep_of_sqlite("backup").check_sound(file, key)
    except StoreCorrupt as error:  # the source has the same damage
        raise StoreCorrupt(address, error.reason) from error
    with closing(upkeep_of_sqlite("backup").Content(file, key)) as content:
        standings = list(content.standings())
        facts = (content.schema, len(content.namespaces()), content.entries())
    size, digest = hash_of(file)
    return Manifest(
        format=FORMAT,
        created_at=SystemClock().now_ms(),
        perdure=version("perdure"),
        backend=address.partition(":")[0],
        schema=facts[0],
        is_encrypted=key is not None,
        bytes=size,
        sha256=digest,
        namespaces=facts[1],
        streams=len(standings),
        entries=facts[2],
        heads=heads_of(standings),
    )


@contextmanager
def _partial(folder: Path) -> Generator[Path]:
    """Yield a temporary folder, which is renamed to `folder` at the end.

    Files that a killed backup left in the temporary folder are deleted first.
    Raises: StoreExists if `folder` exists or another backup writes to it; StoreFull if the disk is
    full; StoreReadOnly if the folder cannot be written; StoreUnavailable.
    """
    try:
        _check_free(folder)
        partial = folder.with_name(folder.name + _PARTIAL)
        partial.parent.mkdir(parents=True, exist_ok=True)
        with alone_at(partial):
            _check_free(folder)  # another backup may have finished meanwhile
            partial.mkdir(mode=0o700, exist_ok=True)
            check_folder(partial)
            _clear(partial)
            try:
                yield partial
            except BaseException:  # an unfinished backup only takes space
                with suppress(OSError):
                    _clear(partial)
                    partial.rmdir()
                raise
            for path in partial.iterdir():
                sync_file(path)
                path.chmod(stat.S_IRUSR)  # opening it as a store does not change its hash
            sync_folder(partial)
            partial.replace(folder)
            sync_folder(folder.parent)
    except BlockingIOError as error:
        raise StoreExists(str(folder)) from error
    except PermissionError as error:
        raise StoreReadOnly(str(folder)) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(str(folder)) from error
        raise StoreUnavailable(str(folder), error.strerror or type(error).__name__) from error


def _check_free(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StoreExists(str(folder))


def _clear(partial: Path) -> None:
    for path in partial.iterdir():
        path.unlink()


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def folder_named(text: str) -> Path:
    """Return `text` as a path.

    Empty text, for example from an unset variable, is an error; it does not mean the current
    folder.
    """
    if not text:
        raise typer.BadParameter("an empty path names nothing; name a folder")
    return Path(text)


async def backup(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", parser=folder_named, help="A new folder for the backup."),
    ],
    *,
    common: CommonOptions,
) -> None:
    """Back up the store to a new folder and verify every hash, while other processes write.

    A backup of an SQLite store contains all namespaces and uses the store's key. A backup of a
    store that is not SQLite contains only the selected namespace.

    Examples:
        perdure store backup backups/2026-11-21
    """
    address = existing_address(common.store)

    bar = progress_bar("backup")
    manifest = await back_up(address, folder, namespace=common.namespace, on_progress=bar)
    entries = count_of(manifest.entries, "entry", "entries")
    kept = "encrypted with the store's key" if manifest.is_encrypted else "plain"
    lines = (
        f"{safe(str(folder))}: {entries} in {count_of(manifest.streams, 'log')}",
        f"{size(manifest.bytes)}, {kept}; every hash was checked",
    )
    common.show({**msgspec.structs.asdict(manifest), "folder": str(folder)}, lines)
