"""The handle of one flow: read its state, record decisions, run it.

A decision applies to the newest state of the flow. A flow rejects decisions for which it does not
wait, so several processes can record decisions at the same time. Any process can run the flow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from perdure.client.amounts import amount
from perdure.client.conversation.agent_binding import tool_names
from perdure.client.conversation.authority import authority_of
from perdure.client.flows.execution import Execution, no_session
from perdure.client.flows.feeds import RoleFeed
from perdure.client.flows.locations import shelf_of
from perdure.client.flows.role_setup import Equipment, agent_for
from perdure.client.flows.waits import waiting_in, workers_of
from perdure.client.inbox.consent import COMMANDS
from perdure.client.inbox.grants import change_consent
from perdure.client.inbox.staged_handoff import require_as_staged
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.client.watch import Watch, watch_session
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.lost_roles import lost_roles
from perdure.engine.flows.rules import people
from perdure.engine.flows.rules.flow_waits import FlowWait, waits_in
from perdure.errors import ConfigError
from perdure.session.argument_checks import takes_all_declared
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.flows.kinds import ConsentChanged, ConsentMode, GrantedTool, ImprovementMode
from perdure.session.flows.run import FlowRun, FlowState
from perdure.session.ids import StreamId
from perdure.session.notes import SessionStarted, SideBody
from perdure.stores.lazy_session import StoredSession
from perdure.stores.protocol import EMPTY
from perdure.stores.session_store import SessionStore
from perdure.tools.commands import NeedsShell, canonical, is_allowed, words_of
from perdure.tools.permissions import Permissions


@takes_all_declared
class Flow:
    """One flow, as returned by `Flows.start` and `Flows.open`.

    `by` is the name of the person who decides; it is stored with each decision.
    """

    def __init__(self, store: Store, journal: Journal, execution: Execution) -> None:
        self._store = store
        self._journal = journal
        self._execution = execution
        self._equipment = execution.equipment

    def __repr__(self) -> str:
        return f"<Flow {self.id!r}>"

    @property
    def id(self) -> StreamId:
        """The flow's id."""
        return self._journal.flow

    async def state(self) -> FlowState:
        """Return the current state, with the graph, the sessions and the settings of roles.

        Shape: ``perdure flow show --json`` prints `state.run`. The method `waiting` returns what
        the flow waits for.
        """
        return await self._journal.state()

    async def run(self, *, until_completed: bool = False) -> FlowRun:
        """Run the flow until it is completed or needs a person.

        With `until_completed`, the call continues after each answer from any process, and returns
        when the flow is completed. Several processes can run a flow together. Cancelling the task
        suspends running turns; the next run of the flow, in any process, continues them. With
        ``Runtime(runner="workers")``, workers that have the agents and folders of the flow run the
        flow until it is completed, even if this task is cancelled.
        Raises: StoreError if the store fails; FlowRefusal if workers cannot run the flow.
        """
        return (await self._execution.run(self._journal, until_completed=until_completed)).run

    async def compact(
        self, role: str, focus: str | None = None, *, model: str | None = None
    ) -> Entry | None:
        """Summarise the work of a role instance at its node, to shorten the role's later contexts.

        The role, node, edges, contract and inputs remain in the context unchanged. `focus` names
        details that the summary must contain. `model` (default: the role's model) writes only this
        summary; the role's turns keep their model.
        Shape: the entry of the compaction; None when no message can be summarised.
        Raises: FlowRefusal if the role has not begun, or has an open turn; LeaseHeld if another
        process runs the role; WrongArgument if `model` is not ``provider:name``. Also raises
        ConfigError if the provider is unknown or the role has no agent, and TurnFailed if the model
        returned no usable summary.
        """
        self._equipment.check_models(() if model is None else (model,), "model")
        return await self._execution.compact(self._journal, role, focus, model)

    async def workers(self) -> tuple[str, ...]:
        """Return the lease owners of the processes that now run a role of the flow.

        Dead processes and expired leases are left out.
        """
        return await workers_of(self._store, await self.state())

    async def waiting(self) -> tuple[FlowWait, ...]:
        """List what waits for a person in the flow, and the open questions of its roles.

        Shape: each item states how to answer it.
        """
        return await waiting_in(self._store, await self.state())

    async def reply(self, text: str, to: str | None = None, *, by: str = "user") -> FlowState:
        """Send `text` to the waiting node or role instance `to` (default: the only one that waits).

        Durable: the text is stored when this returns; the process that runs the flow delivers it.
        Raises: FlowRefusal when `to` does not wait, already has a reply, or was erased.
        """
        lost = await lost_roles(self._store.backend, await self.state())
        return await self._decide(lambda state: people.reply(state, text, by, to, lost))

    async def stop(self, target: str, *, by: str = "user") -> FlowState:
        """Stop the turn of a node or role instance; the node or role then waits for a reply.

        Raises: FlowRefusal when the node or role is not running.
        """
        return await self._decide(lambda state: people.stop(state, by, target))

    async def approve(self, node: str | None = None, *, by: str = "user") -> FlowState:
        """Approve the staged handoff of `node`.

        Raises: FlowRefusal if no handoff waits, if several handoffs wait and `node` is not given,
        or if a file of the handoff has changed. A handoff whose files have changed is staged again.
        """
        clock = self._store.outside.clock
        await require_as_staged(self._store.backend, self._journal, clock, node)
        return await self._decide(lambda state: people.approve(state, by, node))

    async def decline(
        self, node: str | None = None, note: str | None = None, *, by: str = "user"
    ) -> FlowState:
        """Discard the staged handoff of `node`; the node then waits for a reply.

        Raises: the errors of `approve`.
        """
        return await self._decide(lambda state: people.decline(state, by, node, note))

    async def consent(
        self,
        mode: ConsentMode | None = None,
        *,
        command: str | Sequence[str] | None = None,
        tool: GrantedTool = "bash",
        is_revoked: bool = False,
        by: str = "user",
    ) -> FlowState:
        """Change the flow's consent: its `mode`, or its grants of exact commands and MCP tools.

        The call grants or revokes every `command`, or none of them if one is rejected.
        If the new consent allows the call of an open question, the question is answered and its
        turn continues.
        Raises: ValueError if no change is given, or if `is_revoked` is given without `command`;
        FlowRefusal if the flow is completed. Also raises ConfigError if no role can use a command
        or tool, if a grant to revoke does not exist, or if a command or tool is granted in the mode
        "no-access", in which grants have no effect.
        """
        given = () if command is None else (command,) if isinstance(command, str) else command
        if not given and (mode is None or is_revoked):
            raise ValueError("name a mode, or the command to allow or to revoke")
        state, store = await self.state(), self._store
        people.change_consent(state, by)  # a completed flow is refused first
        names: list[str] = []
        for name in given:
            if is_revoked:
                names.append(revoked_name(state, tool, name))
                continue
            names.append(granted_name(tool, name))
            await check_grant(store.backend, self._equipment, state, tool, names[-1])
            check_in_force(state, mode)

        def decide(state: FlowState) -> list[ConsentChanged]:
            changes = [] if mode is None else [people.change_consent(state, by, mode=mode)]
            return changes + [
                people.change_consent(state, by, tool=tool, command=name, is_revoked=is_revoked)
                for name in dict.fromkeys(names)
            ]

        clock = store.outside.clock
        return await change_consent(store.backend, self._journal, clock, decide)

    async def configure(
        self,
        role: str,
        *,
        model: str | None = None,
        skills: Sequence[str] | None = None,
        tools: Sequence[str] | None = None,
        by: str = "user",
    ) -> FlowState:
        """Set the model, skills and tools of a role instance for later turns.

        If an argument is None, the setting of the role's agent applies.

        Raises: FlowRefusal if the workflow does not have the role, or if skills are given after the
        role has begun; WrongArgument if `model` is not ``provider:name``. Also raises ConfigError
        for a skill that the project lacks, a tool that the role lacks, and a model of an unknown
        provider that was not offered.
        """
        chosen = None if skills is None else tuple(skills)
        named = None if tools is None else tuple(tools)
        state = await self.state()
        if chosen:
            shelf = shelf_of(state)
            await asyncio.to_thread(lambda: [shelf.skill(name) for name in chosen])
        if model is not None and model not in _offered(state, role):
            self._equipment.check_models((model,), "model")
        if named and role in state.graph.roles and state.document is None:
            self._equipment.check_tools(role, named, await self._tools_of(state, role))
        return await self._decide(
            lambda state: people.configure(
                state, role, model=model, skills=chosen, tools=named, by=by
            )
        )

    async def _tools_of(self, state: FlowState, role: str) -> tuple[str, ...] | None:
        """Return the names of the tools that `role` had when it began; None before it begins."""
        if role not in state.sessions:
            return None
        notes = await self._store.backend.notes(state.sessions[role], (SessionStarted.kind,))
        started = body_of(notes[0]) if notes else None
        return tool_names(started.agent or {}) if isinstance(started, SessionStarted) else None

    async def choose_improvement(self, mode: ImprovementMode, *, by: str = "user") -> FlowState:
        """Choose the mode of the improvement phase after the work is closed.

        Raises: FlowRefusal when the flow does not wait for the decision.
        """
        return await self._decide(lambda state: people.choose_improvement(state, mode, by))

    async def decide_feedback(self, *, is_granted: bool, by: str = "user") -> FlowState:
        """Decide whether the roles write feedback after the improvement phase.

        Raises: FlowRefusal when the flow does not wait for the decision.
        """
        return await self._decide(
            lambda state: people.decide_feedback(state, by, is_granted=is_granted)
        )

    async def session(self, role: str) -> Session:
        """Return the session of a role instance.

        Raises: FlowRefusal when the role has not begun.
        """
        state = await self.state()
        if role not in state.sessions:
            raise no_session(state, role)
        session, agent = await self._store.open(state.sessions[role]), self._equipment.agent(role)
        return session if agent is None or agent.hooks is None else session.asking(agent.hooks)

    def feed(self, role: str, after: str | None = None) -> RoleFeed:
        """Return the feed of a role instance: thoughts, messages, tool calls, handoffs.

        The feed begins at the start of the role, or after `RoleFeed.cursor` of an earlier feed of
        this role.
        Raises: WrongArgument for a cursor of another role.
        """
        return RoleFeed(self._store.backend, self.id, role, after)

    def watch(self, after: int = -1) -> Watch:
        """Watch the flow's own events after seq `after` (default: all), and continue with new ones.

        The messages of the flow's roles are in the events of the roles' sessions.
        Raises: the errors of `Session.watch`.
        """
        amount("after", after, least=EMPTY)
        return watch_session(StoredSession(self._store.backend), self._store.bus, self.id, after)

    async def _decide(self, decide: Callable[[FlowState], SideBody]) -> FlowState:
        return await self._journal.append(lambda state: (decide(state),))


