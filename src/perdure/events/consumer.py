"""State of a consumer that misses no event, although its connection may break or lose events.

A consumer applies new events and skips repeated events. If an event is missing, the consumer
reconnects and continues with the events after the seq `resume_after`. So a consumer applies every
event of the log exactly once. The consumer's state is a few numbers, regardless of the session's
length.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from perdure.events.cursor import Gaps
from perdure.events.types import SNAPSHOT, AnyEvent, Event, LiveEvent, Snapshot
from perdure.session.argument_checks import takes_all_declared
from perdure.session.ids import StreamId
from perdure.session.messages import Message

Verdict = Literal["new", "repeated", "gap"]
"""An event is applied (``new``), skipped (``repeated``), or shows a loss of events (``gap``)."""

Told = AnyEvent | Mapping[str, object]
"""An event as a watch yields it, or the same event as JSON data from the wire."""

ToldT = TypeVar("ToldT", bound=Told)
Connect = Callable[[int], AsyncIterator[ToldT]]
"""Opens a connection, and yields the events after a given seq until the connection ends."""

_CLOSING = frozenset(("agent:model_finished", "agent:tool_result", "agent:interrupted"))
_STREAM = StreamId("followed")


@takes_all_declared
class Follower:
    """One consumer of one session's events; `after` is the last known seq."""

    def __init__(self, after: Annotated[int, Meta(ge=-1)] = -1) -> None:
        self._seq = after
        self._index = 0
        self._has_more = False
        self._gaps = Gaps()

    def __repr__(self) -> str:
        return f"<Follower resume_after={self.resume_after}>"

    @property
    def resume_after(self) -> int:
        """Return the seq after which a new connection must continue.

        A partly received entry is sent again.
        """
        return self._seq - 1 if self._has_more else self._seq

    def take(self, event: Told) -> Verdict:
        """Classify `event`. The caller applies a ``new`` event, and reconnects after a ``gap``.

        Raises: ValueError if `event` is not an event of a session.
        """
        read = _read(event) if isinstance(event, Mapping) else event
        return self._durable(read) if isinstance(read, Event) else self._live(read)

    async def events(
        self, connect: Connect[ToldT], *, broken: tuple[type[Exception], ...] = (ConnectionError,)
    ) -> AsyncGenerator[ToldT]:
        """Yield the new events, over as many connections as needed.

        A lost event, or an error of a type in `broken`, ends a connection. If the connection has a
        method `aclose`, this method is called before the next connection is opened. `connect` can
        wait before it opens the next connection. The iteration ends when a connection ends
        normally.
        """
        while True:
            connection: AsyncIterator[ToldT] | None = None
            try:
                connection = connect(self.resume_after)
                async for event in connection:
                    verdict = self.take(event)
                    if verdict == "gap":
                        break
                    if verdict == "new":
                        yield event
                else:
                    return
            except broken:
                pass
            close = getattr(connection, "aclose", None)
            if close is not None:
                with suppress(*broken):
                    await close()

    def _durable(self, event: Event) -> Verdict:
        place = (event.seq, event.index)
        expected = (self._seq, self._index + 1) if self._has_more else (self._seq + 1, 0)
        if place != expected:
            return "repeated" if place < expected else "gap"
        self._seq, self._index, self._has_more = event.seq, event.index, event.has_more
        if event.type in _CLOSING:
            self._gaps.close_call(_STREAM, _number_in(event.payload.get("about")))
        return "new"

    def _live(self, event: LiveEvent | Snapshot) -> Verdict:
        missed = self._gaps.missed_count(msgspec.structs.replace(event, stream=_STREAM))
        if missed < 0:
            return "repeated"
        return "gap" if missed else "new"


def _read(event: Mapping[str, object]) -> Event | LiveEvent | Snapshot:
    """Convert `event` from its wire form, as far as a `Follower` needs its fields."""
    type_, seq = event.get("type"), event.get("sequenceNumber")
    index, of, n = event.get("index", 0), event.get("of"), event.get("n")
    if isinstance(type_, str) and isinstance(seq, int) and isinstance(index, int):
        has_more = event.get("more") is True
        return Event(_STREAM, seq, index, type_, 0, event, has_more)
    if isinstance(of, int) and isinstance(n, int):
        if type_ == SNAPSHOT:
            return Snapshot(_STREAM, of, n, Message("assistant", ()), 0)
        return LiveEvent(_STREAM, of, n, "agent:token", 0, "")
    raise ValueError("this is no event of a session: it has neither sequenceNumber nor of and n")


def _number_in(about: object) -> int:
    """Return the sequence number in the entry id `about`; -1 if `about` is not an entry id."""
    digits = about.rpartition("/")[2] if isinstance(about, str) else ""
    return int(digits) if digits.isdecimal() else -1
