"""Starts and resumes sessions for chats, and defines the errors that can occur."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import msgspec

from perdure.apps.chat.permissions import TypedPermissions
from perdure.apps.chat.turn_view import remark_moved, remark_unpriced
from perdure.apps.settings.layers import Configuration
from perdure.apps.terminal.output import remark
from perdure.apps.terminal.text import safe
from perdure.apps.wiring import AGENT, builtin_tools, chat_agent, model_choices, models
from perdure.bounds.limits import require_within
from perdure.client.agents.agent import Agent, agent_of
from perdure.client.agents.chat import Chat
from perdure.client.agents.delegation.restriction import is_within, within
from perdure.client.agents.message_secrets import message_of
from perdure.client.agents.runtime import Runtime
from perdure.client.agents.turn import Turn
from perdure.client.conversation.agent_binding import switched_in
from perdure.client.conversation.authority import Authority, authority_of
from perdure.client.conversation.role_sessions import require_no_role
from perdure.client.conversation.workspace import Workspace, kept_workspace
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.context.compaction import plan_compaction
from perdure.engine.turns.config import CompactionSettings
from perdure.errors import ConfigError, TurnOpen
from perdure.models.catalogue import require_model_name
from perdure.models.prices import Price
from perdure.models.router import ModelRouter
from perdure.models.scenario import Scenario
from perdure.models.scripted import ScriptedModel
from perdure.secrets.references import unfilled_in
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo
from perdure.session.ledger import ModelCalled
from perdure.tools.builtin.catalogue import BUILTIN
from perdure.tools.mcp.servers import McpServer
from perdure.tools.permissions import Permissions
from perdure.tools.registry import ToolRegistry


class ModelNotHere(ConfigError):
    """The session needs a model that cannot be called here.

    `interrupted` is the session whose turn needs the model; `command` can choose another model.
    """

    code: ClassVar[str] = "model_not_here"

    def __init__(
        self,
        model: str,
        reason: str,
        interrupted: str | None = None,
        command: str = "perdure chat",
    ) -> None:
        takes_scenario = model.startswith("scripted:") and command == "perdure chat"
        named = "name the file of its scenario with --scenario FILE, or " if takes_scenario else ""
        advice = f"choose another with `{command} -m MODEL` (-m scripted:echo works offline)"
        if interrupted is not None:
            advice = (
                f"end the interrupted turn, which keeps its model, with `perdure sessions abandon "
                f"{interrupted}`, then `perdure chat --session {interrupted} -m MODEL`"
            )
        super().__init__(f"cannot call the model {model}: {reason}; {named}{advice}")
        self.model = model
        self.reason = reason
        self.interrupted = interrupted


class ModelMissing(ConfigError):
    """A session needs a model, and none was chosen."""

    code: ClassVar[str] = "model_missing"

    def __init__(self, what: str, choices: str) -> None:
        super().__init__(
            f"{what} needs a model: name one with -m PROVIDER:NAME, in $PERDURE_MODEL, or as "
            f"chat.model in your settings; there are {choices}"
        )
        self.choices = choices


@dataclass(frozen=True, slots=True)
class Cast:
    """The agent of new chats, the agents to resume or invoke, model prices, and MCP servers.

    `lowered` lists the ids of the agents from files of the project: in a new session, such an agent
    gets at most the permissions of new chats. A resumed session keeps the permissions with which it
    was started. If `is_model_named` is false, no model was chosen for `agent`, so `agent` can only
    resume sessions that have a model.
    """

    agent: Agent
    others: tuple[Agent, ...] = ()
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    servers: tuple[McpServer, ...] = ()
    lowered: frozenset[str] = frozenset()
    is_model_named: bool = True


@dataclass(frozen=True, slots=True)
class Resumed:
    """A resumed session; `turn` is its interrupted turn, which adds entries after `head`."""

    chat: Chat
    turn: Turn | None
    head: int


class AnswerOptions:
    """The models, agents and permissions for chats in one store; starts and resumes these chats.

    `cast` contains the agents of the settings and the command line; None means the default agent.
    """

    def __init__(
        self,
        store: Store,
        *,
        model: str | None,
        scenario: Scenario | None,
        cast: Cast | None = None,
        typed: TypedPermissions | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.store = store
        self._variables = dict(variables or {})
        self._typed = typed or TypedPermissions()
        self._router: ModelRouter = models(scenario)
        # of the command line or of /model
        self.requested_model = model or (
            f"scripted:{scenario.name}" if scenario is not None else None
        )
        chosen = cast or _configured_cast(self.requested_model)
        self.agent: Agent = chosen.agent
        self._is_model_named = chosen.is_model_named or self.requested_model is not None
        self._lowered = chosen.lowered
        self._kept: dict[StreamId, Permissions] = {}  # of sessions that were permitted here
        if self.requested_model is not None:
            self.agent = msgspec.structs.replace(self.agent, model=self.requested_model)
        known = [each for each in chosen.others if each.id != self.agent.id]
        self.runtime = Runtime(
            store,
            [self.agent, *known],
            models=self._router,
            prices=chosen.prices,
            mcp_servers=chosen.servers,
        )

    async def begin(self, cwd: Path | None, said: str) -> Chat:
        """Start a session in `cwd` or the current folder; `said` will be its first message.

        Raises: ModelMissing if no model is chosen; ModelNotHere if it cannot be called here;
        LimitExceeded or SecretPasted if the session would reject the message. If an error is
        raised, no session is created.
        """
        self.require_choice()
        await self._require_loaded(self.agent.model)
        require_within("message_bytes", len(said.encode(errors="replace")), "the message")
        if self.agent.on_pasted == "refuse":
            message_of(said, "refuse")
        place = f"the instructions of agent {self.agent.id!r}"
        if warning := unfilled_in(self.agent.instructions, place):
            remark(safe(warning))
        workspace = Workspace(cwd, self._variables)
        chat = await self.runtime.start(self.agent, workspace=workspace)
        await remark_unpriced(self.runtime, self.agent, self.agent)
        return chat

    async def go_on(
        self,
        session: str,
        cwd: Path | None = None,
        *,
        at_most: Permissions | None = None,
        agent_id: str | None = None,
    ) -> Resumed:
        """Resume a session, and its interrupted turn if there is one.

        The session keeps its agent, tools and permissions. The command line can restrict the
        permissions; it can extend them only with a grant, which is recorded. `at_most` limits the
        agent's permissions; its default is the permissions that `permit` set. `cwd` and the
        variables change the workspace of the session. `cwd` also changes the folder that session
        lists print. If no agent is in force, for example in an imported session, the session gets
        the agent `agent_id`, or the agent of this command, and works in `cwd` or the current
        folder.
        Raises: SessionNotFound for an unknown id; ModelMissing if no model is chosen; ModelNotHere
        if the model cannot be called here; LeaseHeld if another process runs the session; TurnOpen
        if a turn is open and the call needs a grant, or another folder or variable; FlowRefusal if
        the flow that owns the session is not completed.
        """
        handle = await self.store.open(session)
        header = (await self.store.backend.state(handle.id)).header
        await require_no_role(self.store.backend, self.store.outside.clock, header, "resume")
        known = await authority_of(self.store.backend, handle.id)
        info = await handle.info()
        is_first = known.bound is None or known.withheld is not None
        if is_first and agent_id is None:
            self.require_choice("an imported session" if info.origin == "import" else "the session")
        cwd = cwd or _unnamed_folder(known, info)
        await self._require_next(handle)
        agent = await self._resuming_agent(handle.id, known, agent_id, at_most)
        place = Workspace(cwd, self._variables) if cwd or self._variables else None
        chat = await self.runtime.resume(handle.id, agent, workspace=place)
        is_granting = self._typed.is_any and agent is self.agent  # typed by the resuming user
        if is_granting and not is_within(agent.permissions, chat.agent.permissions):
            await self.runtime.grant(handle.id, agent, by=getpass.getuser())
            chat = await self.runtime.resume(handle.id, agent, workspace=place)
        remark_moved(self.store, chat, known.withheld, None if cwd else info.cwd, is_first=is_first)
        await remark_unpriced(self.runtime, chat.agent, agent)
        if chat.turn is not None:
            await chat.turn.started()
            if chat.turn.held is not None:
                raise chat.turn.held
        return Resumed(chat, chat.turn, handle.head)

    async def _resuming_agent(
        self, session: StreamId, known: Authority, agent_id: str | None, at_most: Permissions | None
    ) -> Agent:
        if at_most is not None:
            self._kept[session] = at_most
        at_most = self._kept.get(session)
        agent = self._agent_of(known, agent_id)
        if self._typed.is_any and known.withheld is None and known.bound is not None:
            agent = await self._as_typed(session, agent, at_most)
        if at_most is not None and not is_within(agent.permissions, at_most):
            allowed = within(agent.permissions, at_most)
            agent = msgspec.structs.replace(agent, permissions=allowed)
        return agent

    async def _as_typed(
        self, session: StreamId, agent: Agent, at_most: Permissions | None
    ) -> Agent:
        """Return `agent` with the command line's permissions; record a grant of wider ones."""
        allowed = self._typed.apply_to(agent.permissions)
        if at_most is not None:
            allowed = within(allowed, at_most)
        if agent.id != AGENT and not is_within(allowed, agent.permissions):
            raise ConfigError(
                f"what {agent.id} may do is in its agent file; --approve, --allow-command, "
                "--allow-domain and --scope can only narrow it"
            )
        return await self._permitted(session, agent, allowed)

    async def _permitted(
        self, session: StreamId | None, agent: Agent, allowed: Permissions
    ) -> Agent:
        """Return `agent` with the permissions `allowed`; record a grant of wider permissions."""
        if is_within(allowed, agent.permissions):
            return msgspec.structs.replace(agent, permissions=allowed)
        names = dict.fromkeys((*agent.registry.names, *(t.name for t in builtin_tools(allowed))))
        known = {tool.name: tool for tool in agent.registry.tools}
        tools = tuple(known.get(name) or BUILTIN[name] for name in names)
        agent = msgspec.structs.replace(agent.with_tools(tools), permissions=allowed)
        if session is not None:
            await self.runtime.grant(session, agent, by=getpass.getuser())
        return agent

    async def permit(self, chat: Chat | None, typed: TypedPermissions) -> Chat | None:
        """Change the permissions of `chat` (None: of the next session), and return the chat.

        Wider permissions are recorded as a grant. Raises: ConfigError if the permissions are wider
        and the agent is from a file; TurnOpen while a turn is open.
        """
        agent = self.agent if chat is None else chat.agent
        kept = agent.permissions
        lines = (*kept.allowed_commands, *kept.allowed_command_globs)
        allowed = kept if {*typed.commands} & {*lines} else typed.apply_to(kept)
        if agent.id != AGENT and not is_within(allowed, kept):
            raise ConfigError(
                f"what {agent.id} may do is in its agent file, and can only be narrowed"
            )
        session = None if chat is None else chat.id
        agent = await self._permitted(session, agent, allowed)
        if chat is None:
            self.agent = agent
            return None
        self._kept[chat.id] = agent.permissions
        return await self.runtime.resume(chat.id, agent)

    def _agent_of(self, known: Authority, named: str | None) -> Agent:
        """Return the agent for a resumed session, from its agent file or the stored snapshot."""
        if known.bound is None or known.withheld is not None:
            return self.agent if named is None else self.runtime.host.agent(named)
        snapshot = known.bound.agent or {}
        filed = self.runtime.host.agents.get(str(snapshot.get("id")))
        if filed is not None and filed.id in self._lowered:
            kept = agent_of(snapshot, filed.registry)
            return msgspec.structs.replace(filed, permissions=kept.permissions)
        if filed is not None and filed.id != AGENT:
            return filed
        kept = agent_of(snapshot, ToolRegistry(tuple(BUILTIN.values())))
        own = self.agent if kept.id == AGENT else kept  # not in a file: its own limits apply
        return msgspec.structs.replace(
            self.agent.with_tools(kept.registry.tools),
            permissions=kept.permissions,
            limits=own.limits,
            max_cost_microcents=own.max_cost_microcents,
            on_exceed=own.on_exceed,
        )

    def require_choice(self, what: str = "a new session") -> None:
        """Raises: ModelMissing if no model was chosen for `what`."""
        if not self._is_model_named:
            raise ModelMissing(what, model_choices(os.environ))

    async def use_model(self, chat: Chat) -> None:
        """Switch the session to the requested model, if the session uses a different one."""
        context = await chat.session.context()
        now = context.model or chat.agent.model
        if self.requested_model is not None and self.requested_model != now:
            await chat.set_model(self.requested_model)
        else:
            self.require(now)

    def choose_model(self, model: str) -> None:
        """Use `model` in sessions that begin from now on. Raises: ModelNotHere, WrongArgument."""
        require_model_name(model)
        self.require(model)
        self.requested_model, self._is_model_named = model, True
        self.agent = msgspec.structs.replace(self.agent, model=model)

    def window_of(self, model: str) -> int | None:
        """Return how many tokens fit in a request to `model`; None if the limit is unknown."""
        return self._router.info(model).context_window

    async def _require_loaded(self, model: str) -> None:
        """Check `model` like `require`; load the provider's library, which is slow, on a thread."""
        await self._router.load([model])
        await asyncio.to_thread(self.require, model)

    async def _require_next(self, session: Session) -> None:
        """Check the model of the next call of `session`; an interrupted turn uses its own model."""
        interrupted = await _is_interrupted(self.store, session)
        wanted = await _next_model(self.store, session, is_interrupted=interrupted)
        if wanted is None or not interrupted:
            wanted = self.requested_model or wanted
        if wanted is None:
            return
        try:
            await self._require_loaded(wanted)
        except ModelNotHere as error:
            if interrupted:
                raise ModelNotHere(wanted, error.reason, session.id) from error
            raise

    async def aclose(self) -> None:
        """Close the models."""
        await self._router.aclose()

    def require(self, model: str) -> None:
        """Check that `model` can be called here. Raises: ModelNotHere."""
        try:
            client = self._router.client_for(model)
            if isinstance(client, ScriptedModel):
                client.require(model)
        except ConfigError as error:
            raise ModelNotHere(model, str(error)) from error


