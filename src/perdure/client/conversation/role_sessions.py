"""Protect sessions of a flow's roles from operations that would bypass the flow."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

from perdure.engine.flows.journal import Journal
from perdure.engine.flows.rules.structure import OWNER
from perdure.errors import CorruptLog, Erased, FlowRefusal, SessionNotFound, WrongArgument
from perdure.session.clock import Clock
from perdure.session.flows.run import FEEDBACK_ROLE, FlowState
from perdure.session.flows.start_arguments import role_ids_in
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.stores.session_store import SessionStore

Action = Literal["resume", "branch", "end", "abandon"]
"""Actions that only the flow may take in the session of a role that still has work."""

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
    """Reject `action` on a flow, and on the session of a role until its flow is completed.

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
    role = _role_in(header)
    raise FlowRefusal(
        header.parent,
        f"{header.id} is the session of its role {role}, and {_WHAT[action]} would pass the flow "
        f"by; {_INSTEAD[action]}",
        role=role,
        session=header.id,
    )


async def model_of_role(store: SessionStore, clock: Clock, header: StreamHeader) -> str | None:
    """Return the model that the flow currently sets for the role of the session with `header`.

    Shape: the result is None if the flow has not changed the role's first model.
    """
    if header.origin != "role" or header.parent is None:
        return None
    with suppress(SessionNotFound, Erased, CorruptLog):
        state = await Journal(store, header.parent, clock).state()
        chosen = state.roles.get(_role_in(header))
        if chosen is not None and chosen.model is not None:
            return chosen.model
        if state.settings is not None and state.document is None:
            return state.settings.model
    return None


def _role_in(header: StreamHeader) -> str:
    """Return the role whose session has `header`."""
    return header.id.removeprefix(f"{header.parent}__").partition("__")[0]


async def require_no_role_id(store: SessionStore, clock: Clock, flow: StreamId) -> None:
    """Reject the id `flow` of a new flow if a session of another flow's role has it.

    Raises: WrongArgument.
    """
    for owner, role in role_ids_in(flow):
        roles: set[str] = set()
        with suppress(SessionNotFound, Erased, CorruptLog):
            state = await Journal(store, owner, clock).state()
            roles = {*state.graph.roles, *state.sessions, OWNER, FEEDBACK_ROLE}
        if role in roles:
            raise WrongArgument(
                f"the flow id {flow!r} is reserved for the role {role!r} of the flow {owner!r}: "
                "choose another id",
                argument="id",
                takes="an id",
            )
