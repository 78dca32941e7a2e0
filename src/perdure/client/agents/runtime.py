"""The runtime: starts sessions under agents, resumes them, and sees running turns to their end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from perdure.client.agents.agent import Agent, agent_of
from perdure.client.agents.chat import Chat
from perdure.client.agents.providers import default_models
from perdure.client.agents.running import Running, Terms
from perdure.client.agents.standing import end_if_idle
from perdure.client.agents.turn import Turn
from perdure.client.agents.workspace import Workspace, detected, existing
from perdure.client.conversation.hooking import with_hooks
from perdure.client.processes import is_gone, this_process
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.engine.hooks.points import HookName, SessionShutdown, SessionStart
from perdure.engine.hooks.registry import Hook
from perdure.engine.turns.config import Budget, Limits
from perdure.engine.turns.environment import (
    LEASE_TTL_MS,
    Cooldowns,
    Environment,
    RenewCredentials,
    Scales,
)
from perdure.errors import ConfigError, HeadConflict
from perdure.models.prices import Costing, Price
from perdure.models.protocol import ModelClient
from perdure.models.routing import ModelRouter
from perdure.secrets.vault import Vault
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import AgentBound, SessionStarted
from perdure.stores.protocol import Commit, Write
from perdure.tools.judging import judge_of
from perdure.tools.permissions import Scope


class Runtime:
    """Runs turns of sessions in one store.

    `agents` are those that sessions may be started under by id, and whose tools resumed sessions
    get back. `models` is the client of all models (default: by provider, as configured in the
    environment). `prices` are those of models by name (or ``provider:*``), before any list's.
    `limits` and `budget` go before those of the agents. `renew_credentials` is asked once a turn
    for another key of a provider that refused the one there is. `idle_timeout_s` closes sessions
    nobody has said anything in for so long: on `end_idle`, and when they are resumed.
    On a normal exit of its ``async with`` it waits for running turns; when the block fails, they
    are suspended: they stay open in the log and can be resumed.
    Raises: ConfigError for two agents of one id.
    """

    def __init__(  # noqa: PLR0913 - each is an option of its own, and all are named
        self,
        store: Store,
        agents: Iterable[Agent] = (),
        *,
        models: ModelClient | None = None,
        prices: Mapping[str, Price] | None = None,
        limits: Limits | None = None,
        budget: Budget | None = None,
        renew_credentials: RenewCredentials | None = None,
        idle_timeout_s: float | None = None,
        owner: str | None = None,
        lease_ttl_ms: int = LEASE_TTL_MS,
    ) -> None:
        self._store = store
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            if agent.id in self._agents:
                raise ConfigError(f"two agents have the id {agent.id!r}; give one another id")
            self._agents[agent.id] = agent
        defaults = default_models(os.environ, store.outside.clock)
        self._own_models = defaults if models is None else None
        self._models: ModelClient = defaults if models is None else models
        self._cost = Costing(prices or {}, self._models)
        self._limits = limits
        self._budget = budget
        self._renew = renew_credentials
        self._idle_timeout_s = idle_timeout_s
        self._owner = owner or this_process()
        self._lease_ttl_ms = lease_ttl_ms
        self._scales = Scales()
        self._open: dict[str, None] = {}
        self._cooldowns = Cooldowns()
        self._vault = Vault(os.environ)
        self._running: set[Turn] = set()

    async def start(
        self,
        agent: Agent | str,
        *,
        workspace: Workspace | None = None,
        title: str | None = None,
        id: str | None = None,
        metadata: Mapping[str, object] | None = None,
        tools: Iterable[str] | None = None,
        allowed_commands: Iterable[str] | None = None,
        scope: Scope | None = None,
    ) -> Chat:
        """A new session under `agent`, of which it keeps a snapshot for life.

        `tools` narrows the agent's tools to those named, `allowed_commands` what it may run, and
        `scope` (or the workspace's) where its file tools may go.
        Durable: when this returns.
        Raises: ConfigError for an unknown agent or tool, for what would be wider than the agent's,
        or for an undefined ``{{ctx.name}}``; SecretPasted for a credential in a variable;
        SessionExists.
        """
        place = detected(workspace)
        bound = _known(self._agents, agent).narrowed(tools, allowed_commands, scope or place.scope)
        place = msgspec.structs.replace(place, scope=bound.permissions.scope)
        prompt = bound.system_prompt(place)
        bound.tools_in(place)
        outside = self._store.outside
        header = StreamHeader(
            id=outside.stream_id(id),
            created_at=outside.clock.now_ms(),
            cwd=place.working_dir,
            title=title,
            metadata=dict(metadata) if metadata else None,
        )
        started = SessionStarted(bound.snapshot(), msgspec.to_builtins(place), prompt)
        write = Write(stream=header.id, create=header, entries=(new_side(started),))
        await self._store.backend.commit(Commit(writes=(write,), at=header.created_at))
        chat = self._chat(await self._store.open(header.id), bound, place, prompt)
        await self._opened(chat, is_resumed=False)
        return chat

    async def resume(self, session: str, agent: Agent | str | None = None) -> Chat:
        """Go on with a session under the agent it was started under.

        The tools are bound again by name and schema; its caps are those of today: the runtime's, or
        of the agent that is given or known by its id. A session that never had an agent (an import)
        needs one, which is recorded; a session that has one keeps it. A turn that was interrupted
        runs on at once, as ``chat.turn``.
        Raises: SessionNotFound, AmbiguousId; ConfigError when no agent is given and none is bound.
        """
        handle = await self._store.open(session)
        found = await self._store.backend.state(handle.id)
        await end_if_idle(self._store, found, self._idle_timeout_s)
        given = None if agent is None else _known(self._agents, agent)
        kinds = (SessionStarted.kind, AgentBound.kind)
        bound = _bound(await self._store.backend.notes(handle.id, kinds))
        while bound is None:
            try:
                bound = await self._bind(handle, given)
            except HeadConflict:  # somebody was there first, perhaps with an agent
                bound = _bound(await self._store.backend.notes(handle.id, kinds))
        chat = self._resumed(handle, bound, given)
        await self._opened(chat, is_resumed=True)
        state = await self._store.backend.state(handle.id)
        if state.open_turn is not None:
            chat.recover()
        return chat

    def on(self, name: HookName, hook: Hook, *, is_guard: bool | None = None) -> Callable[[], None]:
        """Run `hook` at the point `name` in every session of the store that is used here.

        What it is given, and what it may answer, is in ``docs/guides/hooks.md``.
        Shape: gives the function that takes it away again.
        Raises: ValueError for a point that there is not.
        """
        return self._store.hooks.on(name, hook, is_guard=is_guard)

    async def close(self) -> None:
        """Wait for the turns that are running."""
        for turn in tuple(self._running):
            await turn.settled()
        await self._let_go()

    async def suspend(self) -> None:
        """Stop performing the turns that are running; they stay open and can be resumed."""
        for turn in tuple(self._running):
            await turn.stop()
        await self._let_go()

    async def end_idle(self) -> list[str]:
        """Close the sessions of the store that have been idle too long; their ids.

        A session in which a turn is open, be it only waiting for an answer, is not idle.
        """
        ended: list[str] = []
        for info in await self._store.recent(limit=None, scope="all"):
            state = await self._store.backend.state(info.id)
            if await end_if_idle(self._store, state, self._idle_timeout_s):
                ended.append(info.id)
        return ended

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            await self.suspend()
        else:
            await self.close()

    # ------------------------------------------------------------ inside

    async def _opened(self, chat: Chat, *, is_resumed: bool) -> None:
        self._open[chat.id] = None
        hooks = self._store.hooks
        await hooks.tell(SessionStart(chat.id, chat.agent.id, is_resumed))

    async def _let_go(self) -> None:
        while self._open:
            id, _ = self._open.popitem()
            await self._store.hooks.tell(SessionShutdown(id))
        if self._own_models is not None:
            await self._own_models.aclose()

    async def _bind(self, handle: Session, given: Agent | None) -> AgentBound:
        if given is None:
            raise ConfigError(
                f"session {handle.id!r} has no agent yet: name the one that shall answer in it"
            )
        state = await self._store.backend.state(handle.id)
        place = detected(Workspace(working_dir=existing(state.info.cwd)))
        place = msgspec.structs.replace(place, scope=given.permissions.scope)
        prompt = given.system_prompt(place)
        bound = AgentBound(given.snapshot(), msgspec.to_builtins(place), prompt)
        write = Write(stream=handle.id, entries=(new_side(bound),), expected_head=state.head)
        at = self._store.outside.clock.now_ms()
        await self._store.backend.commit(Commit(writes=(write,), at=at))
        return bound

    def _resumed(
        self, handle: Session, bound: SessionStarted | AgentBound, given: Agent | None
    ) -> Chat:
        snapshot = bound.agent or {}
        name = str(snapshot.get("id", ""))
        today = given or self._agents.get(name)
        agent = agent_of(snapshot, (today or Agent(name)).registry)
        workspace = msgspec.convert(bound.workspace or {}, Workspace)
        return self._chat(handle, agent, workspace, bound.system_prompt, caps=today)

    def _chat(
        self,
        session: Session,
        agent: Agent,
        workspace: Workspace,
        prompt: str | None,
        *,
        caps: Agent | None = None,
    ) -> Chat:
        caps = caps or agent
        tools = agent.tools_in(workspace)
        environment = Environment(
            stream=StreamId(session.id),
            store=self._store.backend,
            models=self._models,
            tools=tools,
            clock=self._store.outside.clock,
            random=self._store.outside.random,
            bus=self._store.bus,
            owner=self._owner,
            working_dir=Path(workspace.working_dir),
            scales=self._scales,
            lease_ttl_ms=self._lease_ttl_ms,
            is_gone=is_gone,
            cooldowns=self._cooldowns,
            renew_credentials=None if self._renew is None else self._renewed,
            permissions=agent.permissions,
            vault=self._vault,
        )
        terms = Terms(
            limits=self._limits or caps.limits,
            budget=self._budget or caps.budget,
            cost=self._cost,
            judge=judge_of(tools, agent.permissions),
        )
        running = Running(agent, with_hooks(environment, self._store.hooks), prompt, terms)
        return Chat(session, agent, workspace, running, self._running)

    async def _renewed(self, provider: str) -> bool:
        assert self._renew is not None
        is_renewed = await self._renew(provider)
        if is_renewed and isinstance(self._models, ModelRouter):
            await self._models.renew(provider)
        return is_renewed


def _bound(notes: list[Entry]) -> SessionStarted | AgentBound | None:
    """What the newest of `notes` bound; of a fork its own counts before its origin's."""
    for note in reversed(notes):
        body = body_of(note)
        if isinstance(body, SessionStarted | AgentBound) and body.agent is not None:
            return body
    return None


def _known(agents: Mapping[str, Agent], agent: Agent | str) -> Agent:
    """`agent`, or the one of that id.

    Raises: ConfigError, which says which there are.
    """
    if isinstance(agent, Agent):
        return agent
    if agent not in agents:
        known = ", ".join(sorted(agents)) or "none"
        raise ConfigError(f"there is no agent {agent!r} in this runtime; it has: {known}")
    return agents[agent]
