"""The table of live events that the processes of one namespace share.

The table is a channel between processes, not a record. Any row can be lost without harm, because
the log has the outcome of every call. A notification only wakes the process, which then reads the
new rows from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from perdure.session.ids import StreamId

ALL = StreamId("")
"""Stands for all streams, in place of the id of one stream. No stream has this id."""

END = 2**62
"""The value of `LiveRow.last` in the row that ends a call."""

TERM_S = 30.0
"""How long a registration is valid unless it is renewed."""

LINGER_S = 2.0
"""How long the rows of a call stay after its end, for processes that have not read them yet."""

Streams = Sequence[StreamId] | None
"""Streams that a notification names. None means any stream: notifications may have been lost."""


class OnWatch(Protocol):
    """Receives streams for which other handles registered or renewed a registration.

    `is_new` is False if the registrations were only renewed.
    """

    def __call__(self, streams: Streams, /, *, is_new: bool) -> None: ...


class LiveRow(NamedTuple):
    """A row with live events of the model call at seq `call`, up to the event number `last`.

    `epoch` is the epoch of the lease under which the call is made.
    """

    stream: StreamId
    call: int
    last: int
    content: bytes
    epoch: int


class LiveTable(Protocol):
    """The rows of live events and the handles that watch them. Each method makes one round trip.

    `handle` is the id of the calling store's handle.
    """

    handle: str

    def attach(self, on_watch: OnWatch, on_rows: Callable[[Streams], None]) -> None:
        """Call `on_watch` if other handles register for streams.

        Call `on_rows` if other handles write rows for this handle.
        """
        ...

    def listen(self) -> None:
        """Receive notifications from now on."""
        ...

    async def register(self, streams: Sequence[StreamId]) -> list[StreamId]:
        """Register for the events of those `streams` that have an open turn; return these streams.

        Durable: no; a registration that is not renewed ends after `TERM_S`.
        """
        ...

    async def renew(self, streams: Sequence[StreamId]) -> None:
        """Renew this handle's registrations for `streams`, and end its other registrations.

        The call also deletes outdated events of all handles.
        """
        ...

    async def watched(self) -> list[StreamId]:
        """Return the streams for which other handles have registered."""
        ...

    async def watchers(self, streams: Sequence[StreamId]) -> Mapping[StreamId, frozenset[str]]:
        """Return, for each stream, the handles that have registered for the stream."""
        ...

    async def write(
        self, rows: Sequence[LiveRow], readers: Mapping[str, Sequence[StreamId]]
    ) -> frozenset[tuple[StreamId, int]]:
        """Write `rows` and notify `readers`; return the calls whose rows were written.

        A row is rejected if its turn has ended, if its stream has another epoch, or if the stream
        was erased.
        """
        ...

    async def read(self, known: Mapping[StreamId, tuple[int, int]]) -> list[LiveRow]:
        """Return, in order, the rows that are newer than the call and event number in `known`.

        Rows of fenced processes, which have lost their lease, are left out.
        """
        ...

    async def forget(self, calls: Sequence[tuple[StreamId, int]]) -> None:
        """Delete the rows of `calls`."""
        ...
