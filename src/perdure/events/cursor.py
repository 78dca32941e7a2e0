"""Where an observer stands: the position to resume from, and the check that nothing was missed."""

from __future__ import annotations

import msgspec

from perdure.events.types import LiveEvent, Snapshot
from perdure.session.ids import StreamId


class Cursor(msgspec.Struct, frozen=True):
    """An observer has seen everything up to and including `after`.

    `after` is a seq where one session is watched, a position of the namespace where all are. It
    never points into the middle of an entry's events: who stopped there is told all of them again.
    """

    after: int

    def __str__(self) -> str:
        return str(self.after)


class Gaps:
    """Finds missing live events: `n` must grow by one per call, snapshots set it anew."""

    def __init__(self) -> None:
        self._last: dict[tuple[StreamId, int], int] = {}

    def missed_count(self, event: LiveEvent | Snapshot) -> int:
        """How many live events of its call were lost before `event`; -1 when it is a repetition."""
        key = (event.stream, event.of)
        if isinstance(event, Snapshot):
            self._last[key] = event.n
            return 0
        # Whoever joins without a snapshot has missed what came before.
        last = self._last.get(key, 0)
        if event.n <= last:
            return -1
        self._last[key] = event.n
        return event.n - last - 1

    def close_call(self, stream: StreamId, of: int) -> None:
        """The call is over: its numbers are not needed any more."""
        self._last.pop((stream, of), None)
