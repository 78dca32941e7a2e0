"""Sessions of a flow's roles: what would pass the flow by is refused there."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

from perdure.engine.flows.journal import Journal
from perdure.errors import CorruptLog, Erased, FlowRefusal, SessionNotFound
from perdure.session.clock import Clock
from perdure.session.flows.run import FlowState
from perdure.session.info import StreamHeader
from perdure.stores.protocol import SessionStore

Action = Literal["resume", "branch", "end", "abandon"]
"""What only the flow may do in the session of a role that still has work."""

_WHAT: dict[Action, str] = {
    "resume": "a turn of yours there",
    "branch": "branching there",
    "end": "ending it",
    "abandon": "giving its turn up",
}
_INSTEAD: dict[Action, str] = {
    "resume": "Flow.reply replies to it, Flow.run continues it; Session.fork makes a copy to talk "
    "with",
    "branch": "Session.fork makes a copy to branch in",
    "end": "Flow.stop ends its turn, Flows.delete deletes the flow",
    "abandon": "Flow.run continues the turn, Flow.stop ends its turn",
}


async def require_no_role(
    store: SessionStore, clock: Clock, header: StreamHeader, action: Action
) -> None:
    """Refuse `action` in a flow, and in the session of a role while its flow has work.

    Raises: FlowRefusal.
    """
    if header.kind == "flow":
        told = f"it is a flow and no session, and {_WHAT[action]} would pass its roles by"
        raise FlowRefusal(header.id, told, is_waiting=True)
    if header.origin != "role" or header.parent is None:
        return
    state: FlowState | None = None
    with suppress(SessionNotFound, Erased, CorruptLog):
        state = await Journal(store, header.parent, clock).state()
    if state is None or state.run.status == "completed":
        return
    role = header.id.removeprefix(f"{header.parent}__").partition("__")[0]
    raise FlowRefusal(
        header.parent,
        f"{header.id} is the session of its role {role}, and {_WHAT[action]} would pass the flow "
        f"by; {_INSTEAD[action]}",
        role=role,
        session=header.id,
    )
