"""Finds the agents of a workflow document in the document or in agent files, or creates them.

The command line limits the permissions of an agent from the document. Nodes can refer to an
undefined agent, for example in the export of an imported session. If the command line names a
model, each undefined agent is created with the built-in tools that its nodes name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from perdure.apps.flow.roles import RoleOptions
from perdure.apps.settings.agents import agents_here, chosen_agent
from perdure.apps.settings.layers import Configuration
from perdure.client.agents.agent import Agent, agent_of
from perdure.client.agents.delegation.restriction import within
from perdure.client.conversation.agent_binding import tool_names
from perdure.client.flows.documents.agents import bound_agents
from perdure.engine.flows.documents.document_flow import agent_refs
from perdure.errors import ConfigError
from perdure.secrets.references import unfilled_in
from perdure.session.flows.kinds import DocumentBound
from perdure.tools.builtin.catalogue import BUILTIN
from perdure.tools.registry import ToolRegistry
from perdure.workflow.document import AgentNode
from perdure.workflow.reader import LocatedWorkflow

INSTRUCTIONS = """You work on one step of a workflow of several. What you are told is all you are
given; your answer, as you write it, is what the next step gets."""


class Cast(msgspec.Struct, frozen=True):
    """The agents of a document, and the workflow that these agents can run.

    `remarks` describe how the workflow in `located` differs from the file of the document.
    """

    agents: tuple[Agent, ...]
    located: LocatedWorkflow
    remarks: tuple[str, ...] = ()


def cast_of(found: LocatedWorkflow, acting: RoleOptions) -> Cast:
    """Return the agents that the document `found` needs.

    The validation of the document reports missing or invalid agents.

    Raises: InvalidAgentFile if an agent file has errors; ConfigError if an agent file cannot be
    used.
    """
    own, _ = bound_agents(found, {})
    filed = agents_here(Path(), os.environ)
    agents: list[Agent] = []
    remarks: list[str] = []
    made: dict[str, Agent] = {}
    for ref in agent_refs(found.workflow):
        if ref in own:
            allowed = msgspec.structs.replace(own[ref], permissions=acting.permissions)
            agents.append(_acting(allowed, acting))
        elif any(each.id == ref for each in filed):
            chosen = chosen_agent(ref, filed, acting.permissions)
            agents.append(_acting(chosen.agent, acting))
            remarks += chosen.notes
        elif any(agent.get("id") == ref for agent in found.workflow.agents):
            continue  # with errors, which are reported with all others
        elif (model := acting.named_model) is not None:
            made[ref] = _make_agent(found, ref, model, acting)
    for agent in agents:
        warning = unfilled_in(agent.instructions, f"the instructions of agent {agent.id!r}")
        remarks += [] if warning is None else [warning]
    located, more = _without_unknown(found, made)
    return Cast((*agents, *made.values()), located, (*remarks, *more))


def _acting(agent: Agent, acting: RoleOptions) -> Agent:
    """Return `agent` with the model of the command line, if the command line names one."""
    model = acting.named_model
    return agent if model is None else msgspec.structs.replace(agent, model=model, fallbacks=())


def _make_agent(found: LocatedWorkflow, ref: str, model: str, acting: RoleOptions) -> Agent:
    """Create the undefined agent `ref`, with the built-in tools that its nodes name."""
    named = [
        tool
        for node in found.workflow.nodes
        if isinstance(node, AgentNode) and node.agent_ref == ref
        for tool in node.tools
    ]
    tools = [name for name in dict.fromkeys(named) if name in BUILTIN]
    configuration = Configuration(Path(), os.environ)
    return Agent(
        ref,
        model=model,
        instructions=INSTRUCTIONS,
        tools=tools,
        permissions=acting.permissions,
        **configuration.timeouts,
        **configuration.budget,
    )


def _without_unknown(
    found: LocatedWorkflow, made: Mapping[str, Agent]
) -> tuple[LocatedWorkflow, tuple[str, ...]]:
    """Remove unknown tools from the nodes whose agent is in `made`.

    Returns the new workflow, and remarks about the agents in `made` and the removed tools.
    """
    missing: dict[str, None] = {}
    nodes = list(found.workflow.nodes)
    for number, node in enumerate(nodes):
        if isinstance(node, AgentNode) and node.agent_ref in made:
            kept = tuple(tool for tool in node.tools if tool in BUILTIN)
            missing.update(dict.fromkeys(tool for tool in node.tools if tool not in BUILTIN))
            nodes[number] = msgspec.structs.replace(node, tools=kept)
    workflow = msgspec.structs.replace(found.workflow, nodes=tuple(nodes))
    told = [f"agent {ref!r} is made for this run, with {a.model}" for ref, a in made.items()]
    if missing:
        names = ", ".join(missing)
        told.append(f"the agents work without these tools, which perdure does not have: {names}")
    return msgspec.structs.replace(found, workflow=workflow), tuple(told)


def recast(document: DocumentBound, acting: RoleOptions, *, is_foreign: bool) -> tuple[Agent, ...]:
    """Return the agents of an existing flow, from agent files or from the stored snapshots.

    `is_foreign` means that the flow was imported or is in an untrusted store, so its agents get at
    most the permissions of the command line and the settings.

    Raises: ConfigError if this version cannot read the agents, or if another model is requested,
    because the models were set when the flow began.
    """
    if acting.model is not None:
        raise ConfigError(
            "what the agents of this flow work with was said when it began; `perdure flow "
            "configure ID ROLE -m MODEL` changes it for one of them"
        )
    filed = agents_here(Path(), os.environ)
    agents: list[Agent] = []
    for ref, snapshot in document.agents.items():
        if any(each.id == ref for each in filed):
            agents.append(chosen_agent(ref, filed, acting.permissions).agent)
            continue
        names = [name for name in tool_names(snapshot) if name in BUILTIN]
        agent = agent_of(snapshot, ToolRegistry(tuple(BUILTIN[name] for name in names)))
        if is_foreign:
            allowed = within(agent.permissions, acting.permissions)
            agent = msgspec.structs.replace(agent, permissions=allowed)
        agents.append(agent)
    return tuple(agents)
