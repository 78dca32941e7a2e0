"""Store the order of all entries of a folder in one file, the feed, with one line per commit.

A line is ``<position> <session> <first seq> <count>``, where the position belongs to the commit's
first entry. A line with count 0 means that the session was erased; all earlier lines of this
session are invalid. A line with count -n means that n acknowledged entries, starting at the line's
seq, were missing in the session's file at the next commit. The positions of missing entries remain
empty, and later entries reuse the seqs of missing entries. The feed is written after a commit,
without waiting for the disk. The next reader adds entries that the feed lacks because another
program wrote them or a process crashed. If the feed may have lost lines, the next position is `GAP`
higher, so that no position is ever reused.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from perdure.errors import StoreFull
from perdure.session.ids import StreamId
from perdure.stores.jsonl.disk.folder import Folder, Stamp
from perdure.stores.jsonl.disk.locks import LockBusy
from perdure.stores.regular_files import open_regular, open_to_read, read_regular, status_of

NAME = "feed"
GAP = 2**20
"""Number of positions that are skipped if the file may have lost lines."""

SOON_S = 0.25
"""How long a commit, after its write, waits for the feed's lock."""

_TRAIL_BYTES = 256
"""How many bytes before the read position are read again, to detect a change."""

_MOST = 2**62
"""Limit of the sum of the numbers in a valid line; a line with larger numbers is damaged."""
_APPENDING = os.O_RDWR | os.O_APPEND | os.O_CREAT


class Span(NamedTuple):
    """The entries of one commit: the first entry's position, the stream, and the seqs."""

    position: int
    stream: StreamId
    first: int
    length: int


class FeedMark(msgspec.Struct, array_like=True, frozen=True):
    """The part of a feed that was read; `trail` is the hash of the last bytes of this part.

    Units: bytes.
    """

    inode: int = 0
    end: int = 0
    trail: bytes = b""


