"""How much memory an import takes: of a file in pieces, what its longest line and its lines ask.

Only what Python allocates is counted, while the file is read into a store that forgets it all.
"""

from __future__ import annotations

import tracemalloc

from perdure.errors import FormatError, SessionNotFound
from perdure.interop.formats.lines import lines_of
from perdure.interop.formats.recognise import recognised
from perdure.interop.formats.sources.content import Held
from perdure.interop.formats.sources.reading import Bounds
from perdure.session.ids import StreamId
from perdure.stores.in_memory import MemoryStore
from perdure.stores.protocol import Commit, Committed, StreamState
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.sources import imported

PIECES = Bounds(whole_bytes=30_000, piece_bytes=30_000)
SIZE_BYTES = 2_000_000
"""A file is made at least so large, by repeating it: many times a piece."""

BYTES_A_LINE = 700
TIMES_THE_LONGEST = 100
"""A line of nothing but brackets and commas takes some 80 times its bytes once it is read."""
FLOOR_BYTES = 3_000_000
"""Chunks, a piece with what is made of it, and what is allocated once."""

WHOLE = ("perdure", "opencode")
"""Formats of which a file is one commit, or one document: memory follows the file."""


class Forgetful(MemoryStore):
    """A store that takes everything and keeps nothing."""

    async def commit(self, commit: Commit) -> Committed:
        return Committed(((),) * len(commit.writes))

    async def state(self, stream: StreamId) -> StreamState:
        raise SessionNotFound(stream)


async def check_memory(content: bytes) -> None:
    """Assert that reading `content`, many times over, stays within its bound."""
    large = content.rstrip(b"\n") + b"\n"
    large *= max(1, SIZE_BYTES // len(large))
    format = recognised(Held(large))
    longest, count = 0, 0
    for line in lines_of(large):
        longest, count = max(longest, len(line.content)), count + 1
    bound = FLOOR_BYTES + TIMES_THE_LONGEST * longest + BYTES_A_LINE * count
    if format in WHOLE:
        bound = FLOOR_BYTES + TIMES_THE_LONGEST * len(large)
    peak = await _peak_bytes(large)
    assert peak <= bound, f"{peak:,} bytes for {len(large):,} in {count:,} lines of {longest:,}"


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
