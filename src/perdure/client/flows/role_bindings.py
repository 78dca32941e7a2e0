"""The agent that is in force in a role's session; today's is bound where none is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import msgspec

from perdure.client.agents.agent import Agent, agent_of, tool_names
from perdure.client.agents.delegation.restriction import local_agent, resumed_agent
from perdure.client.agents.runtime_services import Host
from perdure.client.conversation.authority import authority_of
from perdure.client.conversation.workspace import Workspace, in_folder, kept_workspace
from perdure.engine.turns.recovery import interrupt
from perdure.errors import ConfigError, SessionNotFound
from perdure.session.codec import new_side
from perdure.session.ids import StreamId
from perdure.session.notes import AgentBound, SessionStarted
from perdure.stores.protocol import Commit, SessionStore, Write

Equipped = Callable[[Workspace, Collection[str] | None], Awaitable[Agent]]
"""Today's agent of the role in a place, with those tools of its MCP servers (None: all)."""

Prompt = Callable[[str | None], Awaitable[str]]
"""The prompt of a role, given the instructions of its agent."""


async def binding_of_role(
    store: SessionStore,
    session: StreamId,
    root: str,
    equipped: Equipped,
    prompt: Prompt,
    *,
    at: int,
) -> tuple[Agent, Workspace, str | None]:
    """The agent, the place and the prompt that are in force in `session`, which works in `root`.

    Durable: where none are, those of today are recorded. Units: `at` is Unix milliseconds.
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
    write = Write(stream=session, entries=(new_side(bound),))
    await store.commit(Commit(writes=(write,), at=at))
    return agent, place, told


async def has_ended_foreign_turn(host: Host, session: StreamId) -> bool:
    """End an open turn that is not in force here, as interrupted; whether there was one.

    Raises: LeaseHeld while a process runs it.
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
