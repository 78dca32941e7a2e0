"""Memory use of an import.

Memory use depends on the longest line and on the number of lines of a file, which is read in
pieces.

Only Python allocations are counted, while the file is read into a store that stores nothing.
"""

from __future__ import annotations

import tracemalloc

import msgspec

from perdure.codecs.lines import lines_of
from perdure.errors import FormatError, SessionNotFound
from perdure.interop.formats import native
from perdure.interop.formats.detection import detect_format
from perdure.interop.formats.native import move_entry
from perdure.interop.formats.registry import FORMATS
from perdure.interop.formats.sources.content import Held
from perdure.interop.formats.sources.reader import Bounds
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, entry_id
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult, Lease, StreamState
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.sources import imported

PIECES = Bounds(whole_bytes=30_000, piece_bytes=30_000)
SIZE_BYTES = 2_000_000
"""A file is repeated until it has this size, which is many times the size of a piece."""

BYTES_A_LINE = 700
TIMES_THE_LONGEST = 100
"""A line of nothing but brackets and commas takes some 80 times its bytes once it is read."""
FLOOR_BYTES = 3_000_000
"""Memory that every read needs: for chunks, for one piece and its values, and at the first use."""

WHOLE = frozenset(name for name, known in FORMATS.items() if known.reader is None)
"""Formats whose files are read as a whole: the memory depends on the size of the file."""


class Forgetful(MemoryStore):
    """A store that accepts everything and stores nothing."""

    async def commit(self, commit: Commit) -> CommitResult:
        return CommitResult(((),) * len(commit.writes))

    async def state(self, stream: StreamId) -> StreamState:
        raise SessionNotFound(stream)

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        return Lease(stream, owner, 1, ttl_ms)

    async def renew_lease(self, lease: Lease, ttl_ms: int) -> Lease:
        return lease

    async def release_lease(self, lease: Lease) -> None:
        return


async def check_memory(content: bytes) -> None:
    """Check that reading `content`, repeated many times, stays within its memory bound."""
    format = detect_format(Held(content))
    large = _longer_log(content) if format == native.FORMAT else _repeated(content)
    longest, count = 0, 0
    for line in lines_of(large):
        longest, count = max(longest, len(line.content)), count + 1
    bound = FLOOR_BYTES + TIMES_THE_LONGEST * longest + BYTES_A_LINE * count
    if format in WHOLE:
        bound = FLOOR_BYTES + TIMES_THE_LONGEST * len(large)
    peak = await _peak_bytes(large)
    assert peak <= bound, f"{peak:,} bytes for {len(large):,} in {count:,} lines of {longest:,}"


def _repeated(content: bytes) -> bytes:
    lines = content.rstrip(b"\n") + b"\n"
    return lines * max(1, SIZE_BYTES // len(lines))


def _longer_log(content: bytes) -> bytes:
    """Return a log that repeats the entries of `content`.

    If `content` is not a valid log, return its lines repeated.
    """
    try:
        bundle = native.parse(content, "source")
    except FormatError:
        return _repeated(content)
    stream, count = bundle.header.id, len(bundle.entries)
    entries: list[Entry] = []
    for first in range(0, count * max(1, SIZE_BYTES // len(content)), max(1, count)):
        ids = {each.id: entry_id(stream, each.seq + first) for each in bundle.entries}
        entries += (move_entry(each, stream, each.seq + first, ids) for each in bundle.entries)
    return native.write_bundle(msgspec.structs.replace(bundle, entries=tuple(entries)))


async def _peak_bytes(content: bytes) -> int:
    store = Forgetful(clock=ManualClock(), random=SeededRandom(1))
    tracemalloc.start()
    try:
        await imported(store, content, bounds=PIECES)
    except FormatError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak
