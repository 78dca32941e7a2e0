"""``perdure store backup`` and ``restore``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import PathNotFound, UsageMistake
from perdure.apps.cli.store_options import CommonOptions, existing_address
from perdure.apps.maintenance.trust import TrustOption, trust_store
from perdure.apps.progress import progress_bar
from perdure.apps.store_access import store_address
from perdure.apps.terminal.output import count_of, show, show_json, size
from perdure.apps.terminal.text import safe
from perdure.client.maintenance.backup import back_up
from perdure.client.maintenance.restore import restore as restored


def _folder(text: str) -> Path:
    """`text` as a path. An empty one, as of a variable that is not set, is not the folder here."""
    if not text:
        raise typer.BadParameter("an empty path names nothing; name a folder")
    return Path(text)


async def backup(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", parser=_folder, help="A new folder for the backup."),
    ],
    *,
    common: CommonOptions,
) -> None:
    """Back up the store to a new folder and verify every hash, while others write.

    A backup of an SQLite store has all namespaces and its key; of other stores, this namespace.

    Examples:
        perdure store backup backups/2026-11-21
    """
    address = existing_address(common.store)

    bar = progress_bar("backup")
    manifest = await back_up(address, folder, namespace=common.namespace, on_progress=bar)
    if common.as_json:
        show_json({**msgspec.structs.asdict(manifest), "folder": str(folder)})
        return
    entries = count_of(manifest.entries, "entry", "entries")
    show(f"{safe(str(folder))}: {entries} in {count_of(manifest.streams, 'log')}")
    kept = "encrypted with the store's key" if manifest.is_encrypted else "plain"
    show(f"{size(manifest.bytes)}, {kept}; every hash was checked")


async def restore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", parser=_folder, help="A backup.")],
    *,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="WHEN",
            help="Restore the state at this time (2026-11-21T14:30) or entry id.",
        ),
    ] = None,
    is_forced: Annotated[
        bool, typer.Option("--force", help="Move an existing store aside.")
    ] = False,
    is_trusting: TrustOption = False,
    common: CommonOptions,
) -> None:
    """Create a store from a backup, and verify it. Replaces nothing without --force.

    Permissions and open turns that your perdure wrote stay in force.

    Examples:
        perdure store restore backups/2026-11-21 --store sqlite:///again.db
    """
    address = store_address(common.store)
    if not folder.is_dir():
        raise PathNotFound(str(folder))
    moment = _moment(until)

    done = await restored(
        folder,
        address,
        until=moment,
        namespace=common.namespace,
        is_forced=is_forced,
        on_progress=progress_bar("restore"),
    )
    if is_trusting:
        await trust_store(address, common.namespace)
    if common.as_json:
        show_json(msgspec.structs.asdict(done))
        return
    entries = count_of(done.entries, "entry", "entries")
    logs = count_of(done.streams, "log")
    show(f"{safe(done.store)}: {entries} in {logs}, every hash checked")
    if done.aside is not None:
        show(f"The previous store is now in {safe(done.aside)}")


def _moment(until: str | None) -> datetime | str | None:
    """A time, in local time where it names no zone, or the id of an entry."""
    if until is None or "/" in until:
        return until
    try:
        return datetime.fromisoformat(until).astimezone()
    except ValueError as error:
        hint = "use a time such as 2026-11-21T14:30 or the id of an entry such as SESSION/12"
        raise UsageMistake(f"{until!r} is no moment: {hint}") from error