class Feed:
    """The feed file of one folder, which orders all entries of the folder.

    Only one thread at a time may use a `Feed`.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.path = folder.inner / NAME
        self._scanned = 0
        self._spans: list[Span] = []
        self._heads: dict[StreamId, int] = {}
        self._losses: dict[StreamId, list[range]] = {}

    @property
    def position(self) -> int:
        """The position of the newest entry; 0 if there is none."""
        return self._spans[-1].position + self._spans[-1].length - 1 if self._spans else 0

    def head(self, stream: StreamId) -> int:
        """Return the last seq of `stream` that has a position; -1 if no seq has one."""
        return self._heads.get(stream, -1)

    def lost(self, stream: StreamId, head: int) -> list[range]:
        """Return the acknowledged seqs that a file lacks if its last seq is `head`."""
        gone = range(head + 1, self.head(stream) + 1)
        return [*self._losses.get(stream, ()), *([gone] if gone else [])]

    def stamp(self) -> Stamp | None:
        """Return a stamp that changes with every commit."""
        try:
            return Stamp.of(status_of(self.path))
        except OSError:
            return None

    def mark(self) -> FeedMark:
        """Return the position up to which the feed was read."""
        try:
            with open_to_read(self.path, buffering=0) as file:
                inode, end = os.fstat(file.fileno()).st_ino, self._scanned
                return FeedMark(inode, end, trail(file, end))
        except FileNotFoundError:
            return FeedMark()
        except OSError as error:
            self._folder.fail(error)

    def goes_on_from(self, mark: FeedMark) -> bool:
        """Whether every position up to `mark` still belongs to the same entry."""
        if mark == FeedMark():
            return True
        now = self.mark()
        if now.inode != mark.inode or now.end < mark.end:
            return False
        with open_to_read(self.path, buffering=0) as file:
            return trail(file, mark.end) == mark.trail

    def after(self, position: int) -> Iterator[Span]:
        """Yield the spans after `position`; a span that contains `position` is shortened."""
        start = max(0, bisect_right(self._spans, position, key=lambda span: span.position) - 1)
        for span in self._spans[start:]:
            skipped = min(span.length, max(0, position + 1 - span.position))
            if skipped < span.length:
                yield Span(
                    span.position + skipped,
                    span.stream,
                    span.first + skipped,
                    span.length - skipped,
                )

    def by_stream(self) -> defaultdict[StreamId, list[Span]]:
        """Return the spans grouped by stream."""
        found: defaultdict[StreamId, list[Span]] = defaultdict(list)
        for span in self._spans:
            found[span.stream].append(span)
        return found

    def refresh(self) -> None:
        """Read the lines added since the last read."""
        try:
            with open_to_read(self.path) as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._scanned:
                    self._reset()
                file.seek(self._scanned)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._scanned += len(line)
                    self._take(line)
        except FileNotFoundError:
            self._reset()
        except OSError as error:
            self._folder.fail(error)

    def _reset(self) -> None:
        self._scanned, self._spans, self._heads, self._losses = 0, [], {}, {}

    def _take(self, line: bytes) -> None:
        span = span_of(line)
        if span is None or span.position <= self.position:
            return
        if span.length < 0:
            lost = range(span.first, span.first - span.length)
            self._losses.setdefault(span.stream, []).append(lost)
            span = span._replace(length=0)
        elif not span.length:
            self._losses.pop(span.stream, None)
        if not span.length:
            kept = (_cut(s, span.first) if s.stream == span.stream else s for s in self._spans)
            self._spans = [s for s in kept if s is not None]
        self._spans.append(span)
        self._heads[span.stream] = span.first + span.length - 1

    def forget(self, stream: StreamId) -> None:
        """Record that the session was erased: its positions stay empty, its id can be reused."""
        with self._folder.hold_lock("feed", ""):
            self.refresh()
            if self.lost(stream, -1):
                self._write(f"{self.position + 1} {stream} 0 0\n".encode())

    def lose(self, stream: StreamId, lost: range) -> None:
        """Record that the acknowledged entries `lost` are missing; their seqs can be reused.

        Durable: the record of the loss is as durable as the sessions of the store.
        Raises: LockBusy, StoreFull, StoreReadOnly, StoreUnavailable.
        """
        with self._folder.hold_lock("feed", ""):
            self.refresh()
            line = f"{self.position + 1} {stream} {lost.start} -{len(lost)}\n"
            self._write(line.encode(), is_synced=self._folder.is_synced)
            if self.head(stream) >= lost.start:  # only half of the line was written
                raise StoreFull(str(self.path))

    def extend_soon(self, stream: StreamId, head: int, path: Path) -> None:
        """Call `extend` for entries that were just written, unless the feed is locked.

        If another process holds the feed's lock, the call does nothing, and the next reader assigns
        the positions.
        """
        with suppress(LockBusy):
            self.extend(stream, head, path, is_lossy=False, wait_s=SOON_S)

    def extend(
        self,
        stream: StreamId,
        head: int,
        path: Path,
        *,
        is_lossy: bool,
        wait_s: float | None = None,
    ) -> None:
        """Assign positions to the entries of `stream` up to seq `head`; `path` is its file.

        Existing positions stay unchanged; a session that was erased meanwhile gets no positions.
        """
        with self._folder.hold_lock("feed", "", wait_s=wait_s):
            self.refresh()
            first = self.head(stream) + 1
            # An erasure removes the file, and then waits for this lock to forget the session.
            if first > head or not path.exists():
                return
            position = self.position + 1 + (GAP if is_lossy else 0)
            self._write(f"{position} {stream} {first} {head - first + 1}\n".encode())

    def _write(self, line: bytes, *, is_synced: bool = False) -> None:
        try:
            file = open_regular(self.path, _APPENDING)
            try:
                if os.fstat(file).st_nlink > 1:  # it may have another name anywhere
                    self._folder.put_beside(self.path, read_regular(self.path))
                    linked, file = file, open_regular(self.path, _APPENDING)
                    os.close(linked)
                size = os.fstat(file).st_size
                is_cut = size > 0 and os.pread(file, 1, size - 1) != b"\n"
                os.write(file, b"\n" + line if is_cut else line)
                if is_synced:
                    os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            self._folder.fail(error)
        self.refresh()


def _cut(span: Span, first: int) -> Span | None:
    """Return the part of `span` before the entry `first`; a span without entries is unchanged."""
    length = min(span.length, max(0, first - span.first))
    return span._replace(length=length) if length or not span.length else None


def span_of(line: bytes) -> Span | None:
    """Return the content of a feed line; None for an incomplete or damaged line."""
    try:
        position, stream, first, length = line.split()
        span = Span(int(position), StreamId(stream.decode()), int(first), int(length))
    except ValueError:
        return None
    return (
        span if span.first >= 0 and span.position + span.first + abs(span.length) < _MOST else None
    )


def trail(file: BinaryIO, end: int) -> bytes:
    """Return the hash of the last bytes before `end` in the file."""
    begin = max(0, end - _TRAIL_BYTES)
    file.seek(begin)
    return hashlib.blake2b(file.read(end - begin) or b"", digest_size=8).digest()