def _offered(state: FlowState, role: str) -> Iterator[str]:
    """Return the models offered for `role` if the role waits for a choice."""
    for waiting in waits_in(state):
        if waiting.role == role and waiting.offers is not None:
            yield from waiting.offers.models


async def check_grant(
    store: SessionStore, equipment: Equipment, state: FlowState, tool: GrantedTool, name: str
) -> None:
    """Reject a grant of the exact command or tool `name` if no role of the flow can use it.

    If the agent of a role is unknown in this process, the role is assumed to be able to use `name`.
    Raises: ConfigError.
    """
    argv = words_of(name) if tool == "bash" else ()
    for role in state.graph.roles:
        snapshot = await _snapshot(store, equipment, state, role)
        if snapshot is None or _is_able(snapshot, argv, name):
            return
    if tool == "mcp":
        raise ConfigError(f"no role of this flow has a tool {name!r}")
    raise ConfigError(
        f"no role of this flow may run {name!r}: their agents have no {COMMANDS}, or allow other "
        "commands only"
    )


def granted_name(tool: GrantedTool, name: str) -> str:
    """Return `name` in the form in which a grant stores it.

    A command gets canonical quotes. The name of a tool stays unchanged. Raises: ConfigError for an
    empty name, and for a command that needs a shell.
    """
    if not name.strip():
        raise ConfigError(f"the {'command' if tool == 'bash' else 'tool'} to allow is empty")
    if tool == "mcp":
        return name
    try:
        return canonical(words_of(name))
    except NeedsShell as error:
        told = f"{name!r} needs a shell, and commands run without one: {error}"
        raise ConfigError(told) from None


