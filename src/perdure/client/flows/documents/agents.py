"""The agents of a workflow document: agents of the program, or else agents of the file.

A file from another person sets the prompts but grants no permissions. Agents that the file defines
get the built-in tools that they name, and cannot start programs. The person who runs the document
sets the permissions of its agents.
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
    """Return the agents of nodes by id, and the errors in the agents that the file defines.

    Shape: if `given` and the file contain an agent with the same id, the agent in `given` is used.
    Ids without an agent are omitted.
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
    """Return the agent of this `definition`.

    Raises: ConfigError, InvalidAgentFile.
    """
    if definition.get("mcp_servers"):
        raise ConfigError(_PROGRAMS)
    return agent_of_text(yaml_of(definition), "")


def _faults_of(located: LocatedWorkflow, ref: str, error: ConfigError) -> Iterator[DocumentFault]:
    """Return the errors in the definition of the agent `ref`, with lines of the workflow's file."""
    node = located.lines.agents.get(ref)
    told = error.faults if isinstance(error, InvalidAgentFile) else (str(error),)
    for each in told:
        what = each.partition(": ")[2] if each.startswith("line ") else each
        yield None if node is None else node.line, f"agent {ref!r}: {what}"


def _wider(located: LocatedWorkflow, agents: Mapping[str, Agent]) -> Iterator[DocumentFault]:
    """Return an error for each tool that a node needs and that the node's agent lacks.

    If a node's agent has MCP servers, the names of the node's MCP tools are not checked.
    """
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
