"""The runtime: starts sessions under agents, resumes them, and sees running turns to their end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from perdure.client.agents.agent import Agent, Workspace, agent_of
from perdure.client.agents.chat import Chat
from perdure.client.agents.providers import default_models
from perdure.client.agents.running import Running
from perdure.client.clock import absolute
from perdure.client.processes import is_gone, this_process
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.engine.turns.environment import LEASE_TTL_MS, Environment, Scales
from perdure.errors import ConfigError, HeadConflict
from perdure.models.protocol import ModelClient
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import AgentBound, SessionStarted
from perdure.stores.protocol import Commit, Write


class Runtime:
    """Runs turns of sessions in one store.

    `agents` are those that sessions may be started under by id, and whose tools resumed sessions
    get back. `models` is the client of all models (default: by provider, as configured in the
    environment). On a normal exit of its ``async with`` it waits for running turns; when the block
    fails, they are suspended: they stay open in the log and can be resumed.
    Raises: ConfigError for two agents of one id.
    """

    def __init__(
        self,
        store: Store,
        agents: Iterable[Agent] = (),
        *,
        models: ModelClient | None = None,
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
        self._owner = owner or this_process()
        self._lease_ttl_ms = lease_ttl_ms
        self._scales = Scales()
        self._chats: list[Chat] = []

    async def start(
        self,
        agent: Agent | str,
        *,
        workspace: Workspace | None = None,
        title: str | None = None,
        id: str | None = None,
        metadata: Mapping[str, object] | None = None,
        tools: Iterable[str] | None = None,
    ) -> Chat:
        """A new session under `agent`, of which it keeps a snapshot for life.

        `tools` narrows the agent's tools to those named.
        Durable: when this returns.
        Raises: ConfigError for an unknown agent or tool, or an undefined ``{{ctx.name}}``;
        SessionExists.
        """
        bound = self._agent(agent).narrowed(tools)
        place = _absolute(workspace)
        prompt = bound.system_prompt(place)
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
        return self._chat(await self._store.open(header.id), bound, place, prompt)

    async def resume(self, session: str, agent: Agent | str | None = None) -> Chat:
        """Go on with a session under the agent it was started under.

        The tools are bound again by name and schema. A session that never had an agent (an import)
        needs one, which is recorded; a session that has one keeps it. A turn that was interrupted
        runs on at once, as ``chat.turn``.
        Raises: SessionNotFound, AmbiguousId; ConfigError when no agent is given and none is bound.
        """
        handle = await self._store.open(session)
        given = None if agent is None else self._agent(agent)
        kinds = (SessionStarted.kind, AgentBound.kind)
        bound = _bound(await self._store.backend.notes(handle.id, kinds))
        while bound is None:
            try:
                bound = await self._bind(handle, given)
            except HeadConflict:  # somebody was there first, perhaps with an agent
                bound = _bound(await self._store.backend.notes(handle.id, kinds))
        chat = self._resumed(handle, bound, given)
        state = await self._store.backend.state(handle.id)
        if state.open_turn is not None:
            chat.recover()
        return chat

    async def close(self) -> None:
        """Wait for the turns that are running."""
        for chat in self._chats:
            if chat.turn is not None:
                await chat.turn.settled()
        await self._let_go()

    async def suspend(self) -> None:
        """Stop performing the turns that are running; they stay open and can be resumed."""
        for chat in self._chats:
            await chat.suspend()
        await self._let_go()

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

    async def _let_go(self) -> None:
        if self._own_models is not None:
            await self._own_models.aclose()

    def _agent(self, agent: Agent | str) -> Agent:
        if isinstance(agent, Agent):
            return agent
        if agent not in self._agents:
            known = ", ".join(sorted(self._agents)) or "none"
            raise ConfigError(f"there is no agent {agent!r} in this runtime; it has: {known}")
        return self._agents[agent]

    async def _bind(self, handle: Session, given: Agent | None) -> AgentBound:
        if given is None:
            raise ConfigError(
                f"session {handle.id!r} has no agent yet: name the one that shall answer in it"
            )
        state = await self._store.backend.state(handle.id)
        place = _absolute(Workspace(working_dir=_existing(state.info.cwd)))
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
        tools = (given or self._agents.get(name) or Agent(name)).registry
        agent = agent_of(snapshot, tools)
        workspace = msgspec.convert(bound.workspace or {}, Workspace)
        return self._chat(handle, agent, workspace, bound.system_prompt)

    def _chat(
        self, session: Session, agent: Agent, workspace: Workspace, prompt: str | None
    ) -> Chat:
        environment = Environment(
            stream=StreamId(session.id),
            store=self._store.backend,
            models=self._models,
            tools=agent.registry,
            clock=self._store.outside.clock,
            random=self._store.outside.random,
            bus=self._store.bus,
            owner=self._owner,
            working_dir=Path(workspace.working_dir),
            scales=self._scales,
            lease_ttl_ms=self._lease_ttl_ms,
            is_gone=is_gone,
        )
        chat = Chat(session, agent, workspace, Running(agent, environment, prompt))
        self._chats.append(chat)
        return chat


def _absolute(workspace: Workspace | None) -> Workspace:
    place = workspace or Workspace()
    return msgspec.structs.replace(place, working_dir=absolute(place.working_dir) or ".")


def _existing(folder: str | None) -> str:
    """`folder` if it is on this machine, else where this process stands."""
    return folder if folder and Path(folder).is_dir() else "."


def _bound(notes: list[Entry]) -> SessionStarted | AgentBound | None:
    """What the newest of `notes` bound; of a fork its own counts before its origin's."""
    for note in reversed(notes):
        body = body_of(note)
        if isinstance(body, SessionStarted | AgentBound) and body.agent is not None:
            return body
    return None
