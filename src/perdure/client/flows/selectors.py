"""Selectors: models that choose the model and skills of a role, each in its own session.

One commit creates a selector's session and the entry about it in the flow's log. The id of the
selector's session is computed from flow, role and number. After a crash, the process that resumes
the flow computes the same session id, so it finds the selector's session and does not open a second
one. The selector's choice is read from the log of its session. Like the session of a role, the
selector's session is hidden in lists, and is erased or retained together with the flow.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import msgspec

from perdure.client.agents.agent import Agent, agent_of
from perdure.client.agents.runtime_services import Host
from perdure.client.conversation.workspace import Workspace
from perdure.client.flows.role_setup import unconfigured_error
from perdure.engine.flows.answer_text import AnswerText
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.prompts.selection import INSTRUCTIONS, selection_message
from perdure.engine.flows.rules.answers import invalid_answer
from perdure.engine.flows.selection import MOST_ATTEMPTS, Undecided, opening, selection
from perdure.engine.turns.config import Limits
from perdure.engine.turns.session_turns import SessionTurns, Signals
from perdure.errors import (
    ConfigError,
    HeadConflict,
    InvalidEntry,
    InvalidTransition,
    PerdureError,
    SessionExists,
    StoreError,
    TurnOpen,
)
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry
from perdure.session.flows.graph import FlowNode
from perdure.session.flows.kinds import SelectorOpened
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.ledger import TurnFinished
from perdure.session.messages import user
from perdure.session.notes import SessionStarted
from perdure.stores.protocol import Commit, Write
from perdure.tools.registry import ToolRegistry

STOPPED = "a person stopped the model that was to choose; "


@dataclass(frozen=True, slots=True)
class About:
    """The role for which a selector chooses: its agent and document, and its next node."""

    agent: Agent
    place: Workspace
    node: FlowNode | None
    document: str | None


class Selectors:
    """Opens the selectors of one flow, and records what they choose."""

    def __init__(self, host: Host, journal: Journal) -> None:
        self._host = host
        self._store = host.store.backend
        self._clock = host.store.outside.clock
        self._journal = journal
        self._at_work: dict[StreamId, Signals] = {}

    async def step(self, state: FlowState, role: str, open: Undecided, about: About) -> FlowState:
        """Do one step: open a selector or record its choice; return the new state of the flow.

        Raises: Unconfigured after the last attempt, or if a person has stopped the selector. Raises
        ConfigError if the role is not set up correctly; LeaseHeld if another process runs the
        selector.
        """
        opened = state.selecting.get(role)
        if opened is None:
            return await self._opened(state, role, open, about)
        try:
            answer = await self._answer(opened, state, about)
            choice = selection(state, opened, answer, is_partial=open.is_for_person)
        except InvalidEntry as error:
            if role in (await self._journal.state()).stopping:
                raise unconfigured_error(state, role, open, STOPPED) from error
            if opened.attempt < MOST_ATTEMPTS:
                return await self._opened(state, role, open, about, error.reason)
            tried = f"a model was to choose and did not in {opened.attempt} attempts"
            raise unconfigured_error(
                state, role, open, f"{tried} (at last: {error.reason}); "
            ) from error
        return await self._journal.append(
            lambda now: (choice,) if now.selecting.get(role) == opened else ()
        )

    async def _opened(
        self,
        state: FlowState,
        role: str,
        open: Undecided,
        about: About,
        refused: str | None = None,
    ) -> FlowState:
        """Open a selector, unless the flow has changed for this role since `state`."""
        before = (state.selecting.get(role), state.roles.get(role))
        try:
            opened = opening(state, role, open.by_selector, refused)
        except ValueError as error:
            raise ConfigError(f"the flow's id is too long for a selector: {error}") from error
        agent = selector_agent(about.agent)
        at = self._clock.now_ms()
        header = StreamHeader(
            id=opened.session,
            created_at=at,
            origin="role",
            cwd=about.place.working_dir,
            title=f"what {role} works with: {state.run.record_name or state.run.flow_id}",
            parent=state.run.flow_id,
        )
        prompt = agent.system_prompt(about.place)
        started = SessionStarted(agent.snapshot(), msgspec.to_builtins(about.place), prompt)
        session = Write(stream=opened.session, create=header, entries=(new_side(started),))
        while True:
            now = await self._journal.state()
            if (now.selecting.get(role), now.roles.get(role)) != before:
                return now  # another process was first, or a person has chosen
            writes = (self._journal.write(now, opened), session)
            try:
                committed = await self._store.commit(Commit(writes=writes, at=at))
            except HeadConflict:
                continue
            except SessionExists:
                if (await self._journal.state()).head == now.head:
                    raise ConfigError(
                        f"there is a session {opened.session} already that is no selector; erase it"
                    ) from None
                continue
            self._journal.follow(committed.entries[0])
            return await self._journal.latest_or_read()

    async def _answer(self, opened: SelectorOpened, state: FlowState, about: About) -> str:
        """Start or resume the selector's only turn, and return its answer.

        Raises: InvalidEntry when the turn ended without an answer.
        """
        there = await self._store.state(opened.session)
        if there.open_turn is not None or not there.info.turns:
            running = await self._running(opened, about)
            flow = state.graph.name or state.run.flow_id
            message = selection_message(opened, flow, about.node, about.document)
            signals = self._signals(opened)
            try:
                if there.open_turn is None:
                    first = partial(_check_first_turn, there.head)
                    await running.new_turn(user(message), (), signals, first)
                else:
                    await running.lost_turn(signals)
            except (TurnOpen, InvalidTransition):
                # Another process began it and died, or has just ended it.
                if (await self._store.state(opened.session)).open_turn is not None:
                    with suppress(InvalidTransition):  # or ends it during this check
                        await running.lost_turn(self._signals(opened))
            except StoreError:
                raise
            except PerdureError as error:
                raise ConfigError(
                    f"no model could choose what {opened.role} works with: {error}"
                ) from error
            finally:
                del self._at_work[opened.session]
        return _answer_in(await self._store.entries(opened.session))

    def _signals(self, opened: SelectorOpened) -> Signals:
        """Return the signals of a new or resumed turn; a stop might already be requested."""
        signals = self._at_work[opened.session] = Signals()
        known = self._journal.latest
        if known is not None and opened.role in known.stopping:
            signals.stopping.ask()
        return signals

    def stop(self, session: StreamId) -> None:
        """End the turn of a selector if the turn runs in this process."""
        if session in self._at_work:
            self._at_work[session].stopping.ask()

    async def _running(self, opened: SelectorOpened, about: About) -> SessionTurns:
        """Return the object that runs a selector's turn.

        Raises: InvalidEntry if the selector's session was erased.
        """
        notes = await self._store.notes(opened.session, (SessionStarted.kind,))
        started = body_of(notes[0]) if notes and not notes[0].is_erased else None
        if not isinstance(started, SessionStarted):
            raise invalid_answer("its session was erased")
        agent = agent_of(started.agent or {}, ToolRegistry(()))
        return self._host.running(
            opened.session,
            agent,
            about.place,
            prompt=started.system_prompt,
            # Do not ask to raise the budget in a hidden session.
            budget=msgspec.structs.replace(self._host.budget_of(agent), on_exceed="fail"),
        )


def selector_agent(agent: Agent) -> Agent:
    """Return a selector for the role of `agent`: the same model, no tools, one turn."""
    return msgspec.structs.replace(
        agent.with_tools(()),
        id=f"{agent.id.replace('_', '-')}-selector",  # an instance, `dev_2`, has one too
        instructions=INSTRUCTIONS,
        mcp_servers=(),
        on_interrupt="retry",
        on_exceed="fail",
        limits=Limits(max_turns=1),
    )


async def _check_first_turn(seen: int, head: int) -> None:
    """Raises: InvalidTransition when another process has run the turn since the seq `seen`."""
    if head != seen:
        raise InvalidTransition("begun", "begin the turn of a selector")


def _answer_in(log: list[Entry]) -> str:
    """Return the answer of the first turn in `log`.

    Raises: InvalidEntry if the turn has no answer.
    """
    said = AnswerText()
    for entry in (each for each in log if not each.is_erased):
        if entry.message is not None:
            said = said.then(entry.message)
        if entry.kind != TurnFinished.kind:
            continue
        finished = body_of(entry)
        assert isinstance(finished, TurnFinished)
        if finished.end == "stop":
            return said.text
        told = f": {finished.error}" if finished.error else ""
        raise invalid_answer(f"its turn ended as {finished.end}{told}")
    raise invalid_answer("its turn has no end")