def check_in_force(state: FlowState, mode: ConsentMode | None) -> None:
    """Reject a grant that has no effect in the flow's consent mode, or in the new `mode`.

    Raises: ConfigError.
    """
    if (mode or state.consent.mode) == "no-access":
        raise ConfigError(
            "the consent is no-access, in which allowed commands and tools still ask; change it "
            "to partial-access in the same step"
        )


def revoked_name(state: FlowState, tool: GrantedTool, name: str) -> str:
    """Return the stored grant that matches `name`, to revoke it.

    Raises: ConfigError when `name` was not granted.
    """
    found: set[str] = set()
    for consent in (state.run.consent_state, state.consent):
        found.update(consent.bash.allowed_commands if tool == "bash" else consent.mcp.allowed_tools)
    if name not in found:
        name = granted_name(tool, name)
    if name not in found:
        known = ", ".join(repr(each) for each in sorted(found)) or "nothing"
        raise ConfigError(f"{name!r} is not allowed, so it cannot be revoked; allowed: {known}")
    return name


async def _snapshot(
    store: SessionStore, equipment: Equipment, state: FlowState, role: str
) -> Mapping[str, object] | None:
    """Return the agent of `role` as a snapshot; None if it is unknown or has MCP servers."""
    agent = agent_for(equipment.agents, role)
    if agent is not None and agent.mcp_servers:
        return None
    session = state.sessions.get(role)
    if session is not None:
        known = await authority_of(store, session)
        if known.bound is not None and known.withheld is None:
            return known.bound.agent
    return None if agent is None else agent.snapshot()


def _is_able(snapshot: Mapping[str, object], argv: tuple[str, ...], name: str) -> bool:
    names = tool_names(snapshot)
    if not argv:
        return name in names
    allowed = msgspec.convert(snapshot.get("permissions", {}), Permissions)
    globs = allowed.allowed_command_globs
    return COMMANDS in names and is_allowed(argv, allowed.allowed_commands, globs)
