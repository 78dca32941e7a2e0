"""The processes that run a flow, what it waits for, and whether it can continue."""

from __future__ import annotations

from contextlib import suppress

from perdure.client.agents.delegation.questions import awaited_sessions
from perdure.client.processes import is_gone
from perdure.client.store import Store
from perdure.engine.flows.continuation import next_bodies
from perdure.engine.flows.lost_roles import lost_roles
from perdure.engine.flows.rules.flow_waits import FlowWait, waits_in
from perdure.engine.flows.rules.improvement import RoleWork
from perdure.engine.flows.rules.parts import ready_work, running_parts
from perdure.engine.flows.rules.ready_nodes import Work
from perdure.errors import Erased, SessionNotFound
from perdure.session.codec import body_of
from perdure.session.flows.kinds import HumanReplied, ImprovementParked, NodeParked, RoleConfigured
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.stores.access.lease_term import is_running
from perdure.stores.session_store import SessionStore

_ATTEMPTS = (NodeParked.kind, ImprovementParked.kind, HumanReplied.kind, RoleConfigured.kind)


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
    """Return what waits for people: first in the flow itself, then in the sessions of its roles."""
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


def running_sessions(state: FlowState) -> tuple[StreamId | None, ...]:
    """Return the session of each active node and role; None if it has no session yet."""
    return tuple(part.session or None for part in running_parts(state))


async def is_ready(store: SessionStore, state: FlowState, at: int) -> bool:
    """Whether the flow can continue without a person. Units: `at` is Unix milliseconds.

    A node that could not begin after a reply waits for the next reply or configuration. The result
    is False for a flow whose folder was set by an imported or untrusted entry.
    """
    if state.run.status == "completed" or not state.is_place_in_force:
        return False
    if state.stopping:
        return True
    running = running_sessions(state)
    for session in running:
        if session is None or not await _awaited(store, session, at):
            return True
    if works := ready_work(state):
        parked = await _parked_since_reply(store, StreamId(state.run.flow_id))
        return any(work.target not in parked or not _is_decided(work) for work in works)
    return not running and bool(next_bodies(state))


async def awaited_by(store: SessionStore, state: FlowState, at: int) -> set[StreamId]:
    """Return the sessions whose changes might let the flow continue, and the flow itself."""
    found = {StreamId(state.run.flow_id)}
    for session in running_sessions(state):
        if session is not None:
            found |= {session, *await _awaited(store, session, at)}
    return found


def _is_decided(work: Work | RoleWork) -> bool:
    """Whether a person's decision lets `work` continue."""
    return work.text is not None or (isinstance(work, Work) and work.cause == "configuration")


async def _awaited(store: SessionStore, session: StreamId, at: int) -> set[StreamId]:
    with suppress(SessionNotFound, Erased):
        return await awaited_sessions(store, session, at)
    return set()


async def _parked_since_reply(store: SessionStore, flow: StreamId) -> set[str]:
    """Return the nodes and roles that were parked, and got no reply or configuration since then.

    A parked node or role waits for a person.
    """
    found: set[str] = set()
    for entry in await store.notes(flow, _ATTEMPTS):
        body = body_of(entry)
        if isinstance(body, NodeParked):
            found.add(body.node)
        elif isinstance(body, ImprovementParked):
            found.add(body.role)
        elif isinstance(body, HumanReplied):
            found.discard(body.target)
        elif isinstance(body, RoleConfigured):
            found.clear()
    return found
