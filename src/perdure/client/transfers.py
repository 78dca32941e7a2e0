"""Import and export session files, for `Store` and `Session`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec

from perdure.client.clock import Outside, absolute
from perdure.client.lookup.store_files import database_file, is_part_of, own_folders
from perdure.errors import FormatError, PathExists, PerdureError, WrongArgument
from perdure.interop.exports import ExportSelection, export_session, note_export
from perdure.interop.reports import Exported, ExportedFile, ExportFormat, FileOutcome, ImportedFiles
from perdure.session.ids import StreamId
from perdure.session.memory.kinds import FACT_TEXTS
from perdure.stores.access.lazy_modules import Later
from perdure.stores.fsync import create_private, replace_private
from perdure.stores.session_store import SessionStore

if TYPE_CHECKING:
    from perdure.interop import bulk, imports, live_import
    from perdure.interop.workflow_export import session as workflow
else:
    bulk = Later("perdure.interop.bulk")
    imports = Later("perdure.interop.imports")
    live_import = Later("perdure.interop.live_import")
    workflow = Later("perdure.interop.workflow_export.session")

_ENDINGS: dict[ExportFormat, str] = {"markdown": "md", "html": "html", "opencode": "json"}
"""The file name endings of the formats that are not lines of JSON."""


async def imported_files(
    store: SessionStore,
    paths: Sequence[str | os.PathLike[str]],
    on_progress: Callable[[Path, int], None] | None,
    **options: Unpack[imports.ImportOptions],
) -> ImportedFiles:
    """Import the files at `paths`; if a path is a folder, import the session files in it."""
    closed: list[OSError] = []
    named = [Path(path) for path in paths]
    files = await asyncio.to_thread(lambda: list(files_at(named, store.address, closed.append)))
    outcomes = bulk.import_files(store, files, told=on_progress, **options)
    failed = map(unreadable_folder, closed)
    return ImportedFiles((*failed, *[outcome async for outcome in outcomes]))


def unreadable_folder(error: OSError) -> FileOutcome:
    """Return the outcome of a folder that cannot be read because of `error`."""
    path, reason = str(error.filename), f"the folder cannot be read ({error.strerror})"
    return FileOutcome(Path(path), error=FormatError(path, reason))


def files_at(
    paths: Sequence[Path], address: str, on_closed: Callable[[OSError], object]
) -> Iterator[Path]:
    """Return the files to import: files at `paths`, and possible session files in their folders.

    The file or folders in which the store at `address` stores its own sessions are skipped. A path
    in a folder that this user cannot read is returned, because the import of the path then reports
    the error.
    """
    own = [folder.resolve() for folder in own_folders(address)]
    database = database_file(address)
    own_file = None if database is None else database.resolve()
    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112 - False for a path in an unreadable folder
            yield path
            continue
        for file in live_import.histories_in(path, on_closed):
            whole = file.resolve()
            is_own = any(map(whole.is_relative_to, own)) or whole == own_file
            if whole.is_file() and not is_own:
                yield file


async def exported_to(
    store: SessionStore,
    outside: Outside,
    session: StreamId,
    format: ExportFormat,
    selection: ExportSelection,
    *,
    path: str | os.PathLike[str] | None,
    replace: bool,
) -> Exported:
    """Export `session`, to the file `path` if `path` is given.

    Raises: the errors of `export_session`; PathExists if the file exists and `replace` is False;
    FormatError if the path cannot be written.
    """
    place = None if path is None else _absolute(path)
    if place is not None:
        with _writing(place):
            _check_place(place, store.address, is_replacing=replace)
    exported = await export_session(store, session, format, selection)
    if place is None:
        return exported
    with _writing(place):
        await asyncio.to_thread(write_file, place, exported.content, is_replacing=replace)
    if format == "workflow":
        at = outside.clock.now_ms()
        try:
            await note_export(store, session, str(place), selection, at)
        except PerdureError as error:
            told = f"the session does not record where it was written: {error}"
            return msgspec.structs.replace(exported, warnings=(*exported.warnings, told))
    return exported


async def exported_store(
    store: SessionStore,
    outside: Outside,
    folder: str | os.PathLike[str],
    format: ExportFormat,
    selection: ExportSelection,
    *,
    query: str | None,
    replace: bool,
) -> list[ExportedFile]:
    """Export every session of the namespace, and the facts of each subject, into `folder`.

    Raises: FormatError when `folder` cannot be created.
    """
    place = _absolute(folder)
    try:
        await asyncio.to_thread(place.mkdir, 0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FormatError(str(place), f"it cannot be made a folder ({error.strerror})") from error
    files: list[ExportedFile] = []
    streams = [info.id for info in await store.sessions(limit=None, scope="all", query=query)]
    if format == "perdure" and query is None:
        notes = await store.notes_of_all(FACT_TEXTS)
        streams += sorted({note.stream for note in notes})
    for stream in streams:
        file = place / file_name(stream, format, selection)
        try:
            exported = await exported_to(
                store, outside, stream, format, selection, path=file, replace=replace
            )
        except PerdureError as error:
            files.append(ExportedFile(stream, error=error))
            continue
        size, warnings = len(exported.content), exported.warnings
        files.append(ExportedFile(stream, file, size, warnings, exported.redacted))
    return files


def file_name(session: StreamId, format: ExportFormat, selection: ExportSelection) -> str:
    """Return the default file name of `session`."""
    if format == "workflow":
        return workflow.file_name(session, selection.dialect)
    return f"{session}.{_ENDINGS.get(format, 'jsonl')}"


def _absolute(path: str | os.PathLike[str]) -> Path:
    return Path(absolute(path) or ".")


@contextmanager
def _writing(place: Path) -> Generator[None]:
    """Convert an OSError of the ``with`` block into a FormatError."""
    try:
        yield
    except OSError as error:
        is_denied = isinstance(error, PermissionError)
        advice = "; check the owner and permissions of file and folder" if is_denied else ""
        raise FormatError(str(place), f"it cannot be written ({error.strerror}){advice}") from error


def _check_place(place: Path, address: str, *, is_replacing: bool) -> None:
    if place.is_dir():
        raise WrongArgument(f"{place} is a folder: name a file", argument="path")
    if is_part_of(place, address):
        raise WrongArgument(f"{place} is part of the store: name another file", argument="path")
    if place.is_file() and not is_replacing:
        raise PathExists(str(place))


def write_file(file: Path, content: bytes, *, is_replacing: bool) -> None:
    """Write `content` to `file` completely or not at all, readable only by its owner.

    If `file` is a pipe or a device, the content is written into it; a link remains a link.
    Raises: PathExists if `file` exists and `is_replacing` is False; OSError if `file` cannot be
    written.
    """
    named, file = file, file.resolve() if is_replacing else file
    if file.exists() and not file.is_file():
        with file.open("wb") as opened:
            opened.write(content)
        return
    try:
        if is_replacing:
            replace_private(file, content)
        else:
            create_private(file, content)
    except FileExistsError as error:
        raise PathExists(str(named)) from error
    except OSError as error:  # with the caller's name
        raise OSError(error.errno, error.strerror, str(named)) from error
