"""A workflow drawn: as lines for a terminal, with where it stands, and as Mermaid and dot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from perdure.apps.flow.picture.node_status import COLOURS, SYMBOLS, NodeStanding, along, standing
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import clip, one_line, pad, safe
from perdure.engine.flows.rules.pending import declined_of
from perdure.session.flows.graph import FlowNode, Graph
from perdure.session.flows.run import FlowState

GraphFormat = Literal["text", "mermaid", "dot"]

_QUIET: tuple[NodeStanding, ...] = ("pending", "completed")
"""A node that stands so shows no words of its role."""

_SHADES: dict[NodeStanding, str] = {
    "pending": "#eeeeee",
    "active": "#ffe08a",
    "awaiting human": "#e0b0ff",
    "backward": "#ffc38a",
    "completed": "#b7e4c7",
}


def render(
    graph: Graph,
    format: GraphFormat,
    style: Style,
    width: int,
    state: FlowState | None = None,
) -> Iterator[str]:
    """`graph` in `format`; where it stands is in it if `state` is given."""
    if format == "text":
        return lines(graph, style, width, state)
    return _mermaid(graph, state) if format == "mermaid" else _dot(graph, state)


def lines(
    graph: Graph,
    style: Style,
    width: int,
    state: FlowState | None = None,
    said: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """`graph` as lines: each node, then what it hands on to. `said` is each role's newest words."""
    ids = max((len(node.id) for node in graph.nodes), default=0)
    roles = max((len(node.role) for node in graph.nodes), default=0)
    for node in _in_order(graph):
        yield _node(node, (min(ids, 30), min(roles, 24)), style, width, state)
        words = "" if state is None else _words(node, state, said or {})
        if words:
            mark = "│ " if style.is_unicode else "| "
            yield style.paint(f"    {mark}{one_line(words, width - 6)}", "faint")
        for target in graph.successors(node.id):
            yield _edge(node.id, target, style, width, state)


def _words(node: FlowNode, state: FlowState, said: Mapping[str, str]) -> str:
    """The reply that is queued for `node`, else the newest words of its role."""
    queued = state.run.pending_human_inputs.get(node.id)
    if queued is not None:
        return f"reply queued: {queued.text}"
    return said.get(node.role, "") if standing(state, node) not in _QUIET else ""


def _node(
    node: FlowNode, sizes: tuple[int, int], style: Style, width: int, state: FlowState | None
) -> str:
    id, role = pad(safe(node.id), sizes[0]), pad(safe(node.role), sizes[1])
    marks = [
        *(["human-colab"] if node.has_human else []),
        *(["await-all-inputs"] if node.awaits_all_inputs else []),
    ]
    if state is None:
        told = clip(f"{id}  {role}  {', '.join(marks)}".rstrip(), width)
        return style.paint(told[: len(id)], "strong") + told[len(id) :]
    stands = standing(state, node)
    waiting = state.run.awaiting_human_nodes.get(node.id)
    why = stands
    if waiting is not None:
        is_declined = declined_of(state, node.id) is not None
        why = f"{stands}: {'handoff declined' if is_declined else waiting.reason}"
    rest = clip(f"{role}  {why}", width - len(id) - 4)
    symbol = SYMBOLS[stands][0 if style.is_unicode else 1]
    mark = style.paint(symbol, COLOURS[stands])
    return f"{mark} {style.paint(id, 'strong')}  {style.paint(rest, COLOURS[stands])}"


def _edge(source: str, target: str, style: Style, width: int, state: FlowState | None) -> str:
    arrow, back, tick = ("─▶", "◀─", "✓") if style.is_unicode else ("->", "<-", "+")
    if state is None:
        return style.paint(clip(f"    {arrow} {safe(target)}", width), "faint")
    returned, is_asked = along(state, target, source)
    if is_asked:
        told = f"    {back} {safe(target)}  sent back: {safe(returned)}"
        return style.paint(clip(told, width), "warning")
    artifact, is_unread = along(state, source, target)
    is_done = f"{source}=>{target}" in state.run.completed
    word = f"{tick} {safe(artifact)}{' (not read yet)' if is_unread else ''}" if is_done else ""
    told = clip(f"    {arrow} {safe(target)}  {word}".rstrip(), width)
    return style.paint(told, "good" if is_done else "faint")


def _in_order(graph: Graph) -> Sequence[FlowNode]:
    """The nodes, each after all that hand to it; those of a circle last, as they are written."""
    left = list(graph.nodes)
    ordered: list[FlowNode] = []
    while left:
        waiting = {node.id for node in left}
        ready = [n for n in left if not waiting.intersection(graph.predecessors(n.id))]
        ordered += ready or left
        left = [node for node in left if node not in ordered]
    return ordered


def _mermaid(graph: Graph, state: FlowState | None) -> Iterator[str]:
    names = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    yield "flowchart TD"
    for node in graph.nodes:
        stands = "" if state is None else f":::{standing(state, node).replace(' ', '-')}"
        label = f"{node.id}<br/>{node.role}".replace('"', "#quot;")
        yield f'  {names[node.id]}["{label}"]{stands}'
    for edge in graph.edges:
        yield f"  {names[edge.source]} --> {names[edge.target]}"
    if state is not None:
        for stands, shade in _SHADES.items():
            yield f"  classDef {stands.replace(' ', '-')} fill:{shade},color:#000"


def _dot(graph: Graph, state: FlowState | None) -> Iterator[str]:
    yield f"digraph {_quote(graph.name)} {{"
    yield "  node [shape=box, style=filled, fillcolor=white];"
    for node in graph.nodes:
        shade = "" if state is None else f', fillcolor="{_SHADES[standing(state, node)]}"'
        label = _quote(f"{node.id}\n{node.role}")
        yield f"  {_quote(node.id)} [label={label}{shade}];"
    for edge in graph.edges:
        yield f"  {_quote(edge.source)} -> {_quote(edge.target)};"
    yield "}"


def _quote(text: str) -> str:
    return msgspec.json.encode(text).decode()
