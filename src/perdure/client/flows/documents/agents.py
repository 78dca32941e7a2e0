"""The agents of a workflow document: those of the program, else those that the file defines.

A file that somebody passes on decides what is said, and nothing that it may touch: its agents have
the built-in tools they name, start no programs, and what they may do is said by whoever runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perdure.client.agents.agent import Agent
from perdure.client.agents.files.reader import agent_of_text
from perdure.engine.flows.documents.document_flow import agent_refs
from perdure.engine.flows.documents.structure import DocumentFault
from perdure.errors import ConfigError, InvalidAgentFile
from perdure.workflow.document import AgentNode
from perdure.workflow.reader import LocatedWorkflow
from perdure.yaml.writer import yaml_of

_PROGRAMS = (
    "an agent of a workflow brings no MCP servers: give the one who runs it an agent of that id, "
    "in a file of its own"
)


def bound_agents(
    located: LocatedWorkflow, given: Mapping[str, Agent]
) -> tuple[dict[str, Agent], list[DocumentFault]]:
    """The agents that nodes refer to, by id, and what is wrong with those that the file defines.

    Shape: one of `given` goes before one of the file's; what neither has is left out.
    """
    agents: dict[str, Agent] = {}
    faults: list[DocumentFault] = []
    defined = {str(agent.get("id", "")): agent for agent in located.workflow.agents}
    for ref in agent_refs(located.workflow):
        if ref in given:
            agents[ref] = given[ref]
        elif ref in defined:
            try:
                agents[ref] = _agent(defined[ref])
            except ConfigError as error:
                faults += _faults_of(located, ref, error)
    return agents, [*faults, *_wider(located, agents)]


def _agent(definition: Mapping[str, object]) -> Agent:
    """Raises: ConfigError, InvalidAgentFile."""
    if definition.get("mcp_servers"):
        raise ConfigError(_PROGRAMS)
    return agent_of_text(yaml_of(definition), "")


def _faults_of(located: LocatedWorkflow, ref: str, error: ConfigError) -> Iterator[DocumentFault]:
    """What is wrong with the definition of `ref`, in the lines of the workflow's file."""
    node = located.lines.agents.get(ref)
    told = error.faults if isinstance(error, InvalidAgentFile) else (str(error),)
    for each in told:
        what = each.partition(": ")[2] if each.startswith("line ") else each
        yield None if node is None else node.line, f"agent {ref!r}: {what}"


def _wider(located: LocatedWorkflow, agents: Mapping[str, Agent]) -> Iterator[DocumentFault]:
    """Nodes that name tools which their agent does not have; servers' are known only later."""
    for node in located.workflow.nodes:
        if not isinstance(node, AgentNode) or node.agent_ref not in agents:
            continue
        agent = agents[node.agent_ref]
        known = agent.registry.names
        lines = located.lines.tools.get(node.id, ())
        for number, tool in enumerate(node.tools):
            if tool in known or (agent.mcp_servers and tool.startswith("mcp_")):
                continue
            there = ", ".join(known) or "none"
            line = lines[number] if number < len(lines) else None
            what = f"node {node.id!r}: {agent.id!r} has no tool {tool!r}; it has: {there}"
            yield line, what
