"""A flow's log in memory: tests append bodies and read the folded state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from perdure.session.entries import Entry
from perdure.session.flows.fold import flow_state, state_after
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.flows.kinds import FlowStarted, HandoffMade, HandoffTarget, NodeClaimed
from perdure.session.flows.run import FlowRun, FlowState
from perdure.session.ids import StreamId
from perdure.session.notes import SideBody

T = TypeVar("T")

FLOW = StreamId("20260527T143000123Z-a1b2c3")


def graph(*edges: str, **roles: str) -> Graph:
    """Return the graph of edges such as ``a>b``; a node's role is its id, or the one in `roles`."""
    pairs = [edge.split(">") for edge in edges]
    ids = dict.fromkeys(id for pair in pairs for id in pair)
    nodes = tuple(FlowNode(id, roles.get(id, id)) for id in (ids or roles))
    return Graph("a flow", nodes, tuple(FlowEdge(a, b) for a, b in pairs))


class Counted(tuple[T, ...]):
    """Nodes or edges that count how often they are iterated."""

    reads = 0

    def __iter__(self) -> Iterator[T]:
        self.reads += 1
        return super().__iter__()


def owing_in(state: FlowState) -> frozenset[str]:
    """Return the nodes that worked and still owe a handoff along one of their edges."""
    made = set(state.run.completed_handoffs)
    return frozenset(
        edge.source
        for edge in state.graph.edges
        if edge.source in state.run.visited_node_ids and edge.key not in made
    )


class FlowLog:
    """A flow for tests to change; `state` is its current state."""

    def __init__(self, graph: Graph, start: Sequence[str] | None = None) -> None:
        first = (graph.nodes[0].id,) if start is None else tuple(start)
        started = FlowStarted("project", "/w", "/w/record", graph, first)
        self.state: FlowState = flow_state([(entry_of(0, started), started)])

    @property
    def run(self) -> FlowRun:
        """The current state of the flow, as people see it."""
        return self.state.run

    def add(self, *bodies: SideBody) -> FlowLog:
        """Apply `bodies` to the state of the flow, one after the other."""
        for body in bodies:
            self.state = state_after(self.state, entry_of(self.state.head + 1, body), body)
        return self

    def claim(self, node: str, *delivered: str, superseded: Sequence[str] = ()) -> FlowLog:
        """Let `node` begin to work."""
        known = self.state.graph.node(node)
        role = known.role if known else node
        session = StreamId(f"{FLOW}__{role}")
        cause = "handoff" if delivered else "start"
        return self.add(
            NodeClaimed(node, role, session, cause, tuple(delivered), tuple(superseded))
        )

    def hand(self, node: str, *targets: str, artifact: str | None = None) -> FlowLog:
        """Append a handoff of a new artifact from `node` to each of `targets`."""
        path = artifact or f"{node}-{self.state.head}.md"
        return self.add(HandoffMade(node, tuple(HandoffTarget(t, path) for t in targets)))

    def work(self, node: str, *targets: str) -> FlowLog:
        """Let `node` claim the work that is ready for it, and hand over to `targets`."""
        ready = [key for key in self.run.receiving_handoff if key.endswith(f"=>{node}")]
        return self.claim(node, *ready).hand(node, *targets)


def entry_of(seq: int, body: SideBody, at: int = 1_700_000_000_000) -> Entry:
    """Return an entry of the flow's log with `body`; its encoded bytes are a placeholder."""
    return Entry(FLOW, seq, "side", None, None, at, body.kind, body.version, b"{}")
