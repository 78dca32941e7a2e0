"""Convert a workflow document to a flow: its graph, its conversations, and its entry in the log.

Consecutive nodes of the same agent share one conversation in one session. A node continues a
conversation under three conditions: it has only one agent node as a predecessor, this predecessor
has the same agent, and the predecessor has no other agent node as a successor. Under these
conditions, the nodes of an exported session become one conversation again. Branches of a document
run in parallel, in separate conversations.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.engine.flows.files.workflow_text import workflow_text
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.flows.kinds import DocumentBound
from perdure.session.flows.run import FlowState
from perdure.workflow.document import AgentNode, InputNode, Workflow, WorkflowNode
from perdure.workflow.writer import serialize


def graph_of(workflow: Workflow) -> Graph:
    """Return the graph of a flow that runs `workflow`.

    Shape: the graph has the nodes and edges of `workflow`, in the same order. The role of an agent
    node is a role instance of its agent; the role of another node is ``input`` or ``output``.
    """
    roles = conversations(workflow)
    nodes = [
        FlowNode(
            node.id,
            roles.get(node.id, "input" if isinstance(node, InputNode) else "output"),
            awaits_all_inputs=sum(edge.target == node.id for edge in workflow.edges) > 1,
        )
        for node in workflow.nodes
    ]
    edges = tuple(FlowEdge(edge.source, edge.target) for edge in workflow.edges)
    return Graph(workflow.name or workflow.id, tuple(nodes), edges)


def conversations(workflow: Workflow) -> dict[str, str]:
    """Map each agent node to the role instance that runs it.

    Shape: the keys are in the order of the nodes. The first conversation of the agent ``helper`` is
    named ``helper``, the next ``helper_2``.
    """
    agents = {node.id: node for node in workflow.nodes if isinstance(node, AgentNode)}
    before = {id: _continued_node(workflow, agents, node) for id, node in agents.items()}
    numbers: dict[str, int] = {}
    names: dict[str, str] = {}
    for id, node in agents.items():
        if before[id] is None:
            number = numbers[node.agent_ref] = numbers.get(node.agent_ref, 0) + 1
            names[id] = node.agent_ref if number == 1 else f"{node.agent_ref}_{number}"
    # In a cycle no node is first; validation reports cycles.
    return {id: names.get(_first(before, id), node.agent_ref) for id, node in agents.items()}


def _continued_node(
    workflow: Workflow, agents: Mapping[str, AgentNode], node: AgentNode
) -> str | None:
    """Return the node whose conversation `node` continues; None if `node` begins a conversation."""
    before = [e.source for e in workflow.edges if e.target == node.id and e.source in agents]
    if len(before) != 1 or agents[before[0]].agent_ref != node.agent_ref:
        return None
    after = [e.target for e in workflow.edges if e.source == before[0] and e.target in agents]
    return before[0] if len(after) == 1 else None


def _first(before: Mapping[str, str | None], id: str) -> str:
    """Return the first node of the conversation of node `id`; in a cycle, any node of the cycle."""
    seen = {id}
    while (previous := before[id]) is not None and previous not in seen:
        seen.add(previous)
        id = previous
    return id


def passive_nodes(workflow: Workflow) -> tuple[str, ...]:
    """Return the nodes that no agent works on."""
    return tuple(node.id for node in workflow.nodes if not isinstance(node, AgentNode))


def bind_document(
    workflow: Workflow,
    inputs: Mapping[str, object],
    context: Mapping[str, str],
    agents: Mapping[str, dict[str, object]],
) -> DocumentBound:
    """Return the entry body that records `workflow` in the flow's log. See `DocumentBound`."""
    kept = msgspec.structs.replace(workflow, metadata={})
    return DocumentBound(
        msgspec.to_builtins(kept),
        passive_nodes(workflow),
        dict(inputs),
        dict(context),
        dict(agents),
    )


def workflow_of(document: DocumentBound) -> Workflow:
    """Return the workflow that `document` recorded in the log of a flow."""
    return msgspec.convert(document.workflow, Workflow)


def workflow_text_of(state: FlowState) -> str:
    """Return the text of the flow's workflow file: a workflow document, or a ``workflow.yaml``."""
    if state.document is None:
        return workflow_text(state.graph)
    return serialize(workflow_of(state.document))


def node_of(workflow: Workflow, id: str) -> WorkflowNode | None:
    """Return the node with the id `id`; None if there is none."""
    return next((node for node in workflow.nodes if node.id == id), None)


def agent_refs(workflow: Workflow) -> tuple[str, ...]:
    """Return the names of the workflow's agents, each once, in the order of the nodes."""
    return tuple(dict.fromkeys(n.agent_ref for n in workflow.nodes if isinstance(n, AgentNode)))
