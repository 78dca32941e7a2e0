"""YAML as a workflow, strictly: every fault is told with its line, or there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from perdure.errors import InvalidWorkflow
from perdure.models.yaml_nodes import Node, NodeReader
from perdure.workflow.document import (
    KEBAB,
    SCHEMA_VERSION,
    AgentNode,
    Edge,
    InputNode,
    OutputNode,
    Workflow,
    WorkflowNode,
)

AGENT_KEYS = (
    *("id", "name", "description", "model", "provider", "system_prompt"),
    *("temperature", "max_tokens", "reasoning_effort", "input_schema", "output_schema"),
    *("tools", "mcp_servers", "memory", "retry", "fallback_chain"),
)
"""Keys of an agent, in an agent file and in a workflow."""

_ROOT_KEYS = ("schema_version", "workflow")
_KEYS = ("id", "name", "agents", "nodes", "edges", "metadata")
_TYPES = ("input", "agent", "output")
_AGENT_NODE_KEYS = ("id", "type", "agent_ref", "prompt_template", "tools")


def parse(text: str, name: str = "the workflow") -> Workflow:
    """The workflow in `text`, called `name` in errors.

    Raises: InvalidWorkflow with every fault and its line.
    """
    reader = _Reader()
    root = reader.nodes.root(text)
    workflow = None if root is None else reader.document(root)
    if workflow is None or reader.nodes.faults:
        raise InvalidWorkflow(name, reader.nodes.faults)
    return workflow


class _Reader:
    def __init__(self) -> None:
        self.nodes = NodeReader()

    def document(self, root: Node) -> Workflow:
        """The workflow of the whole file."""
        fields = self.nodes.mapping(root, _ROOT_KEYS, _ROOT_KEYS)
        if "schema_version" in fields:
            self.nodes.choice(fields["schema_version"], (SCHEMA_VERSION,))
        if "workflow" not in fields:
            return Workflow("", ())
        return self._workflow(fields["workflow"])

    def _workflow(self, node: Node) -> Workflow:
        fields = self.nodes.mapping(node, _KEYS, ("id", "nodes", "edges"))
        nodes = [self._node(each) for each in self._items(fields, "nodes")]
        if "nodes" in fields and not nodes:
            self.nodes.fault(fields["nodes"], "a workflow needs at least one node")
        self._unique(self._items(fields, "nodes"), [each.id for each in nodes], "node")
        known = {each.id for each in nodes}
        edges = [self._edge(each, known) for each in self._items(fields, "edges")]
        agents = [self._agent(each) for each in self._items(fields, "agents")]
        self._unique(
            self._items(fields, "agents"), [str(agent.get("id", "")) for agent in agents], "agent"
        )
        return Workflow(
            id=self._kebab(fields["id"]) if "id" in fields else "",
            nodes=tuple(nodes),
            edges=tuple(edges),
            name=self.nodes.text(fields["name"]) if "name" in fields else None,
            agents=tuple(agents),
            metadata=self._object(fields["metadata"]) if "metadata" in fields else {},
        )

    def _node(self, node: Node) -> WorkflowNode:
        loose = {key.text: value for key, value in node.pairs}
        kind = loose["type"].text if "type" in loose else ""
        known = _AGENT_NODE_KEYS if kind == "agent" else ("id", "type")
        required = ("id", "type", "agent_ref") if kind == "agent" else ("id", "type")
        fields = self.nodes.mapping(node, known, required)
        id = self.nodes.text(fields["id"]) if "id" in fields else ""
        if "type" in fields:
            kind = self.nodes.choice(fields["type"], _TYPES)
        if kind != "agent":
            return OutputNode(id) if kind == "output" else InputNode(id)
        prompt = fields.get("prompt_template")
        return AgentNode(
            id=id,
            agent_ref=self._kebab(fields["agent_ref"]) if "agent_ref" in fields else "",
            prompt_template=None if prompt is None else self.nodes.text(prompt),
            tools=tuple(self.nodes.text(each) for each in self._items(fields, "tools")),
        )

    def _edge(self, node: Node, known: set[str]) -> Edge:
        fields = self.nodes.mapping(node, ("from", "to"), ("from", "to"))
        for end in fields.values():
            if self.nodes.text(end) not in known:
                self.nodes.fault(end, f"there is no node {end.text!r}")
        ends = [fields[end].text if end in fields else "" for end in ("from", "to")]
        return Edge(*ends)

    def _agent(self, node: Node) -> Mapping[str, object]:
        fields = self.nodes.mapping(node, AGENT_KEYS, ("id",))
        if "id" in fields:
            self._kebab(fields["id"])
        return {key: self.nodes.data(value) for key, value in fields.items()}

    def _items(self, fields: Mapping[str, Node], key: str) -> Sequence[Node]:
        return self.nodes.items(fields[key]) if key in fields else ()

    def _object(self, node: Node) -> Mapping[str, object]:
        if node.kind != "map":
            self.nodes.fault(node, "expected a mapping")
            return {}
        return cast("dict[str, object]", self.nodes.data(node))

    def _kebab(self, node: Node) -> str:
        text = self.nodes.text(node)
        if text and not KEBAB.fullmatch(text):
            self.nodes.fault(node, f"{text!r} is not an id: use a-z, 0-9 and single hyphens")
        return text

    def _unique(self, nodes: Sequence[Node], ids: Sequence[str], what: str) -> None:
        seen: set[str] = set()
        for node, id in zip(nodes, ids, strict=True):
            if id in seen:
                self.nodes.fault(node, f"a second {what} is called {id!r}")
            seen.add(id)
