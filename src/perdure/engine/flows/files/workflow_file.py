"""``workflow.yaml``: the graph of a flow as people and agents write it.

Two workflow files define the graph of a flow. The workflow file in the record folder defines the
nodes and edges. The workflow file of the project (the canonical one) supplies fields that the nodes
lack. All faults of a file are reported together, each with its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import msgspec

from perdure.engine.flows.rules.structure import GraphFault, graph_faults
from perdure.errors import InvalidWorkflow
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.yaml.nodes import YamlNode, YamlReader

_ROOT = ("workflow",)
_WORKFLOW = ("name", "summary", "nodes", "edges", "invariants", "escalation")
_HUMAN = ("human-colab", "human-collaborative", "human_collaborative")
_LISTS = ("work", "required_readings", "guidance", "inputs", "outputs", "notes")
_NODE = ("id", "role", *_LISTS, *_HUMAN, "await-all-inputs")


class NodeDraft(msgspec.Struct, frozen=True):
    """The fields of a node in a file.

    Shape: `fields` contains the `FlowNode` fields that the file sets.
    """

    id: str
    line: int
    fields: Mapping[str, object]


class WorkflowFile(msgspec.Struct, frozen=True):
    """A parsed workflow file. `edge_lines` are the lines of the edges, in their order."""

    name: str
    nodes: tuple[NodeDraft, ...]
    edges: tuple[FlowEdge, ...]
    edge_lines: tuple[int, ...]
    summary: str | None = None
    invariants: tuple[str, ...] = ()
    escalation: tuple[str, ...] = ()


@lru_cache(maxsize=64)  # many flows have the same workflow, and YAML is slow to parse
def read_workflow(text: str, name: str) -> WorkflowFile:
    """Parse the workflow in `text`; `name` is the name of the file in error messages.

    Raises: InvalidWorkflow with every fault and its line.
    """
    reader = _Reader()
    root = reader.nodes.root(text)
    found = None if root is None else reader.file(root)
    if found is None or reader.nodes.faults:
        raise InvalidWorkflow(name, reader.nodes.faults)
    return found


def graph_of(record: WorkflowFile, name: str, canonical: WorkflowFile | None = None) -> Graph:
    """Return the graph of `record`; fields that are missing in `record` come from `canonical`.

    Raises: InvalidWorkflow if the graph cannot be run.
    """
    below = {node.id: node.fields for node in canonical.nodes} if canonical else {}
    nodes: list[FlowNode] = []
    faults: list[GraphFault] = []
    for n, draft in enumerate(record.nodes):
        fields = {**below.get(draft.id, {}), **draft.fields}
        if "role" not in fields:
            faults.append(GraphFault("'role' is missing", n))
        nodes.append(msgspec.convert({"role": "", **fields, "id": draft.id}, FlowNode))
    graph = Graph(
        record.name,
        tuple(nodes),
        record.edges,
        record.summary,
        record.invariants,
        record.escalation,
    )
    faults += [] if faults else graph_faults(graph)
    if faults:
        raise InvalidWorkflow(name, _with_lines(faults, record))
    return graph


def _with_lines(faults: Iterable[GraphFault], file: WorkflowFile) -> tuple[str, ...]:
    """Return `faults` as sentences with their lines, in the order of the lines."""
    found: list[tuple[int, str]] = []
    for fault in faults:
        if fault.node is not None:
            found.append((file.nodes[fault.node].line, fault.text))
        elif fault.edge is not None:
            found.append((file.edge_lines[fault.edge], fault.text))
        else:
            found.append((0, fault.text))
    found.sort(key=lambda each: each[0])
    return tuple(f"line {line}: {text}" if line else text for line, text in found)


class _Reader:
    def __init__(self) -> None:
        self.nodes = YamlReader()

    def file(self, root: YamlNode) -> WorkflowFile:
        """Return the workflow of the whole file, whose top YAML node is `root`."""
        outer = self.nodes.mapping(root, _ROOT, _ROOT)
        if "workflow" not in outer:
            return WorkflowFile("", (), (), ())
        node = outer["workflow"]
        fields = self.nodes.mapping(node, _WORKFLOW, ("name", "nodes", "edges"))
        nodes = tuple(self._node(each) for each in self._items(fields, "nodes"))
        if "nodes" in fields and not nodes:
            self.nodes.fault(fields["nodes"], "a workflow needs at least one node")
        edges = self._items(fields, "edges")
        return WorkflowFile(
            name=self._sentence(fields, "name") or "",
            nodes=nodes,
            edges=tuple(self._edge(each) for each in edges),
            edge_lines=tuple(each.line for each in edges),
            summary=self._sentence(fields, "summary"),
            invariants=self._texts(fields, "invariants"),
            escalation=self._texts(fields, "escalation"),
        )

    def _node(self, node: YamlNode) -> NodeDraft:
        fields = self.nodes.mapping(node, _NODE, ("id",))
        found: dict[str, object] = {}
        if "role" in fields:
            found["role"] = self.nodes.text(fields["role"])
        for name in _LISTS:
            if name in fields:
                found[name] = self._texts(fields, name)
        for name in _HUMAN:
            if name in fields:
                found["has_human"] = self.nodes.boolean(fields[name])
        if "await-all-inputs" in fields:
            found["awaits_all_inputs"] = self.nodes.boolean(fields["await-all-inputs"])
        self._check_readings(fields)
        id = self.nodes.text(fields["id"]) if "id" in fields else ""
        if "id" in fields and (not id.strip() or "=>" in id):
            self.nodes.fault(fields["id"], f"{id!r} cannot be the id of a node")
        return NodeDraft(id, node.line, found)

    def _check_readings(self, fields: Mapping[str, YamlNode]) -> None:
        for each in self._items(fields, "required_readings"):
            if each.kind == "str" and not each.text.startswith("$"):
                self.nodes.fault(each, f"{each.text!r} is no name of the index: expected $NAME")

    def _edge(self, node: YamlNode) -> FlowEdge:
        fields = self.nodes.mapping(node, ("from", "to"), ("from", "to"))
        ends = [self.nodes.text(fields[end]) if end in fields else "" for end in ("from", "to")]
        return FlowEdge(*ends)

    def _items(self, fields: Mapping[str, YamlNode], name: str) -> tuple[YamlNode, ...]:
        if name not in fields or (fields[name].kind == "str" and name in _LISTS):
            return ()
        return self.nodes.items(fields[name])

    def _texts(self, fields: Mapping[str, YamlNode], name: str) -> tuple[str, ...]:
        """Return the texts in the field `name`; a single text counts as a list of one text."""
        read: Callable[[YamlNode], str] = self.nodes.text
        if name in fields and fields[name].kind == "str":
            return (read(fields[name]),)
        return tuple(read(each) for each in self._items(fields, name))

    def _sentence(self, fields: Mapping[str, YamlNode], name: str) -> str | None:
        if name not in fields:
            return None
        text = self.nodes.text(fields[name])
        if fields[name].kind == "str" and not text.strip():
            self.nodes.fault(fields[name], f"{name!r} is empty")
        return text