def _unnamed_folder(known: Authority, info: SessionInfo) -> Path | None:
    """Return the folder to which a session moves without --cwd; None if it does not move.

    An imported session that moved to another folder earlier moves back if its recorded folder is
    the current folder and no turn is open.
    """
    here = Path.cwd()
    if known.bound is None or known.withheld is not None:
        return here if info.cwd is None else None
    works_in = kept_workspace(known.bound.workspace).working_dir
    is_back = info.cwd == str(here) != works_in and info.open_turn is None
    return here if is_back else None


async def _is_interrupted(store: Store, session: Session) -> bool:
    """Return whether resuming `session` would continue an open turn that no process runs.

    Returns False for the turn of an imported session, because resuming the session ends this turn.
    """
    if (await session.info()).open_turn is None:
        return False
    found = await store.recent(None, scope="all", status="interrupted", id_prefix=session.id)
    if session.id not in [each.id for each in found]:
        return False
    return (await authority_of(store.backend, session.id)).turn is None


async def _next_model(store: Store, session: Session, *, is_interrupted: bool) -> str | None:
    """Return the model set for `session`, or else the model of its interrupted turn, or None."""
    window = await store.backend.context_window(session.id, session.leaf, 1)
    switched = await switched_in(store.backend, window)
    if switched is not None or not is_interrupted:
        return switched
    async for entry in session.entries(kind=ModelCalled.kind, newest_first=True, limit=1):
        called = body_of(entry)
        return called.model if isinstance(called, ModelCalled) else None
    return None


