"""Who runs a flow, and what waits for a person: for a list of flows."""

from __future__ import annotations

from contextlib import suppress

from perdure.client.processes import is_gone
from perdure.client.store import Store
from perdure.engine.flows.lost_roles import lost_roles
from perdure.engine.flows.rules.flow_waits import FlowWait, waits_in
from perdure.errors import Erased, SessionNotFound
from perdure.session.flows.run import FlowState
from perdure.stores.access.lease_term import is_running


async def workers_of(store: Store, state: FlowState) -> tuple[str, ...]:
    """Return the lease owners of the live processes that now run a role of the flow."""
    now = store.outside.clock.now_ms()
    chose = (each.session for each in state.selecting.values())
    found: dict[str, None] = {}
    for session in (*state.sessions.values(), *chose):
        with suppress(SessionNotFound, Erased):
            lease = (await store.backend.state(session)).lease
            if lease and is_running(lease.until, now) and not is_gone(lease.owner):
                found[lease.owner] = None
    return tuple(found)


async def waiting_in(store: Store, state: FlowState) -> tuple[FlowWait, ...]:
    """Return what waits for a person: in the flow itself, then in the sessions of its roles."""
    lost = await lost_roles(store.backend, state)
    return (*waits_in(state, lost), *await _question_waits(store, state))


async def _question_waits(store: Store, state: FlowState) -> list[FlowWait]:
    roles = {session: role for role, session in state.sessions.items()}
    found: list[FlowWait] = []
    for session, role in roles.items():
        with suppress(SessionNotFound, Erased):  # it has no questions; the flow is still shown
            for asked in await (await store.open(session)).questions():
                question = asked.question
                topic = "consent" if question.topic == "approval" else question.topic
                found.append(
                    FlowWait(
                        topic=topic,
                        target=role,
                        text=question.text,
                        choices=question.choices,
                        question=asked.id,
                        role=role,
                        asked_at=asked.at,
                        session=session,
                    )
                )
    return found
