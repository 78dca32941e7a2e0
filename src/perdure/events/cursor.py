"""The position of an observer: where to resume, and the check that no event was missed."""

from __future__ import annotations

from perdure.bounds.short_repr import ShortRepr
from perdure.events.types import LiveEvent, Snapshot
from perdure.session.ids import StreamId


class Cursor(ShortRepr, frozen=True):
    """The position of an observer that has seen everything up to and including `after`.

    `after` is a seq if one session is watched, or a position of the namespace if all sessions are
    watched. A cursor never points between two events of one entry. If the connection breaks between
    two events of an entry, all events of the entry are sent again.
    """

    after: int

    def __str__(self) -> str:
        return str(self.after)


class Gaps:
    """Detects missing live events: in a call, `n` grows by one per event; a snapshot resets `n`."""

    def __init__(self) -> None:
        self._last: dict[tuple[StreamId, int], int] = {}

    def missed_count(self, event: LiveEvent | Snapshot) -> int:
        """Return how many events of the call were lost before `event`; -1 for a repeated event."""
        key = (event.stream, event.of)
        if isinstance(event, Snapshot):
            self._last[key] = event.n
            return 0
        # An observer that starts without a snapshot has missed all earlier events.
        last = self._last.get(key, 0)
        if event.n <= last:
            return -1
        self._last[key] = event.n
        return event.n - last - 1

    def close_call(self, stream: StreamId, of: int) -> None:
        """Drop the numbers of a call that ended."""
        self._last.pop((stream, of), None)
