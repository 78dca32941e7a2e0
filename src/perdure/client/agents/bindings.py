"""Finds the agent that a session's turns use (the agent in force), or binds one.

Every binding is stored as an entry. A session of this user continues with the agent with which it
was started. Imported sessions get an agent that the caller gives. In an untrusted store, sessions
that this user's perdure did not write also get an agent that the caller gives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import cast

import msgspec

from perdure.client.agents.agent import Agent, agent_of
from perdure.client.agents.delegation.restriction import local_agent
from perdure.client.agents.runtime_services import Host
from perdure.client.conversation.agent_binding import Binding, tool_hashes
from perdure.client.conversation.authority import Authority, authority_of
from perdure.client.conversation.workspace import (
    Workspace,
    change_of,
    detect_workspace,
    kept_workspace,
    merge_workspace,
)
from perdure.engine.turns.recovery import idle_state, interrupt
from perdure.errors import ConfigError, HeadConflict
from perdure.secrets.pasted_keys import apply_paste_policy
from perdure.session.codec import new_side
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import (
    AgentBound,
    SessionInfoChanged,
    SessionStarted,
    WorkspaceChanged,
    in_workspace,
)
from perdure.stores.protocol import Commit, StreamState, Write
from perdure.stores.session_store import append_to
from perdure.tools.permissions import narrower
from perdure.tools.registry import ToolRegistry

_WIDENED = ("permissions", "tools", "mcp_servers", "max_agents", "max_depth")
"""The fields that `Bindings.grant` copies from the given agent."""


class Bindings:
    """Finds and creates the agent bindings of the sessions of one runtime."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._store = host.store.backend
        self._clock = host.store.outside.clock

    async def grant(self, session: StreamId, given: Agent, by: str) -> None:
        """Give the session the permissions and tools of `given`; `by` names the person who decided.

        Raises: TurnOpen if a turn is open; ConfigError if a provider or MCP server is unknown;
        McpUnavailable if an MCP server does not start.
        """
        while True:
            state = await idle_state(self._store, session)
            known = await authority_of(self._store, session)  # later: a change moves the head
            with suppress(HeadConflict):
                if known.bound is None or known.withheld is not None:
                    await self._bind(
                        session, given, _first_place(known, None), state, granted_by=by
                    )
                else:
                    await self._widen(session, known.bound, given, state.head, by)
                return

    async def _widen(
        self, session: StreamId, bound: Binding, given: Agent, head: int, by: str
    ) -> None:
        """Record the session's own agent with the permissions and tools of `given`.

        MCP servers that are not connected yet and are missing in `given` are still connected later.
        """
        place = kept_workspace(bound.workspace)
        whole = self.snapshot(await self._host.servers.equip(given, place.working_dir))
        widened = {name: whole[name] for name in _WIDENED if name in whole}
        if planned := _planned_servers(bound):
            connected = _listed(whole, "mcp_servers")
            names = {each["name"] for each in connected}
            planned = [each for each in planned if each["name"] not in names]
            widened["mcp_servers"] = [*connected, *planned]
        place = msgspec.structs.replace(place, scope=given.permissions.scope)
        agent = {**(bound.agent or {}), **widened}
        workspace = msgspec.to_builtins(place)
        await self._record(session, AgentBound(agent, workspace, bound.system_prompt, by), head)

    async def begin(
        self,
        agent: Agent,
        header: StreamHeader,
        place: Workspace,
        *,
        is_planned: bool = False,
    ) -> str | None:
        """Create the session with this `header` and `agent`, and return its system prompt.

        With `is_planned`, the agent's MCP servers are connected only when the session is resumed.
        Raises: ConfigError if a model provider or a name in the instructions is unknown;
        SecretPasted if the instructions contain a credential; SessionExists if the id is used.
        """
        self._host.require_models(agent)
        apply_paste_policy(agent.instructions, "refuse", f"the instructions of agent {agent.id!r}")
        prompt = agent.system_prompt(place)
        agent.tools_in(place)
        snapshot = self._planned(agent) if is_planned else self.snapshot(agent)
        started = SessionStarted(snapshot, msgspec.to_builtins(place), prompt)
        write = Write(stream=header.id, create=header, entries=(new_side(started),))
        await self._store.commit(Commit(writes=(write,), at=header.created_at))
        return prompt

    def snapshot(self, agent: Agent) -> dict[str, object]:
        """Return a snapshot of `agent` that includes the tools that its MCP servers offer."""
        report = self._host.servers.report(agent)
        return {**agent.snapshot(), "mcp_servers": report} if report else agent.snapshot()

    def _planned(self, agent: Agent) -> dict[str, object]:
        """Return a snapshot of `agent` which states that its MCP servers are not connected yet."""
        names = self._host.servers.names_of(agent)
        servers: list[dict[str, object]] = [
            {"name": name, "tools": [], "is_planned": True} for name in names
        ]
        snapshot = agent.snapshot()
        return {**snapshot, "mcp_servers": servers} if servers else snapshot

    async def in_force(
        self, session: StreamId, given: Agent | None, workspace: Workspace | None
    ) -> Binding:
        """Return the agent in force in the session; if there is none, bind `given`.

        If `workspace` differs from the current workspace, the session moves to it.
        Raises: ConfigError if no agent is in force and none is given; TurnOpen for a move while a
        turn is open; InvalidTransition if the runtime was closed.
        """
        self._host.require_open("resume")
        store = self._store
        while True:
            known = await authority_of(store, session)
            if known.bound is not None and known.withheld is None:
                with suppress(HeadConflict):
                    bound = await self._connected(session, known, known.bound, given)
                    if workspace is None:
                        return bound
                    return await self._moved(session, known, bound, workspace)
                continue
            is_own = known.bound is not None and known.agent is None
            if not is_own and given is None:
                raise ConfigError(_no_agent(session, known, self._host.agents))
            state = await store.state(session)
            if await authority_of(store, session) != known:
                continue  # another writer bound an agent meanwhile, and `state` may include it
            if state.header.received > state.head + 1:
                raise ConfigError(
                    f"session {session!r} holds {state.head + 1} of the {state.header.received} "
                    "entries that were to be imported: import its file again"
                )
            if state.open_turn is not None and known.withheld is not None:
                await interrupt(self._host.claim(session))
                continue
            with suppress(HeadConflict):  # another writer was first, maybe with an agent
                if is_own and known.bound is not None:
                    # Later bindings are not in force.
                    kept = known.bound
                    again = AgentBound(kept.agent or {}, kept.workspace, kept.system_prompt)
                    await self._record(session, again, state.head)
                elif given is not None:
                    snapshot = None if known.bound is None else known.bound.agent
                    place = _first_place(known, workspace)
                    await self._bind(session, given, place, state, narrowing=snapshot)

    async def _connected(
        self, session: StreamId, known: Authority, bound: Binding, given: Agent | None
    ) -> Binding:
        """Return `bound` with the tools of those MCP servers that were not connected before.

        If `bound` names MCP servers that are not connected yet, this method connects these servers,
        adds their tools, and records the new binding.

        The MCP servers are defined by the agent that the runtime has now, not by the stored agent.
        If `given` is a different agent, nothing is recorded, because `given` only restricts its own
        chat.
        Raises: AgentNotFound if the runtime lacks the session's agent; McpUnavailable if a server
        does not start; TurnOpen if a turn is open; HeadConflict if another writer appended first.
        """
        planned = {each["name"] for each in _planned_servers(bound)}
        if not planned:
            return bound
        kept = bound.agent or {}
        id = str(kept.get("id"))
        same = given if given is not None and given.id == id else None
        today = self._host.agents.get(id, same)
        other = None if given == today else given
        if other is not None and (today is None or not other.mcp_servers):
            return bound
        today = today or self._host.agent(id)
        place = kept_workspace(bound.workspace)
        whole = self.snapshot(await self._host.servers.equip(today, place.working_dir))
        agent = {**kept, **_with_offers(kept, whole, planned)}
        connected = AgentBound(agent, bound.workspace, bound.system_prompt)
        if other is None:
            state = await idle_state(self._store, session)
            await self._require_unchanged(session, known, state)
            await self._record(session, connected, state.head)
        return connected

    async def _moved(
        self, session: StreamId, known: Authority, bound: Binding, workspace: Workspace
    ) -> Binding:
        """Return `bound` in `workspace`; record the workspace if it changed.

        Raises: TurnOpen if a turn is open; HeadConflict if another writer appended first;
        SecretPasted if a variable contains a credential. Also raises ConfigError if the scope of
        `workspace` is wider than the scope of the session's agent, or if `workspace` lacks a value
        that the instructions use.
        """
        agent_of(bound.agent or {}, ToolRegistry(())).restrict(scope=workspace.scope)
        place = merge_workspace(kept_workspace(bound.workspace), workspace)
        change = change_of(bound, place)
        if change is None:
            if workspace.working_dir:
                await self._list_in(session, known, place)
            return bound
        state = await idle_state(self._store, session)
        await self._require_unchanged(session, known, state)
        await self._record(session, change, state.head, _cwd_after(state, place))
        return in_workspace(bound, change)

    async def _require_unchanged(
        self, session: StreamId, known: Authority, state: StreamState
    ) -> None:
        """Check that `known` was still in force in `state`, which was read later.

        Raises: HeadConflict if another writer changed the session's agent or workspace.
        """
        if await authority_of(self._store, session) != known:
            raise HeadConflict(session, state.head - 1, state.head)

    async def _list_in(self, session: StreamId, known: Authority, place: Workspace) -> None:
        """Record the folder in which the session works, so that lists show the session there.

        If an imported session was resumed without a folder, its turns run in the program's folder,
        but lists show the session in the folder of the import.
        """
        state = await self._store.state(session)
        cwd = _cwd_after(state, place)
        if cwd is not None and state.info.open_turn is None:
            await self._require_unchanged(session, known, state)
            await self._record(session, cwd, state.head)

    async def _bind(
        self,
        session: StreamId,
        given: Agent,
        workspace: Workspace,
        state: StreamState,
        *,
        narrowing: Mapping[str, object] | None = None,
        granted_by: str | None = None,
    ) -> None:
        """Record `given`, restricted by the snapshot `narrowing`, as the session's agent.

        If `workspace` names a folder, lists show the session in this folder.
        """
        place = detect_workspace(workspace)
        cwd = _cwd_after(state, place) if workspace.working_dir else None
        whole = await self._host.servers.equip(given, place.working_dir)
        given = local_agent(whole, narrowing)
        self._host.require_models(given)
        if place.scope is not None:
            given = given.restrict(scope=narrower(place.scope, given.permissions.scope))
        place = msgspec.structs.replace(place, scope=given.permissions.scope)
        prompt = given.system_prompt(place)
        snapshot = self.snapshot(given)
        bound = AgentBound(snapshot, msgspec.to_builtins(place), prompt, granted_by)
        await self._record(session, bound, state.head, cwd)

    async def _record(
        self,
        session: StreamId,
        body: AgentBound | WorkspaceChanged | SessionInfoChanged,
        head: int,
        cwd: SessionInfoChanged | None = None,
    ) -> None:
        entries = map(new_side, (body,) if cwd is None else (body, cwd))
        at = self._clock.now_ms()
        await append_to(self._store, session, *entries, at=at, expected_head=head)