def _configured_cast(model: str | None) -> Cast:
    """Return the default agent with the model `model`; None means the model of the settings."""
    settings = Configuration(Path(), os.environ)
    named = model or settings.model
    agent = chat_agent(named, **settings.timeouts)
    return Cast(agent, prices=settings.prices, is_model_named=named is not None)


@asynccontextmanager
async def _answering(
    store: Store, model: str | None, command: str
) -> AsyncGenerator[AnswerOptions]:
    """Yield the options for `model`; a ModelNotHere error suggests `command` with the option -m."""
    async with aclosing(AnswerOptions(store, model=model, scenario=None)) as answering:
        try:
            async with answering.runtime:
                yield answering
        except ModelNotHere as error:
            raise ModelNotHere(error.model, error.reason, command=command) from error


async def compact_session(
    store: Store, session: str, model: str | None, focus: str | None
) -> Entry | None:
    """Compact the session now. Return the compaction; None if there is nothing to compact.

    Raises: TurnOpen while a turn is open; ModelNotHere or TurnFailed if the model does not answer.
    """
    async with _answering(store, model, "perdure sessions compact") as answering:
        stream = StreamId(session)
        state = await store.backend.state(stream)
        if state.open_turn is not None:
            raise TurnOpen(session, state.open_turn)
        handle = await store.open(stream)
        wanted = model or (await handle.context()).model
        if wanted is not None:
            answering.require(wanted)
        window = await store.backend.context_window(stream, state.leaf)
        settings = await _compaction_of(store, stream, answering.agent)
        kept = settings.keep_recent_tokens
        is_by_node = settings.strategy == "node"
        if not is_by_node and plan_compaction(window, keep_recent_tokens=kept) is None:
            return None  # this does not bind an agent to a session without one
        chat = (await answering.go_on(session)).chat
        await answering.use_model(chat)
        return await chat.compact(focus)


