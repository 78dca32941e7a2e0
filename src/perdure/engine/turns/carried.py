"""Read from the log the state that a new turn inherits from earlier turns.

The modules `carried` and `recovery` are separate, so that reading the inherited state does not load
the turn machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.engine.turns.state import TurnState, fold
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.ledger import TurnStarted
from perdure.session.notes import AgentBound, SessionStarted
from perdure.stores.protocol import LogReader

PAGE = 64
"""Number of entries read first; most turns are shorter."""


async def carried_state(
    store: LogReader, stream: StreamId, head: int, page: Sequence[Entry] = ()
) -> TurnState:
    """Return the part of the state of `stream` up to `head` that a new turn needs.

    `page` contains the newest entries up to `head`, if they were already read.
    Raises: SessionNotFound if the stream does not exist.
    """
    tail = await carrying_from(store, stream, head, page)
    before = tail[0].seq - 1 if tail else head
    return fold(TurnState(stream=stream, head=before), tail)


async def carrying_from(
    store: LogReader, stream: StreamId, head: int, page: Sequence[Entry] = ()
) -> list[Entry]:
    """Return the entries of `stream` up to `head` from which `carried_state` is computed.

    `page` contains the newest entries up to `head`, if they were already read.
    Raises: SessionNotFound if the stream does not exist.
    """
    tail: list[Entry] = []
    last, size = head, PAGE
    while last >= 0:
        first = page[0].seq if page else max(last - size + 1, 0)
        page = page or await store.entries(stream, after=first - 1, limit=last - first + 1)
        start = _start_in(page)
        tail = [*page[start or 0 :], *tail]
        if start is not None:
            break
        last, size, page = first - 1, size * 4, ()
    return tail


def _start_in(page: Sequence[Entry]) -> int | None:
    """Return the index of the newest entry that makes earlier entries unnecessary, if any."""
    for place in range(len(page) - 1, -1, -1):
        entry = page[place]
        if entry.kind == SessionStarted.kind:
            return place  # no model was called before
        if entry.kind == AgentBound.kind:
            body = body_of(entry)
            if not isinstance(body, AgentBound) or body.granted_by is None:
                return place  # earlier entries do not count
        if entry.kind == TurnStarted.kind:
            body = body_of(entry)
            # Turns of earlier versions did not record the spending before them.
            if isinstance(body, TurnStarted) and body.spent is not None:
                return place
    return None
