"""Rules for a runnable workflow graph, and for edits of the graph of a running flow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from perdure.bounds.limits import limits
from perdure.session.flows.graph import (
    ARROW,
    FlowEdge,
    Graph,
    base_role,
    edge_key,
    ends_of,
    is_role,
)
from perdure.session.flows.run import FlowRun

INTAKE = "owner-intake"
OWNER = "owner"
RESERVED = frozenset({"a-society-feedback"})
"""Roles that only the runtime may use."""


class GraphFault(NamedTuple):
    """A reason why a graph cannot be run, and the node or edge that it is about.

    Shape: `node` and `edge` are positions in the graph's nodes and edges; both are None for a fault
    of the whole graph.
    """

    text: str
    node: int | None = None
    edge: int | None = None


def faults_of(graph: Graph) -> list[str]:
    """Return the reasons why `graph` cannot be run, as sentences; empty if it can be run."""
    return [fault.text for fault in graph_faults(graph)]


def graph_faults(graph: Graph) -> list[GraphFault]:
    """Return the reasons why `graph` cannot be run, with their places; empty if it can be run."""
    faults = [*_id_faults(graph), *_edge_faults(graph)]
    if faults:
        return faults  # later checks would only repeat them
    cycle = cycle_in(graph)
    if cycle:
        text = f"the edges go round in a circle: {f' {ARROW} '.join(cycle)}"
        closing = FlowEdge(cycle[-2], cycle[-1])
        faults.append(GraphFault(text, edge=graph.edges.index(closing)))
    faults += _ends(graph)
    return faults


def _id_faults(graph: Graph) -> Iterator[GraphFault]:
    if not graph.nodes:
        yield GraphFault("a workflow needs at least one node")
    most = limits().name_characters
    if len(graph.name) > most:
        told = f"the name of the workflow has {len(graph.name):,} characters, at most {most:,}"
        yield GraphFault(told)
    for n, id in _repeated_items(node.id for node in graph.nodes):
        yield GraphFault(f"two nodes are called {id!r}", n)
    for n, node in enumerate(graph.nodes):
        if not is_role(node.role):
            told = (
                f"node {node.id!r} has the role {node.role!r}: use lowercase words joined by "
                "hyphens, perhaps with _1, _2 for several of one role"
            )
            yield GraphFault(told, n)
        elif base_role(node.role) in RESERVED:
            told = f"node {node.id!r} has the role {node.role!r}, which is perdure's own"
            yield GraphFault(told, n)


def _edge_faults(graph: Graph) -> Iterator[GraphFault]:
    ids = {node.id for node in graph.nodes}
    for n, edge in enumerate(graph.edges):
        for end in (edge.source, edge.target):
            if end not in ids:
                told = f"the edge {edge.key} names {end!r}, which is no node"
                yield GraphFault(told, edge=n)
        if edge.source == edge.target:
            yield GraphFault(f"the edge {edge.key} leads from a node to itself", edge=n)
    for n, key in _repeated_items(edge.key for edge in graph.edges):
        yield GraphFault(f"the edge {key} is there twice", edge=n)


def _repeated_items(items: Iterable[str]) -> list[tuple[int, str]]:
    """Return each item that equals an earlier one, with its place."""
    seen: set[str] = set()
    return [(n, item) for n, item in enumerate(items) if item in seen or seen.add(item)]


def _ends(graph: Graph) -> Iterator[GraphFault]:
    first = graph.nodes[0]
    if first.id != INTAKE:
        yield GraphFault(f"the first node is {first.id!r}; it must be {INTAKE!r}", 0)
    if first.role != OWNER:
        told = f"node {first.id!r} has the role {first.role!r}; the first node's must be {OWNER!r}"
        yield GraphFault(told, 0)
    places = {node.id: n for n, node in enumerate(graph.nodes)}
    for source in sources_of(graph):
        if source != first.id:
            told = f"nothing is handed to node {source!r}; only {INTAKE!r} may begin the work"
            yield GraphFault(told, places[source])
    for sink in sinks_of(graph):
        place = places[sink]
        if graph.nodes[place].role != OWNER and len(graph.nodes) > 1:
            told = f"node {sink!r} hands over to nobody, so its role must be {OWNER!r}"
            yield GraphFault(told, place)


def sources_of(graph: Graph) -> tuple[str, ...]:
    """Return the ids of nodes without predecessors, in the order of the nodes."""
    return tuple(node.id for node in graph.nodes if not graph.predecessors(node.id))


def sinks_of(graph: Graph) -> tuple[str, ...]:
    """Return the ids of nodes without successors, in the order of the nodes."""
    return tuple(node.id for node in graph.nodes if not graph.successors(node.id))


def cycle_in(graph: Graph) -> Sequence[str]:
    """Return the nodes of a cycle, with the first node again at the end; empty without a cycle."""
    done: set[str] = set()
    for start in graph.nodes:
        path: dict[str, None] = {}
        waiting: list[tuple[str, bool]] = [(start.id, True)]
        while waiting:
            id, is_entered = waiting.pop()
            if not is_entered:
                done.add(path.popitem()[0])
            elif id in path:
                ids = [*path]
                return [*ids[ids.index(id) :], id]
            elif id not in done:
                path[id] = None
                waiting.append((id, False))
                waiting += [(target, True) for target in graph.successors(id)]
    return ()


def faults_of_edit(run: FlowRun, before: Graph, after: Graph) -> list[str]:
    """Return why a flow in the state `run` cannot replace the graph `before` by `after`."""
    faults = faults_of(after)
    if faults:
        return faults
    return [*_lost_nodes(run, after), *_lost_edges(run, after), *_lost_waits(run, before, after)]


def _lost_nodes(run: FlowRun, after: Graph) -> Iterator[str]:
    used = {
        *run.running_nodes,
        *run.awaiting_human_nodes,
        *run.pending_human_inputs,
        *run.pending_handoff_approvals,
        *run.visited_node_ids,
        *run.awaiting_handoff,
    }
    for key in (*run.completed_handoffs, *run.receiving_handoff):
        used.update(ends_of(key))
    for id in sorted(used):
        if after.node(id) is None:
            yield f"node {id!r} has worked or waits, and cannot be taken away"


def _lost_edges(run: FlowRun, after: Graph) -> Iterator[str]:
    for key in run.completed_handoffs:
        if not after.has_edge(*ends_of(key)):
            yield f"the handoff {key} was made, so its edge must stay"
    for id, targets in run.pending_handoff_approvals.items():
        for each in targets:
            if not after.has_edge(id, each.node) and not after.has_edge(each.node, id):
                key = edge_key(id, each.node)
                yield f"the handoff {key} waits to be approved, so its edge must stay"
    for key in run.receiving_handoff:
        source, target = ends_of(key)
        if not after.has_edge(source, target) and not after.has_edge(target, source):
            yield f"the handoff {key} has not been delivered, so its edge must stay"


def _lost_waits(run: FlowRun, before: Graph, after: Graph) -> Iterator[str]:
    for id in run.running_nodes:
        was, node = before.node(id), after.node(id)
        if was is not None and node is not None and node.role != was.role:
            yield f"node {id!r} is at work as {was.role!r} and must keep that role"
    for id, waiting in run.awaiting_human_nodes.items():
        node = after.node(id)
        if node is not None and node.role != waiting.role:
            yield f"node {id!r} waits for a person as {waiting.role!r} and must keep that role"
    for id in run.awaiting_handoff:
        if before.predecessors(id) and not after.predecessors(id) and id not in run.received:
            yield f"node {id!r} waits for a handoff, and no edge leads to it any more"


def edge_faults(graph: Graph, source: str, target: str) -> str | None:
    """Return why `source` cannot hand over to `target`; None if an edge connects them."""
    if graph.has_edge(source, target) or graph.has_edge(target, source):
        return None
    legal = (*graph.successors(source), *graph.predecessors(source))
    return f"{edge_key(source, target)} is no edge; {source} may hand over to: {', '.join(legal)}"