async def kept_tokens(store: Store, session: str) -> int:
    """Estimate how many tokens at the session's end a compaction does not summarize."""
    agent = _configured_cast(None).agent
    return (await _compaction_of(store, StreamId(session), agent)).keep_recent_tokens


async def _compaction_of(store: Store, session: StreamId, agent: Agent) -> CompactionSettings:
    """Return the settings of the agent in force, or of `agent` if no agent is in force."""
    known = await authority_of(store.backend, session)
    if known.bound is None or known.bound.agent is None or known.withheld is not None:
        return agent.compaction
    return agent_of(known.bound.agent, ToolRegistry(())).compaction


async def branch_session(
    store: Store, session: str, entry: str | None, model: str | None, focus: str | None
) -> Entry | None:
    """Continue from `entry` with a summary of the abandoned branch; None if `entry` is the leaf.

    Raises: TurnOpen while a turn is open; ModelNotHere or TurnFailed if the model does not answer;
    EntryNotFound if `entry` does not exist; HookBlocked if a hook rejects the branch; FlowRefusal
    for a role of an uncompleted flow.
    """
    async with _answering(store, model, "perdure sessions branch --summarize") as answering:
        stream = StreamId(session)
        state = await store.backend.state(stream)
        await require_no_role(store.backend, store.outside.clock, state.header, "branch")
        if state.open_turn is not None:
            raise TurnOpen(session, state.open_turn)
        chat = (await answering.go_on(session)).chat
        target = None if entry is None else (await chat.session.path(entry))[-1].id
        if target == state.leaf:
            return None
        await answering.use_model(chat)
        return await chat.branch(target, with_summary=True, focus=focus)
