"""What work requires of a worker: an agent, or a flow's agents, with tools of given schemas.

Work with equal requirements shares a queue, so a worker can do either all work of a queue or none
of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import cast

import msgspec

from perdure.client.agents.agent import Agent
from perdure.client.conversation.agent_binding import BINDING_KINDS, binding_in
from perdure.session.flows.kinds import FlowRequested, NeededAgent
from perdure.session.ids import StreamId
from perdure.stores.protocol import LogReader

_ENCODER = msgspec.json.Encoder(order="sorted")


class Requirement(msgspec.Struct, frozen=True):
    """The id of an agent, and a hash of each tool's schema.

    The requirement contains the names of MCP servers, but not their tools.
    """

    agent: str
    tools: dict[str, str] = {}
    servers: tuple[str, ...] = ()

    def encoded(self) -> bytes:
        """Return the requirement as JSON, the same on every machine."""
        return _ENCODER.encode(self)

    def is_met_by(self, agent: Agent | None) -> bool:
        """Whether a worker that has `agent` can run turns with this requirement."""
        return not self.missing_from(agent)

    def missing_from(self, agent: Agent | None) -> str:
        """Return the parts of this requirement that `agent` does not have; "" if it has all."""
        if agent is None or agent.id != self.agent:
            return f"the agent {self.agent!r}"
        registry = agent.registry
        servers = {each if isinstance(each, str) else each.name for each in agent.mcp_servers}
        missing = [
            f"the tool {name} (or it has other parameters)"
            for name, wanted in self.tools.items()
            if name not in registry.names or registry.schema_hash(name) != wanted
        ]
        missing += [f"the MCP server {name}" for name in self.servers if name not in servers]
        return ", ".join(missing)


class FlowRequirement(msgspec.Struct, frozen=True):
    """What a flow requires of a worker: the agents of its roles.

    `agent` is a text that is the same for all flows with the same requirement.

    Workers of earlier versions read `agent` as the id of an agent. `agent` contains a colon, which
    no id of an agent contains, so workers of earlier versions take no flows.
    """

    agent: str
    flow: tuple[Requirement, ...]

    def encoded(self) -> bytes:
        """Return the requirement as JSON, the same on every machine."""
        return _ENCODER.encode(self)


class _Stored(Requirement, frozen=True):
    flow: tuple[Requirement, ...] | None = None


class _Tool(msgspec.Struct):
    name: str
    schema_hash: str


class _Server(msgspec.Struct):
    name: str
    tools: tuple[str, ...] = ()


class _Snapshot(msgspec.Struct):
    id: str = ""
    tools: tuple[_Tool, ...] = ()
    mcp_servers: tuple[_Server | str, ...] = ()


def requirement_of(snapshot: Mapping[str, object] | None) -> Requirement:
    """Return the requirement for turns of the agent with this snapshot."""
    try:
        found = msgspec.convert(dict(snapshot or {}), _Snapshot, strict=False)
    except msgspec.ValidationError:
        return Requirement(str((snapshot or {}).get("id", "")))
    servers = [each for each in found.mcp_servers if isinstance(each, _Server)]
    offered = {tool for server in servers for tool in server.tools}
    tools = {tool.name: tool.schema_hash for tool in found.tools if tool.name not in offered}
    return Requirement(found.id, tools, tuple(sorted(server.name for server in servers)))


def needed_agent(agent: Agent) -> NeededAgent:
    """Return the id, tools and servers of `agent`, in the form that a flow stores."""
    needed = requirement_of(cast("Mapping[str, object]", agent.snapshot()))
    return NeededAgent(needed.agent, needed.tools, needed.servers)


def flow_requirement(wanted: FlowRequested) -> FlowRequirement:
    """Return the requirement for the flow whose run `wanted` requests."""
    needed = [Requirement(each.agent, each.tools, each.servers) for each in wanted.agents]
    names = ", ".join(each.agent for each in needed)
    return FlowRequirement(f"flow: {names}", tuple(needed))


def is_served(content: bytes, agents: Mapping[str, Agent]) -> bool:
    """Whether a worker with `agents` can do the work whose requirement is stored as `content`.

    The result is False if a newer perdure wrote the requirement.
    """
    try:
        found = msgspec.json.decode(content, type=_Stored)
    except msgspec.DecodeError:
        return False
    if found.flow is not None:
        return all(each.is_met_by(agents.get(each.agent)) for each in found.flow)
    return found.is_met_by(agents.get(found.agent))


async def requirement_for(log: LogReader, stream: StreamId) -> Requirement:
    """Return the requirement for turns of the session `stream`. Raises: SessionNotFound."""
    bound = binding_in(await log.notes(stream, BINDING_KINDS))
    return requirement_of(None if bound is None else bound.agent)


FLOW_QUEUE = "perdure-flow-"
"""The prefix of the names of the queues for flows."""


def queue_name(namespace: str, requirement: Requirement | FlowRequirement) -> str:
    """Return the name of the queue for work that needs `requirement`.

    Each namespace has queues of its own, so that a long queue of one namespace delays no other.
    """
    content = msgspec.json.encode((namespace,)) + requirement.encoded()
    begin = FLOW_QUEUE if isinstance(requirement, FlowRequirement) else "perdure-"
    return begin + hashlib.blake2b(content, digest_size=12).hexdigest()


def own_queues(namespace: str, agents: Iterable[Agent]) -> dict[str, Requirement]:
    """Return the requirement of each of `agents`, by the name of its queue."""
    required = [requirement_of(cast("Mapping[str, object]", each.snapshot())) for each in agents]
    return {queue_name(namespace, each): each for each in required}
