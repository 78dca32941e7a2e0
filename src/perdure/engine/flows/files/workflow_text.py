"""Write a graph as the text of a ``workflow.yaml`` that parses to the same graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from perdure.session.flows.graph import FlowNode, Graph


def workflow_text(graph: Graph) -> str:
    """Return `graph` as a workflow file.

    Shape: texts are quoted as in JSON, so they cannot be parsed as YAML syntax.
    """
    return "\n".join([*_lines(graph), ""])


def _lines(graph: Graph) -> Iterator[str]:
    yield "workflow:"
    yield f"  name: {_text(graph.name)}"
    if graph.summary is not None:
        yield f"  summary: {_text(graph.summary)}"
    yield from _list("invariants", graph.invariants, "  ")
    yield from _list("escalation", graph.escalation, "  ")
    yield "  nodes:"
    for node in graph.nodes:
        yield from _node(node)
    yield "  edges:" if graph.edges else "  edges: []"
    for edge in graph.edges:
        yield f"    - {{from: {_text(edge.source)}, to: {_text(edge.target)}}}"


def _node(node: FlowNode) -> Iterator[str]:
    yield f"    - id: {_text(node.id)}"
    yield f"      role: {_text(node.role)}"
    if node.has_human:
        yield "      human-colab: true"
    if node.awaits_all_inputs:
        yield "      await-all-inputs: true"
    for name in ("required_readings", "work", "guidance", "inputs", "outputs", "notes"):
        yield from _list(name, getattr(node, name), "      ")


def _list(name: str, items: Sequence[str], indent: str) -> Iterator[str]:
    if items:
        yield f"{indent}{name}:"
        yield from (f"{indent}  - {_text(item)}" for item in items)


def _text(text: str) -> str:
    quoted = msgspec.json.encode(text).decode()
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
