"""Follow session files of other programs, and import them while they grow.

Each scan of the folders compares size and time of each file, and reads the changed files. A
half-written line at the end of a file is read only when the line is complete, or when the file has
not changed for a while. A file that takes long to read is read less often, to use only a small
share of a CPU core. If a file is removed, its session remains in the store. This module polls; it
does not use file notifications of the operating system.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Literal, Unpack

import msgspec

from perdure.errors import FormatError, PerdureError
from perdure.interop.bulk import Job, held_bytes, import_content, in_order, opened
from perdure.interop.containers import is_known_name
from perdure.interop.formats.sources.content import FileContent, end_of_lines
from perdure.interop.formats.sources.database import MAGIC
from perdure.interop.imports import ImportOptions
from perdure.interop.reports import ImportReport
from perdure.stores.session_store import SessionStore

SUFFIX = ".jsonl"
"""Suffix of most session files; their format is detected from the content."""

SOONEST_S = 0.25
LATEST_S = 4.0
QUIET_MS = 5_000
"""How long a file must be unchanged before its last line is read without a line end."""
SHARE = 0.05
"""Maximum share of the time that is spent on reading the same file again and again."""
RETRY_S = 2.0

FileId = tuple[int, int]
"""Identity of a file: its device and inode, which are the same under all names of the file."""

State = tuple[FileId, int, int]
"""Identity of a file, its size in bytes, and the time of its last change in nanoseconds."""


class Change(msgspec.Struct, frozen=True):
    """A change of a file: a session was imported, the import failed, or the file is gone."""

    path: Path
    what: Literal["imported", "failed", "gone"]
    report: ImportReport | None = None
    error: PerdureError | None = None


class _Seen(msgspec.Struct):
    """What the follower knows about a file.

    `state` is the state of the file when it was last read, or None if the file must be read again.
    `length` is the number of bytes that were read. The file is not read again before `due_s`
    (steady clock).
    """

    file: FileId
    state: State | None = None
    length: int = 0
    due_s: float = 0.0
    has_failed: bool = False
    is_recognised: bool = False


class FolderFollower:
    """Imports session files below `folders` into `store` while they grow.

    `excluded` are files and folders to skip, such as perdure's own. `open` are the ids of the files
    that this process itself writes; the follower skips them, whatever their names are.
    """

    def __init__(
        self,
        store: SessionStore,
        folders: Sequence[Path],
        *,
        excluded: Iterable[Path] = (),
        open: Collection[FileId] = (),
        **options: Unpack[ImportOptions],
    ) -> None:
        self._store = store
        self._folders = folders
        self._options = options
        self._clock = options["clock"]
        self._excluded = tuple(path.absolute() for path in excluded)
        self._open = frozenset(open)
        self._seen: dict[Path, _Seen] = {}

    async def changes(self) -> AsyncGenerator[Change]:
        """Scan the folders in an endless loop, and yield the changes.

        The first scan imports the files that are not in the store yet.
        """
        pause_s = SOONEST_S
        while True:
            began_s, has_changed = self._clock.steady_s(), False
            async with aclosing(self.look()) as changes:
                async for change in changes:
                    has_changed = True
                    yield change
            took_s = self._clock.steady_s() - began_s
            pause_s = SOONEST_S if has_changed else min(LATEST_S, pause_s * 2)
            await self._clock.sleep(pause_s if has_changed else max(pause_s, took_s / SHARE))

    async def look(self) -> AsyncGenerator[Change]:
        """Scan the folders once, and yield the changes since the last scan."""
        found = await asyncio.to_thread(self._find_files)
        for gone in self._gone_files(found):
            yield gone
        async with aclosing(in_order(self._jobs(found))) as read:
            async for changes in read:
                for change in changes:
                    yield change

    def _gone_files(self, found: Mapping[Path, State]) -> Iterator[Change]:
        """Yield a change for each removed file; a renamed file is followed under its new name."""
        lost = {path: seen for path, seen in self._seen.items() if path not in found}
        renamed = {seen.file: path for path, seen in lost.items()}
        for path, (file, _, _) in found.items():
            if path not in self._seen and file in renamed:
                self._seen[path] = lost.pop(renamed[file])
                del self._seen[renamed.pop(file)]
        for path, seen in lost.items():
            del self._seen[path]
            if seen.is_recognised:
                yield Change(path, "gone")

    def _jobs(self, found: Mapping[Path, State]) -> Iterator[Job[list[Change]]]:
        """Yield a job for each file that must be read now."""
        for path, state in found.items():
            seen = self._seen.setdefault(path, _Seen(state[0]))
            if state != seen.state and self._clock.steady_s() >= seen.due_s:
                yield held_bytes(state[1]), partial(self._read, path, state, seen)

    def _find_files(self) -> dict[Path, State]:
        """Return the files found, with their states; a file with several names is listed once."""
        states: dict[Path, State] = {}
        known = set(self._open)
        for path in self._paths():
            try:
                status = path.stat()
            except OSError:
                continue  # removed since the folder was listed
            file = (status.st_dev, status.st_ino)
            if file not in known:
                known.add(file)
                states[path] = _with_log(path, (file, status.st_size, status.st_mtime_ns))
        return states

    def _paths(self) -> Iterator[Path]:
        for folder in self._folders:
            for path in histories_in(folder):
                whole = path.absolute()
                if not any(whole.is_relative_to(other) for other in self._excluded):
                    yield path

    async def _read(self, path: Path, state: State, seen: _Seen) -> list[Change]:
        """Import the new content of a changed file."""
        began_s = self._clock.steady_s()
        try:
            content = await opened(path)
        except FormatError:
            seen.due_s = began_s + RETRY_S  # removed or locked: the next scan shows
            return []
        with content:
            changes = await self._look_into(path, state, seen, content)
        took_s = self._clock.steady_s() - began_s
        seen.due_s = max(seen.due_s, began_s + took_s / SHARE)
        return changes

    async def _look_into(
        self, path: Path, state: State, seen: _Seen, content: FileContent
    ) -> list[Change]:
        if content.read(0, len(MAGIC)) == MAGIC:  # what SQLite returns of it is complete
            seen.file, seen.state = state[0], state
            return await self._import_file(path, content, seen)
        age_ms = self._clock.now_ms() - state[2] // 1_000_000
        is_fresh = 0 <= age_ms < QUIET_MS
        whole = content.length
        length = await asyncio.to_thread(end_of_lines, content) if is_fresh else whole
        # A last line without LF is checked again, changed or not.
        seen.file, seen.state = state[0], state if length == whole == state[1] else None
        changes: list[Change] = []
        if length != seen.length or not is_fresh or not seen.is_recognised:
            content.cut(length)
            changes = await self._import_file(path, content, seen)
        seen.length = length
        return changes

    async def _import_file(self, path: Path, content: FileContent, seen: _Seen) -> list[Change]:
        if not content.length:
            return []
        changes: list[Change] = []
        errors: list[PerdureError] = []
        try:
            async for each in import_content(self._store, content, **self._options):
                if isinstance(each, PerdureError):
                    errors.append(each)
                    continue
                seen.is_recognised = True
                if each.is_new or each.entries or each.malformed:
                    changes.append(Change(path, "imported", each))
        except PerdureError as error:
            errors.append(error)
        failed = self._failures(path, errors, seen)
        seen.has_failed = bool(errors)
        return changes + failed

    def _failures(self, path: Path, errors: list[PerdureError], seen: _Seen) -> list[Change]:
        """Return changes for errors that were not reported yet.

        After an error that might be temporary, the file is read again later.
        """
        if seen.state is None:  # it is being written: its next line may identify it
            errors[:] = [error for error in errors if not isinstance(error, FormatError)]
        if any(not isinstance(error, FormatError) for error in errors):
            seen.state = None
            seen.due_s = self._clock.steady_s() + RETRY_S
        return [] if seen.has_failed else [Change(path, "failed", error=each) for each in errors]


def _with_log(path: Path, state: State) -> State:
    """Return `state` including the ``-wal`` file, which has the newest commits of a database."""
    if path.name.endswith(SUFFIX):
        return state
    try:
        status = path.with_name(f"{path.name}-wal").stat()
    except OSError:
        return state
    file, size, changed = state
    return file, size + status.st_size, max(changed, status.st_mtime_ns)


def histories_in(
    folder: Path, on_closed: Callable[[OSError], object] | None = None
) -> Iterator[Path]:
    """Yield possible session files below `folder`, sorted; if `folder` is a file, yield this file.

    `on_closed` is called with the error of each folder that cannot be read.
    """
    if folder.is_file():
        yield folder
        return
    for parent, folders, names in os.walk(folder, onerror=on_closed):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names) if is_history(name))


def is_history(name: str) -> bool:
    """Return whether a file called `name` could contain sessions."""
    return name.endswith(SUFFIX) or is_known_name(name)
