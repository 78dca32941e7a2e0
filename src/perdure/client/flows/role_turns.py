"""Run the roles of one flow: each role in a session of its own, with an agent of the runtime.

A role instance has one session for all its nodes. The agent of a role instance is the runtime's
agent with the id of the role instance, or with the id of its base role. The flow's configuration of
the role takes precedence over the agent's settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import msgspec

from perdure.client.agents.agent import Agent, agent_of
from perdure.client.agents.delegation.restriction import local_agent, resumed_agent
from perdure.client.agents.runtime_services import Host
from perdure.client.agents.turn_config import InFlow
from perdure.client.conversation.agent_binding import tool_names
from perdure.client.conversation.authority import authority_of
from perdure.client.conversation.workspace import Workspace, in_folder, kept_workspace
from perdure.client.flows.consent import consent_judge
from perdure.client.flows.role_setup import Equipment, skills_of, unconfigured_error, undecided_for
from perdure.client.flows.selectors import About, Selectors
from perdure.client.flows.summary_frames import SummaryFrames
from perdure.client.flows.workflow_guard import guard_workflow
from perdure.client.inbox.staged_handoff import approved_texts
from perdure.engine.flows.answer_text import AnswerText, said_in
from perdure.engine.flows.files.contracts import contracts
from perdure.engine.flows.files.record import RecordFolder
from perdure.engine.flows.files.required_readings import Library
from perdure.engine.flows.files.skills import SkillShelf
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.lost_roles import require_there
from perdure.engine.flows.node_turn import NodeClaimLost
from perdure.engine.flows.prompts.bundle import context_bundle
from perdure.engine.flows.prompts.entry import RequiredText, entry_message
from perdure.engine.flows.prompts.reflection import read_findings, reflection_message
from perdure.engine.flows.rules.improvement import RoleWork
from perdure.engine.flows.rules.parts import running_parts
from perdure.engine.flows.rules.people import sessions_to_stop
from perdure.engine.flows.rules.ready_nodes import Work, runnable
from perdure.engine.flows.selection import is_configuring
from perdure.engine.summaries import compact
from perdure.engine.turns.co_commit import CommitParticipant
from perdure.engine.turns.recovery import give_up, interrupt
from perdure.engine.turns.session_turns import SessionTurns, Signals
from perdure.errors import (
    ConfigError,
    InvalidTransition,
    McpUnavailable,
    SessionExists,
    SessionNotFound,
    TurnOpen,
)
from perdure.session.codec import new_side
from perdure.session.entries import Entry
from perdure.session.flows.graph import base_role
from perdure.session.flows.run import ConsentState, FlowState, RoleConfiguration
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.ledger import InterruptPolicy
from perdure.session.messages import MESSAGE, user
from perdure.session.notes import AgentBound, SessionStarted
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore, append_to

Setup = tuple[str, RoleConfiguration | None]
"""The workspace folder and the configuration of a role.