def _planned_servers(bound: Binding) -> list[dict[str, object]]:
    """Return the agent's MCP servers that are to be connected when its session is resumed."""
    servers = (bound.agent or {}).get("mcp_servers")
    listed = cast("list[object]", servers) if isinstance(servers, list) else []
    found = (cast("dict[str, object]", each) for each in listed if isinstance(each, dict))
    return [each for each in found if "is_planned" in each]


def _with_offers(
    kept: Mapping[str, object], whole: Mapping[str, object], planned: Collection[object]
) -> dict[str, object]:
    """Return tools and servers of `kept`, with the `planned` servers and their tools from `whole`.

    `kept` and `whole` are snapshots. Tools of `kept` keep the parameters that were stored.
    """
    servers = [each for each in _listed(whole, "mcp_servers") if each["name"] in planned]
    offered = {name for each in servers for name in cast("list[str]", each["tools"])}
    offered -= set(tool_hashes(kept))
    tools = [each for each in _listed(whole, "tools") if each["name"] in offered]
    connected = [each for each in _listed(kept, "mcp_servers") if each["name"] not in planned]
    return {
        "tools": [*_listed(kept, "tools"), *tools],
        "mcp_servers": [*connected, *servers],
    }


def _listed(snapshot: Mapping[str, object], field: str) -> list[dict[str, object]]:
    return cast("list[dict[str, object]]", snapshot.get(field, []))


def _first_place(known: Authority, given: Workspace | None) -> Workspace:
    """Return `given`, or else the fork's folder, as the workspace of a session's first binding."""
    place = given or Workspace()
    if known.workspace is None:
        return place
    kept = merge_workspace(kept_workspace(known.workspace), place)
    return msgspec.structs.replace(kept, scope=place.scope)


def _cwd_after(state: StreamState, place: Workspace) -> SessionInfoChanged | None:
    """Return the entry that records the folder of `place`; None if it is recorded already."""
    folder = place.working_dir
    return None if state.info.cwd == folder else SessionInfoChanged(cwd=folder)


def _no_agent(session: StreamId, known: Authority, agents: Iterable[str]) -> str:
    why = {
        None: "has no agent yet",
        "imported": "was imported, so its own agent is not in force",
        "unknown": "was not written by this user's perdure, so its own agent is not in force",
    }[known.withheld]
    names = ", ".join(sorted(agents)) or "none"
    return (
        f"session {session!r} {why}: name the agent that answers in it; this runtime has: {names}"
    )
