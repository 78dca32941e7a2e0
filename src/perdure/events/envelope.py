"""What every event on the wire begins with, and live events before they have a number.

An event belongs to exactly one session or one flow. A draft that names both, or neither, is refused
before it is numbered, so the numbers of those that follow have no gap.
"""

from __future__ import annotations

import msgspec

from perdure.events.types import LiveType
from perdure.session.clock import timestamp
from perdure.session.ids import StreamId
from perdure.session.info import StreamKind


class EventDraft(msgspec.Struct, frozen=True):
    """A live event of the open call `of`, of `agent` with `model`, not numbered by the bus yet."""

    type: LiveType
    of: int
    text: str
    session_id: StreamId | None = None
    flow_id: StreamId | None = None
    agent: str | None = None
    model: str | None = None

    @property
    def stream(self) -> StreamId:
        """The session or flow it belongs to.

        Raises: ValueError when it names both or neither.
        """
        session, flow = self.session_id, self.flow_id
        if session is not None and flow is None:
            return session
        if flow is not None and session is None:
            return flow
        raise ValueError("an event belongs to one session or one flow: name exactly one of them")


def head_of(stream: StreamId, kind: StreamKind, type: str, at: int) -> dict[str, object]:
    """The beginning of an event of `stream` on the wire.

    Units: `at` is Unix milliseconds.
    """
    key = "flowId" if kind == "flow" else "sessionId"
    return {key: stream, "type": type, "timestamp": timestamp(at)}