The role's turns depend on this folder and configuration, and on the session's first entry.
"""

LATEST = 8
"""How many of the newest messages are searched for the parts of one answer."""

MOST_TURNS = 100_000
"""Maximum number of turns in a role's session; high, because the flow limits the session."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """The object that runs a session's turns, and its configuration; reused between turns."""

    setup: Setup
    running: SessionTurns


class RoleTurns:
    """Implements ``Roles`` (`engine.flows.roles`) for the role instances of a flow."""

    def __init__(
        self,
        host: Host,
        equipment: Equipment,
        journal: Journal,
        record: RecordFolder,
        library: Library,
    ) -> None:
        self._host = host
        self._equipment = equipment
        self._store = host.store.backend
        self._clock = host.store.outside.clock
        self._journal = journal
        self._record = record
        self._library = library
        self._shelf = SkillShelf(library.project)
        self._selectors = Selectors(host, journal)
        self._frames = SummaryFrames(self._store, journal, record, library)
        self._at_work: dict[StreamId, Signals] = {}
        self._ready: dict[StreamId, _Ready] = {}

    async def session(self, state: FlowState, role: str) -> StreamId:
        """See ``Roles``."""
        id = session_of(state, role)
        if role in state.sessions:
            await require_there(self._store, id)
        state = await self._configured(state, role)
        if role in state.sessions:
            return id
        place = in_folder(Workspace(), state.run.workspace_root)
        agent = await self._equipped(role, place)
        prompt = await self._bundle(state, role, agent.system_prompt(place))
        await self._create(state, role, agent, place, prompt)
        return id

    async def entry_message(self, state: FlowState, work: Work) -> str:
        """See ``Roles``."""
        node, receiving = work.node, state.run.receiving_handoff
        is_first = node.id not in state.run.visited and work.text is None
        names = node.required_readings if is_first else ()
        paths = [path for key in work.delivered for path in receiving.get(key, ())]

        def read() -> tuple[dict[str, str], tuple[RequiredText, ...]]:
            return self._record.texts(paths), self._library.by_name(names, f"node {node.id!r}")

        texts, readings = await asyncio.to_thread(read) if paths or names else ({}, ())
        texts |= await approved_texts(self._store, state, work.delivered)
        return entry_message(
            state,
            work,
            at=self._clock.now_ms(),
            contracts=contracts(),
            artifacts=texts,
            readings=readings,
        )

    async def reflection_message(self, state: FlowState, work: RoleWork) -> str:
        """See ``Roles``."""
        texts = await asyncio.to_thread(self._record.texts, read_findings(state, work))
        return reflection_message(state, work, contracts(), texts)

    async def is_open(self, session: StreamId) -> bool:
        """See ``Roles``."""
        await require_there(self._store, session)
        return (await self._store.state(session)).open_turn is not None

    async def end_foreign_turn(self, session: StreamId) -> bool:
        """See ``Roles``."""
        is_here = session in self._at_work
        return not is_here and await has_ended_foreign_turn(self._host, session)

    async def last_answer(self, session: StreamId) -> AnswerText:
        """See ``Roles``."""
        leaf = (await self._store.state(session)).leaf
        entries = await self._store.branch(session, leaf, limit=LATEST, kind=MESSAGE)
        return said_in(message for entry in entries if (message := entry.message) is not None)

    async def begin(self, session: StreamId, message: str, companion: CommitParticipant) -> None:
        """See ``Roles``.

        Begin a turn; first close an open turn that does not belong to the flow.
        """
        running = await self._running(session)
        try:
            with self._working(session, companion) as signals:
                await running.new_turn(user(message), (), signals)
        except TurnOpen:
            state = await self._journal.state()
            if any(session_of(state, part.role) == session for part in running_parts(state)):
                raise NodeClaimLost(session) from None  # recover it instead of closing it
            await give_up(running.environment.claim)
            raise NodeClaimLost(session) from None  # the next pass begins it, if it still exists

    async def recover(self, session: StreamId, companion: CommitParticipant) -> None:
        """See ``Roles``."""
        running = await self._running(session)
        with self._working(session, companion) as signals:
            try:
                await running.lost_turn(signals)
            except InvalidTransition as error:
                if error.phase != "idle":  # its owner has just ended it
                    raise

    async def stop(self, session: StreamId) -> None:
        """See ``Roles``."""
        self._selectors.stop(session)
        if session in self._at_work:
            self._at_work[session].stopping.ask()

    # ------------------------------------------------------------ inside

    async def _configured(self, state: FlowState, role: str) -> FlowState:
        """Return the state of the flow after `role` is configured.

        Raises: Unconfigured if a person must choose; ConfigError if the role has no agent, or if a
        skill cannot be read; LeaseHeld if another process runs a selector.
        """
        while is_configuring(state):
            open = await asyncio.to_thread(
                undecided_for, state, role, self._equipment.offered, self._shelf
            )
            if open.is_for_selector:
                about = await asyncio.to_thread(self._about, state, role)
                state = await self._selectors.step(state, role, open, about)
            elif open.is_for_person:
                raise unconfigured_error(state, role, open)
            else:
                break
        return state

    def _about(self, state: FlowState, role: str) -> About:
        """Return the data about `role` for a selector. Blocks the thread. Raises: ConfigError."""
        node = next((work.node for work in runnable(state) if work.node.role == role), None)
        name = f"role {base_role(role)}"
        own = [each.text for each in self._library.of_role(base_role(role)) if each.name == name]
        place = in_folder(Workspace(), state.run.workspace_root)
        return About(self._agent(role), place, node, own[0] if own else None)

    async def _create(
        self, state: FlowState, role: str, agent: Agent, place: Workspace, prompt: str | None
    ) -> None:
        """Create the session of `role`, unless it exists."""
        header = StreamHeader(
            id=session_of(state, role),
            created_at=self._clock.now_ms(),
            origin="role",
            cwd=place.working_dir,
            title=f"{role}: {state.run.record_name or state.run.flow_id}",
            parent=state.run.flow_id,
        )
        started = SessionStarted(agent.snapshot(), msgspec.to_builtins(place), prompt)
        write = Write(stream=header.id, create=header, entries=(new_side(started),))
        with suppress(SessionExists):
            await self._store.commit(Commit(writes=(write,), at=header.created_at))

    @contextmanager
    def _working(self, session: StreamId, companion: CommitParticipant) -> Generator[Signals]:
        signals = Signals(companion)
        self._at_work[session] = signals
        known = self._journal.latest
        if known is not None and session in sessions_to_stop(known):
            signals.stopping.ask()  # of an earlier or concurrent process
        try:
            yield signals
        finally:
            del self._at_work[session]

    async def _equipped(
        self, role: str, place: Workspace, wanted: Collection[str] | None = None
    ) -> Agent:
        """Return the agent of `role` with the tools of its MCP servers.

        Raises: ConfigError if the role has no agent, or if one of the MCP servers cannot be used.
        """
        agent = self._agent(role)
        try:
            return await self._host.servers.equip(agent, place.working_dir, wanted)
        except McpUnavailable as error:
            raise ConfigError(str(error)) from error

    async def _running(self, session: StreamId) -> SessionTurns:
        """Return the object that runs turns of `session`, with its role's current configuration.

        Raises: ConfigError for configured models or tools that do not exist.
        """
        state = await self._journal.latest_or_read()
        role = session.rpartition("__")[2]
        setup = (state.run.workspace_root, state.roles.get(role))
        ready = self._ready.get(session)
        if ready is not None and ready.setup == setup:
            return ready.running
        running = await self._made_ready(session, role, state)
        # The offers of MCP servers may change between turns.
        if not self._agent(role).mcp_servers:
            self._ready[session] = _Ready(setup, running)
        return running

    async def _made_ready(self, session: StreamId, role: str, state: FlowState) -> SessionTurns:
        agent, place, prompt = await self._as_begun(session, role, state)
        judge = consent_judge(agent.tools_in(place), agent.permissions, self._consent)
        judge = guard_workflow(judge, lambda: self._journal.latest)
        flow = InFlow(judge, self._record.folder, partial(self._frames.of, role))
        return self._host.running(session, agent, place, prompt=prompt, flow=flow)

    async def compact(
        self, session: StreamId, focus: str | None, model: str | None
    ) -> Entry | None:
        """Compact the session of a role. See `Flow.compact`."""
        running = await self._running(session)
        return await compact(running.environment, running.terms, focus, model)

    async def _as_begun(
        self, session: StreamId, role: str, state: FlowState
    ) -> tuple[Agent, Workspace, str | None]:
        """Return the agent, workspace and prompt that `session` now uses."""
        agent, place, told = await binding_of_role(
            self._store,
            session,
            state.run.workspace_root,
            partial(self._equipped, role),
            partial(self._bundle, state, role),
            at=self._clock.now_ms(),
        )
        if state.settings is not None and state.document is None:
            # A resume may have replaced the model of the flow.
            agent = msgspec.structs.replace(agent, model=self._agent(role).model)
        return apply_configuration(agent, state.roles.get(role)), place, told

    def _consent(self) -> ConsentState:
        known = self._journal.latest
        return ConsentState() if known is None else known.consent

    def _agent(self, role: str) -> Agent:
        """Return the agent of a role instance, adapted to sessions of roles.

        Raises: ConfigError when neither the role instance nor its base role has an agent.
        """
        return as_role(self._equipment.required_agent(role), self._equipment.on_interrupt)

    async def _bundle(self, state: FlowState, role: str, instructions: str | None) -> str:
        of = base_role(role)
        readings = await asyncio.to_thread(self._library.of_role, of)
        skills = await asyncio.to_thread(skills_of, state, role, self._shelf)
        folder = state.run.record_folder_path
        return context_bundle(role, folder, contracts(), readings, instructions, skills=skills)


def session_of(state: FlowState, role: str) -> StreamId:
    """Return the session id of a role instance."""
    return StreamId(f"{state.run.flow_id}__{role}")


def as_role(agent: Agent, on_interrupt: InterruptPolicy) -> Agent:
    """Return `agent` adapted for a role of a flow, with the compaction strategy "node"."""
    return msgspec.structs.replace(
        agent,
        on_interrupt=on_interrupt if agent.on_interrupt == "retry" else agent.on_interrupt,
        compaction=msgspec.structs.replace(agent.compaction, strategy="node"),
        limits=msgspec.structs.replace(agent.limits, max_turns=MOST_TURNS),
    )


def apply_configuration(agent: Agent, chosen: RoleConfiguration | None) -> Agent:
    """Return `agent` with the model, skills and tools chosen for its role.

    Raises: ConfigError for a tool that the agent lacks.
    """
    if chosen is None:
        return agent
    if chosen.tools is not None:
        agent = agent.with_tools(agent.registry.restrict(chosen.tools).tools)
    if chosen.model is not None:
        agent = msgspec.structs.replace(agent, model=chosen.model)
    return agent


Equipped = Callable[[Workspace, Collection[str] | None], Awaitable[Agent]]
"""Returns the role's current agent in a workspace, with the named MCP tools (None: all)."""

