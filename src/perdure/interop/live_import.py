"""Histories that others are writing, kept in a store while they grow.

Looks at folders again and again: at size and time of each file, and into those that changed. A
line that is half written is left for the next look, until its file has been quiet for a while. A
file that takes long to read is read less often, so that following costs a small share of a core. A
file that is gone leaves its session as it is. The clock is an argument; nothing here waits for
the operating system to tell.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from perdure.errors import FormatError, PerdureError
from perdure.interop.bulk import Job, held_bytes, in_order
from perdure.interop.formats.sources.content import FileContent, end_of_lines
from perdure.interop.imports import import_source
from perdure.interop.reports import FormatName, ImportReport
from perdure.session.clock import Clock, RandomSource
from perdure.stores.session_store import SessionStore

SUFFIX = ".jsonl"
"""What files of a folder may be histories; what they are is told by their content."""

SOONEST_S = 0.25
LATEST_S = 4.0
QUIET_MS = 5_000
"""How long a file must not have changed for its last line to count as it is."""
SHARE = 0.05
"""How much of the time may go into reading one file again and again."""
RETRY_S = 2.0

FileId = tuple[int, int]
"""Device and number of a file: the same under every name."""

State = tuple[FileId, int, int]
"""Which file it is, its size in bytes and when it changed, in nanoseconds."""


class Change(msgspec.Struct, frozen=True):
    """What happened to a file: its session grew, it could not be read, or it is gone."""

    path: Path
    what: Literal["imported", "failed", "gone"]
    report: ImportReport | None = None
    error: PerdureError | None = None


class _Seen(msgspec.Struct):
    """What is known of a file.

    `state` is how it was when it was read, None when it must be read again. `length` is how much
    of it was read; not before `due_s` (steady) is it read again.
    """

    file: FileId
    state: State | None = None
    length: int = 0
    due_s: float = 0.0
    has_failed: bool = False
    is_recognised: bool = False


class FolderFollower:
    """Follows the histories below `folders` into `store`.

    `excluded` are files and folders that are not looked at (what perdure itself writes); `open`
    are the files that this process writes, whatever they are called.
    """

    def __init__(
        self,
        store: SessionStore,
        folders: Sequence[Path],
        *,
        clock: Clock,
        random: RandomSource,
        format: FormatName = "auto",
        subject: str | None = None,
        excluded: Iterable[Path] = (),
        open: Collection[FileId] = (),
    ) -> None:
        self._store = store
        self._folders = folders
        self._clock = clock
        self._random = random
        self._subject = subject
        self._format: FormatName = format
        self._excluded = tuple(path.absolute() for path in excluded)
        self._open = frozenset(open)
        self._seen: dict[Path, _Seen] = {}

    async def changes(self) -> AsyncIterator[Change]:
        """What changes, without end, beginning with what is there and not yet in the store."""
        pause_s = SOONEST_S
        while True:
            began_s, has_changed = self._clock.steady_s(), False
            async for change in self.look():
                has_changed = True
                yield change
            took_s = self._clock.steady_s() - began_s
            pause_s = SOONEST_S if has_changed else min(LATEST_S, pause_s * 2)
            await self._clock.sleep(pause_s if has_changed else max(pause_s, took_s / SHARE))

    async def look(self) -> AsyncIterator[Change]:
        """What has changed since the last look."""
        found = await asyncio.to_thread(self._find_files)
        for gone in self._gone_files(found):
            yield gone
        async for change in in_order(self._jobs(found)):
            if change is not None:
                yield change

    def _gone_files(self, found: Mapping[Path, State]) -> Iterator[Change]:
        """The files that are no longer there; those with a new name are known by that one."""
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

    def _jobs(self, found: Mapping[Path, State]) -> Iterator[Job[Change | None]]:
        """The files to be read."""
        for path, state in found.items():
            seen = self._seen.setdefault(path, _Seen(state[0]))
            if state != seen.state and self._clock.steady_s() >= seen.due_s:
                yield held_bytes(state[1]), partial(self._read, path, state, seen)

    def _find_files(self) -> dict[Path, State]:
        """The files there are, by path; one that has several names counts once."""
        states: dict[Path, State] = {}
        known = set(self._open)
        for path in self._paths():
            try:
                status = path.stat()
            except OSError:
                continue  # gone since the folder was listed
            file = (status.st_dev, status.st_ino)
            if file not in known:
                known.add(file)
                states[path] = (file, status.st_size, status.st_mtime_ns)
        return states

    def _paths(self) -> Iterator[Path]:
        for folder in self._folders:
            for path in histories_in(folder):
                whole = path.absolute()
                if not any(whole.is_relative_to(other) for other in self._excluded):
                    yield path

    async def _read(self, path: Path, state: State, seen: _Seen) -> Change | None:
        """Import what is new in a file that changed."""
        began_s = self._clock.steady_s()
        try:
            content = await asyncio.to_thread(FileContent, path)
        except FormatError:
            seen.due_s = began_s + RETRY_S  # gone, or somebody else's for now: it will show
            return None
        with content:
            change = await self._look_into(path, state, seen, content)
        took_s = self._clock.steady_s() - began_s
        seen.due_s = max(seen.due_s, began_s + took_s / SHARE)
        return change

    async def _look_into(
        self, path: Path, state: State, seen: _Seen, content: FileContent
    ) -> Change | None:
        age_ms = self._clock.now_ms() - state[2] // 1_000_000
        is_fresh = 0 <= age_ms < QUIET_MS
        whole = content.length
        length = await asyncio.to_thread(end_of_lines, content) if is_fresh else whole
        # What has no line's end yet is looked at again, changed or not.
        seen.file, seen.state = state[0], state if length == whole == state[1] else None
        change = None
        if length != seen.length or not is_fresh or not seen.is_recognised:
            content.cut(length)
            change = await self._import_file(path, content, seen)
        seen.length = length
        return change

    async def _import_file(self, path: Path, content: FileContent, seen: _Seen) -> Change | None:
        if not content.length:
            return None
        try:
            report = await import_source(
                self._store,
                content,
                clock=self._clock,
                random=self._random,
                format=self._format,
                subject=self._subject,
            )
        except PerdureError as error:
            return self._report_failure(path, error, seen)
        seen.has_failed = False
        seen.is_recognised = True
        has_new = report.is_new or report.entries or report.malformed
        return Change(path, "imported", report) if has_new else None

    def _report_failure(self, path: Path, error: PerdureError, seen: _Seen) -> Change | None:
        """Say so once; what may pass by itself is tried again."""
        if isinstance(error, FormatError) and seen.state is None:
            return None  # it is being written: its next line may tell what it is
        if not isinstance(error, FormatError):
            seen.state = None
            seen.due_s = self._clock.steady_s() + RETRY_S
        was_told, seen.has_failed = seen.has_failed, True
        return None if was_told else Change(path, "failed", error=error)


def histories_in(
    folder: Path, on_closed: Callable[[OSError], object] | None = None
) -> Iterator[Path]:
    """The files below `folder` that may be histories, in order; `folder` itself if it is a file.

    `on_closed` is told of folders that cannot be read.
    """
    if folder.is_file():
        yield folder
        return
    for parent, folders, names in os.walk(folder, onerror=on_closed):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names) if name.endswith(SUFFIX))
