"""Write a workflow as YAML; equal workflows always give the same bytes."""

from __future__ import annotations

from perdure.workflow.document import SCHEMA_VERSION, AgentNode, RunInput, Workflow, WorkflowNode
from perdure.yaml.writer import yaml_of


def serialize(workflow: Workflow) -> str:
    """Return `workflow` as YAML; ``parse`` reads this YAML back as an equal workflow."""
    return yaml_of({"schema_version": SCHEMA_VERSION, "workflow": _workflow(workflow)})


def _workflow(workflow: Workflow) -> dict[str, object]:
    written: dict[str, object] = {
        "id": workflow.id,
        "name": workflow.name,
        "inputs": [_input(each) for each in workflow.inputs],
        "context": [{"key": each.key, "value": each.value} for each in workflow.context],
        "agents": list(workflow.agents),
        "nodes": [_node(node) for node in workflow.nodes],
        "metadata": workflow.metadata,
    }
    edges = [{"from": edge.source, "to": edge.target} for edge in workflow.edges]
    return {**{key: value for key, value in written.items() if value}, "edges": edges}


def _input(declared: RunInput) -> dict[str, object]:
    return _given(
        name=declared.name,
        type=declared.type,
        required=declared.required or None,
        default=declared.default,
        description=declared.description,
    )


def _node(node: WorkflowNode) -> dict[str, object]:
    written = _given(id=node.id, type=node.__struct_config__.tag)
    if isinstance(node, AgentNode):
        tools = list(node.tools) or None
        written |= _given(
            agent_ref=node.agent_ref, prompt_template=node.prompt_template, tools=tools
        )
    return written


def _given(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