Prompt = Callable[[str | None], Awaitable[str]]
"""Returns the prompt of a role, given the instructions of its agent."""


async def binding_of_role(
    store: SessionStore,
    session: StreamId,
    root: str,
    equipped: Equipped,
    prompt: Prompt,
    *,
    at: int,
) -> tuple[Agent, Workspace, str | None]:
    """Return the agent, workspace and prompt in force in `session`, whose workspace is `root`.

    Durable: if no agent is in force, the current agent, workspace and prompt are recorded.
    Units: `at` is Unix milliseconds.
    Raises: ConfigError.
    """
    if not await store.notes(session, (SessionStarted.kind,)):
        raise ConfigError(f"session {session!r} is none of a role")
    known = await authority_of(store, session)
    snapshot = None if known.bound is None else known.bound.agent
    if known.bound is not None and known.withheld is None:
        place = kept_workspace(known.bound.workspace)
        place = msgspec.structs.replace(place, working_dir=root)
        today = await equipped(place, tool_names(snapshot or {}))
        kept = agent_of(snapshot or {}, today.registry)
        return resumed_agent(kept, today), place, known.bound.system_prompt
    place = in_folder(Workspace(), root)
    agent = local_agent(await equipped(place, None), snapshot)
    told = await prompt(agent.system_prompt(place))
    bound = AgentBound(agent.snapshot(), msgspec.to_builtins(place), told)
    await append_to(store, session, new_side(bound), at=at)
    return agent, place, told


async def has_ended_foreign_turn(host: Host, session: StreamId) -> bool:
    """Interrupt the open turn if it is imported or untrusted; return whether it was interrupted.

    Raises: LeaseHeld while a process runs the turn.
    """
    store = host.store.backend
    try:
        is_open = (await store.state(session)).open_turn is not None
    except SessionNotFound:
        return False
    if not is_open or (await authority_of(store, session)).withheld is None:
        return False
    await interrupt(host.claim(session))
    return True
