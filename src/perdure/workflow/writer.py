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
    written: dict[str, object] = {"name": declared.name, "type": declared.type}
    if declared.required:
        written["required"] = True
    if declared.default is not None:
        written["default"] = declared.default
    if declared.description is not None:
        written["description"] = declared.description
    return written


def _node(node: WorkflowNode) -> dict[str, object]:
    written: dict[str, object] = {"id": node.id, "type": node.__struct_config__.tag}
    if not isinstance(node, AgentNode):
        return written
    written["agent_ref"] = node.agent_ref
    if node.prompt_template is not None:
        written["prompt_template"] = node.prompt_template
    if node.tools:
        written["tools"] = list(node.tools)
    return written
