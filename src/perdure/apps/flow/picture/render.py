"""Renders a workflow and its state as terminal lines, Mermaid or dot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from perdure.apps.terminal.style import Meaning, Style
from perdure.apps.terminal.text import clip, one_line, pad, safe
from perdure.engine.flows.rules.flow_waits import FlowWait, declined_of
from perdure.engine.flows.rules.parts import running_parts
from perdure.session.flows.graph import FlowNode, Graph, edge_key
from perdure.session.flows.run import AwaitingHuman, FlowState

GraphFormat = Literal["text", "mermaid", "dot"]

_QUIET: tuple[NodeStanding, ...] = ("pending", "completed")
"""Statuses in which a node is shown without the newest text of its role."""


def render(
    graph: Graph,
    format: GraphFormat,
    style: Style,
    width: int,
    state: FlowState | None = None,
) -> Iterator[str]:
    """Render `graph` in `format`, with its `state` if that is given."""
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
    """Render each node and its edges as lines. `said` contains the newest text of each role."""
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
    """Return the queued reply for `node`; if there is none, the newest text of the node's role."""
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
    colour = LOOKS[stands].colour
    mark = style.paint(symbol_of(stands, style), colour)
    return f"{mark} {style.paint(id, 'strong')}  {style.paint(rest, colour)}"


def _edge(source: str, target: str, style: Style, width: int, state: FlowState | None) -> str:
    arrow, back, tick = ("─▶", "◀─", "✓") if style.is_unicode else ("->", "<-", "+")
    if state is None:
        return style.paint(clip(f"    {arrow} {safe(target)}", width), "faint")
    returned, is_asked = along(state, target, source)
    if is_asked:
        told = f"    {back} {safe(target)}  sent back: {safe(returned)}"
        return style.paint(clip(told, width), "warning")
    artifact, is_unread = along(state, source, target)
    is_done = edge_key(source, target) in state.run.completed
    word = f"{tick} {safe(artifact)}{' (not read yet)' if is_unread else ''}" if is_done else ""
    told = clip(f"    {arrow} {safe(target)}  {word}".rstrip(), width)
    return style.paint(told, "good" if is_done else "faint")


def _in_order(graph: Graph) -> Sequence[FlowNode]:
    """Return the nodes in topological order; nodes in a cycle come last, in file order."""
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
        for stands, look in LOOKS.items():
            yield f"  classDef {stands.replace(' ', '-')} fill:{look.shade},color:#000"


def _dot(graph: Graph, state: FlowState | None) -> Iterator[str]:
    yield f"digraph {_quote(graph.name)} {{"
    yield "  node [shape=box, style=filled, fillcolor=white];"
    for node in graph.nodes:
        shade = "" if state is None else f', fillcolor="{LOOKS[standing(state, node)].shade}"'
        label = _quote(f"{node.id}\n{node.role}")
        yield f"  {_quote(node.id)} [label={label}{shade}];"
    for edge in graph.edges:
        yield f"  {_quote(edge.source)} -> {_quote(edge.target)};"
    yield "}"


def _quote(text: str) -> str:
    return msgspec.json.encode(text).decode()


NodeStanding = Literal["pending", "active", "awaiting human", "backward", "completed"]


class Look(NamedTuple):
    """How a node is drawn: its symbol, its symbol in ASCII, its colour, and its colour in files."""

    symbol: str
    ascii: str
    colour: Meaning
    shade: str


LOOKS: Mapping[NodeStanding, Look] = {
    "pending": Look("○", ".", "faint", "#eeeeee"),
    "active": Look("●", "*", "label", "#ffe08a"),
    "awaiting human": Look("?", "?", "system", "#e0b0ff"),
    "backward": Look("↩", "<", "warning", "#ffc38a"),
    "completed": Look("✓", "+", "good", "#b7e4c7"),
}


def symbol_of(stands: NodeStanding, style: Style) -> str:
    """Return the symbol of a node with the status `stands`."""
    return LOOKS[stands].symbol if style.is_unicode else LOOKS[stands].ascii


def standing(state: FlowState, node: FlowNode) -> NodeStanding:
    """Return the status of `node`.

    ``backward`` means that the node waits for improved work from an earlier node, or that the node
    must improve its own work. ``completed`` means that the node has run and handed over along all
    its edges.
    """
    run, id = state.run, node.id
    if id in run.running_nodes:
        return "active"
    if id in run.awaiting_human_nodes:
        return "awaiting human"
    later = state.graph.successors(id)
    is_asked = any(edge_key(after, id) in run.receiving_handoff for after in later)
    if id in run.awaiting_handoff or is_asked:
        return "backward"
    keys = state.graph.keys_to(id) | state.graph.keys_from(id)
    is_done = id in run.visited and run.completed.has_all(keys)
    is_read = id not in run.received
    return "completed" if is_done and is_read else "pending"


def overlaid(state: FlowState, waiting: Iterable[FlowWait]) -> FlowState:
    """Return `state`; nodes whose roles ask for consent are marked as waiting for a person.

    In the flow's own state, a node whose role asks for consent counts as running, because the
    question belongs to the node's turn.
    """
    asked = {each.target: each.text for each in waiting if each.session is not None}
    run = state.run
    nodes = [n for id in run.running_nodes if (n := state.graph.node(id)) and n.role in asked]
    if not nodes:
        return state
    ids = {node.id for node in nodes}
    told = {node.id: AwaitingHuman(node.role, "consent", asked[node.role]) for node in nodes}
    run = msgspec.structs.replace(
        run,
        running_nodes=tuple(id for id in run.running_nodes if id not in ids),
        awaiting_human_nodes=run.awaiting_human_nodes | told,
    )
    return msgspec.structs.replace(state, run=run)


def is_blocked(state: FlowState, waiting: Iterable[FlowWait]) -> bool:
    """Whether all running roles wait for consent."""
    roles = {part.role for part in running_parts(state)}
    asked = {each.target for each in waiting if each.session is not None}
    return bool(roles) and roles <= asked


def along(state: FlowState, source: str, target: str) -> tuple[str, bool]:
    """Return the newest artifact sent from `source` to `target`, and whether it is unread.

    Shape: the first value is the artifact's name, or "" if nothing was sent.
    """
    key = edge_key(source, target)
    sent = state.run.history_handoff.get(key, ())
    return (sent[-1] if sent else ""), key in state.run.receiving_handoff
