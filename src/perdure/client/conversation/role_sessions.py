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
    "resume": '`perdure flow reply {flow} --to {role} "..."` replies to it, `perdure flow resume '
    "{flow}` continues it; to talk with a copy of it: `perdure sessions fork {session}`",
    "branch": "branch in a copy of it: `perdure sessions fork {session}`",
    "end": "`perdure flow stop {flow} {role}` ends its turn, `perdure flow delete {flow}` deletes "
    "the flow",
    "abandon": "`perdure flow resume {flow}` continues the turn, `perdure flow stop {flow} {role}` "
    "ends it",
}


async def require_no_role(
    store: SessionStore, clock: Clock, header: StreamHeader, action: Action
) -> None:
    """Refuse `action` in the session of a role, unless its flow is completed or gone.

    Raises: FlowRefusal.
    """
    if header.origin != "role" or header.parent is None:
        return
    state: FlowState | None = None
    with suppress(SessionNotFound, Erased, CorruptLog):
        state = await Journal(store, header.parent, clock).state()
    if state is None or state.run.status == "completed":
        return
    role = header.id.removeprefix(f"{header.parent}__").partition("__")[0]
    instead = _INSTEAD[action].format(flow=header.parent, role=role, session=header.id)
    raise FlowRefusal(
        header.parent,
        f"{header.id} is the session of its role {role}, and {_WHAT[action]} would pass the flow "
        f"by; {instead}",
    )
