"""The first fields of all events on the wire, and live events that have no number yet.

An event belongs to exactly one session or one flow. A draft event must name either a session or a
flow. A draft event that names both or neither is rejected before it gets a number, so the numbers
have no gaps.
"""

from __future__ import annotations

import msgspec

from perdure.events.types import LiveType
from perdure.session.clock import timestamp
from perdure.session.ids import StreamId
from perdure.session.info import StreamKind


class EventDraft(msgspec.Struct, frozen=True):
    """A live event that has no number yet.

    `of` is the seq of the entry that began the open call; `agent` and `model` produced the event.
    """

    type: LiveType
    of: int
    text: str
    session_id: StreamId | None = None
    flow_id: StreamId | None = None
    agent: str | None = None
    model: str | None = None

    @property
    def stream(self) -> StreamId:
        """Return the session or flow that the event belongs to.

        Raises: ValueError if the event names both a session and a flow, or neither.
        """
        session, flow = self.session_id, self.flow_id
        if session is not None and flow is None:
            return session
        if flow is not None and session is None:
            return flow
        raise ValueError("an event belongs to one session or one flow: name exactly one of them")


def head_of(stream: StreamId, kind: StreamKind, type: str, at: int) -> dict[str, object]:
    """Return the first fields of an event of `stream` on the wire.

    Units: `at` is Unix milliseconds.
    """
    key = "flowId" if kind == "flow" else "sessionId"
    return {key: stream, "type": type, "timestamp": timestamp(at)}
