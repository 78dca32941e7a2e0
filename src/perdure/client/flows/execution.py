"""Runs one flow until it needs a person, or until it is completed; its roles work in sessions."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

from perdure.client.agents.agent import Agent
from perdure.client.agents.runners import EmbeddedRunner
from perdure.client.agents.runtime_services import Host
from perdure.client.flows.documents.turns import DocumentTurns
from perdure.client.flows.locations import OWNED_BY, belongs_to, place_of
from perdure.client.flows.role_setup import Equipment
from perdure.client.flows.role_turns import RoleTurns
from perdure.client.flows.waits import is_ready, running_sessions
from perdure.client.flows.waker import Waker
from perdure.engine.flows.continuation import can_continue
from perdure.engine.flows.files.runtime_files import write_record_file
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.node_turn import FlowContext
from perdure.engine.flows.requests import end_of_request
from perdure.engine.flows.runner import FlowRunner
from perdure.errors import FlowRefusal, TurnOpen
from perdure.session.entries import Entry
from perdure.session.flows.graph import base_role
from perdure.session.flows.kinds import FlowRequested, NeededAgent
from perdure.session.flows.run import FlowState


class Execution:
    """Runs flows of one store; `equipment` has the agents, models and hooks of the flows' roles."""

    def __init__(self, host: Host, equipment: Equipment, waker: Waker | None = None) -> None:
        self.equipment = equipment
        self._host = host
        self._waker = waker or Waker(host.store.backend)

    async def run(self, journal: Journal, *, until_completed: bool) -> FlowState:
        """Run the flow of `journal` in this process, or wait for workers to run it.

        See `Flow.run`.
        """
        request = await self._requested(journal)
        if request is not None:
            return await self._followed(journal, request, until_completed=until_completed)
        state = await self._run_once(journal)
        while until_completed and state.run.status != "completed":
            await self._answered(journal)
            state = await self._run_once(journal)
        return state

    async def compact(
        self, journal: Journal, role: str, focus: str | None, model: str | None
    ) -> Entry | None:
        """Compact the session of `role`. See `Flow.compact`."""
        state = await journal.state()
        if role not in state.sessions:
            raise no_session(state, role)
        _, roles = self._roles(journal, state)
        try:
            return await roles.compact(state.sessions[role], focus, model)
        except TurnOpen:
            told = f"{role} is at work; Flow.stop ends that"
            raise FlowRefusal(journal.flow, told, role=role) from None

    def _roles(self, journal: Journal, state: FlowState) -> tuple[FlowContext, RoleTurns]:
        """Return the shared context of the flow's turns, and the flow's roles."""
        ground, library = place_of(state).ground(journal)
        turns = RoleTurns
        if state.document is not None:  # its document is in the log and cannot be edited elsewhere
            ground, turns = replace(ground, drawing=None), DocumentTurns
        return ground, turns(self._host, self.equipment, journal, ground.record, library)

    async def close(self) -> None:
        """Stop following the store's changes."""
        await self._waker.close()

    async def _requested(self, journal: Journal) -> int | None:
        """Return the seq of the request for workers to run the flow; None if the flow runs here.

        The flow runs in this process if the agent of a role comes from `Equipment.default_agent`, a
        function that workers do not have.
        Raises: FlowRefusal if the folders of the flow are not on this
        machine.
        """
        state = await journal.state()
        if isinstance(self._host.runner, EmbeddedRunner) or state.run.status == "completed":
            return None
        equipment, known, unknown = self.equipment, dict[str, Agent](), set[str]()
        for role in state.graph.roles:
            agent = equipment.agent(role)
            if agent is not None:
                known[agent.id] = agent
            elif state.document is not None:  # the document defines it
                continue
            elif equipment.default_agent is not None:
                return None
            else:
                unknown.add(base_role(role))
        place = await asyncio.to_thread(place_of, state)
        if not await asyncio.to_thread(belongs_to, journal.flow, place.record):
            told = f"its record folder {place.record} has no {OWNED_BY}, by which workers know it"
            raise FlowRefusal(journal.flow, told)
        wanted = FlowRequested(
            tuple(NeededAgent(id) for id in unknown),
            (str(place.workspace), str(place.record)),
            equipment.offered,
            equipment.on_interrupt,
        )
        store, now = self._host.store.backend, self._host.store.outside.clock.now_ms()
        runner = self._host.runner
        return await runner.request_flow(store, journal.flow, wanted, known.values(), now)

    async def _followed(
        self, journal: Journal, request: int, *, until_completed: bool
    ) -> FlowState:
        """Wait until workers have run the flow as far as `run` would. Raises: FlowRefusal."""
        store, clock = self._host.store.backend, self._host.store.outside.clock
        async with aclosing(self._waker.wakes(journal.flow)) as wakes:
            while True:
                state = await journal.state()
                if state.run.status == "completed":
                    return state
                closed = await end_of_request(store, journal.flow, request)
                if closed is not None and closed.error is not None:
                    raise FlowRefusal(journal.flow, closed.error)
                is_busy = until_completed or bool(running_sessions(state))
                if not is_busy and not await is_ready(store, state, clock.now_ms()):
                    return state
                await anext(wakes)

    async def _answered(self, journal: Journal) -> None:
        """Wait until the flow can continue without a person, or another process completes it."""
        async with aclosing(self._waker.wakes(journal.flow)) as wakes:
            while True:
                state = await journal.state()
                if can_continue(state) or state.run.status == "completed":
                    return
                await anext(wakes)

    async def _run_once(self, journal: Journal) -> FlowState:
        state = await journal.state()
        place = await asyncio.to_thread(place_of, state)
        named = state.run.record_name, state.run.record_summary
        await asyncio.to_thread(write_record_file, place.record, *named)
        ground, roles = self._roles(journal, state)
        clock = self._host.store.outside.clock
        runner = FlowRunner(ground, roles, clock, lambda: self._waker.wakes(journal.flow))
        return await runner.run()


def no_session(state: FlowState, role: str) -> FlowRefusal:
    """Return the error for a `role` that has no session or is not a role of the flow."""
    roles = dict.fromkeys((*state.graph.roles, *state.sessions))
    if role not in roles:
        told = f"it has no role {role!r}; its roles are: {', '.join(roles)}"
        return FlowRefusal(state.run.flow_id, told)
    names = ", ".join(state.sessions) or "none"
    return FlowRefusal(state.run.flow_id, f"role {role!r} has no session yet; there are: {names}")
