"""The graph of a workflow of roles: nodes that work, and edges for handoffs.

The graph is a value with the queries that all parts of a flow need. ``engine.flows`` validates
graphs; in this module, an edge can name a missing node.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cached_property

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.session.argument_checks import NamedParameters

_INSTANCE = re.compile(r"(?P<role>[a-z0-9]+(?:-[a-z0-9]+)*)(?:_[1-9][0-9]*)?")

ARROW = "=>"


class FlowNode(ShortRepr, frozen=True, omit_defaults=True, metaclass=NamedParameters):
    """A node: one piece of work for one role instance (``owner``, ``owner_2``).

    `has_human` (``human-colab`` in a workflow file) means that a person works on the node, too, and
    approves its handoffs. `awaits_all_inputs` (``await-all-inputs``) means that the node waits for
    all its incoming edges. `required_readings` are names of files in the project's index of
    readings, written ``$NAME``. `notes`, `guidance`, `inputs` and `outputs` come from older
    workflow files; the role receives them with `work`.
    """

    id: str
    role: str
    work: tuple[str, ...] = ()
    required_readings: tuple[str, ...] = ()
    has_human: bool = False
    awaits_all_inputs: bool = False
    guidance: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class FlowEdge(ShortRepr, frozen=True):
    """An edge: `source` hands work over to `target`.

    Handing back needs no edge; it is always allowed.
    """

    source: str
    target: str

    @property
    def key(self) -> str:
        """Return ``source=>target``."""
        return edge_key(self.source, self.target)


class _Index(msgspec.Struct, frozen=True):
    """Indexes of a graph, so that no query reads all nodes and edges.

    Shape: `places` maps a node id to the position of the node; if several nodes have the same id,
    the first one counts.
    """

    places: Mapping[str, int]
    after: Mapping[str, tuple[str, ...]]
    before: Mapping[str, tuple[str, ...]]
    keys_from: Mapping[str, frozenset[str]]
    keys_to: Mapping[str, frozenset[str]]


_NOWHERE: frozenset[str] = frozenset()


class Graph(ShortRepr, frozen=True, omit_defaults=True, dict=True):
    """A workflow. Shape: nodes and edges are in the order of the workflow file.

    The indexes are built at the first query.
    """

    name: str
    nodes: tuple[FlowNode, ...]
    edges: tuple[FlowEdge, ...] = ()
    summary: str | None = None
    invariants: tuple[str, ...] = ()
    escalation: tuple[str, ...] = ()

    def node(self, id: str) -> FlowNode | None:
        """Return the node with the id `id`; None if there is none."""
        place = self._index.places.get(id)
        return None if place is None else self.nodes[place]

    def role_of(self, id: str) -> str:
        """Return the role of node `id`; `id` itself if no node has this id."""
        known = self.node(id)
        return id if known is None else known.role

    def in_order(self, ids: Collection[str]) -> list[FlowNode]:
        """Return the nodes whose id is in `ids`, in the order of the graph.

        Unknown ids are skipped.
        """
        places = self._index.places
        return [self.nodes[place] for place in sorted({places[id] for id in ids if id in places})]

    def successors(self, id: str) -> tuple[str, ...]:
        """Return the ids of the nodes to which `id` hands forward, in the order of the edges."""
        return self._index.after.get(id, ())

    def predecessors(self, id: str) -> tuple[str, ...]:
        """Return the ids of the nodes that hand forward to node `id`, in the order of the edges."""
        return self._index.before.get(id, ())

    def keys_from(self, id: str) -> frozenset[str]:
        """Return the keys of the edges that lead forward from node `id`."""
        return self._index.keys_from.get(id, _NOWHERE)

    def keys_to(self, id: str) -> frozenset[str]:
        """Return the keys of the edges that lead forward to node `id`."""
        return self._index.keys_to.get(id, _NOWHERE)

    def has_edge(self, source: str, target: str) -> bool:
        """Return True if a forward edge leads from `source` to `target`."""
        return edge_key(source, target) in self.keys_from(source)

    @cached_property
    def _index(self) -> _Index:
        places: dict[str, int] = {}
        for place, node in enumerate(self.nodes):
            places.setdefault(node.id, place)
        after: defaultdict[str, list[str]] = defaultdict(list)
        before: defaultdict[str, list[str]] = defaultdict(list)
        for edge in self.edges:
            after[edge.source].append(edge.target)
            before[edge.target].append(edge.source)
        return _Index(
            places,
            {source: tuple(targets) for source, targets in after.items()},
            {target: tuple(sources) for target, sources in before.items()},
            {id: frozenset(edge_key(id, each) for each in after[id]) for id in after},
            {id: frozenset(edge_key(each, id) for each in before[id]) for id in before},
        )

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the role instances, each once, in the order of the nodes."""
        return tuple(dict.fromkeys(node.role for node in self.nodes))


def edge_key(source: str, target: str) -> str:
    """Return the key that a flow's state uses for handoffs from `source` to `target`."""
    return f"{source}{ARROW}{target}"


def ends_of(key: str) -> tuple[str, str]:
    """Return source and target of an edge's `key`. Raises: ValueError if the key is invalid."""
    source, arrow, target = key.partition(ARROW)
    if not arrow:
        raise ValueError(f"{key!r} is not an edge: expected from=>to")
    return source, target


def is_role(instance: str) -> bool:
    """Return True if `instance` is a valid role instance, such as ``owner`` or ``owner_2``."""
    return _INSTANCE.fullmatch(instance) is not None


def base_role(instance: str) -> str:
    """Return the role of the role instance `instance`, such as ``owner`` for ``owner_2``."""
    match = _INSTANCE.fullmatch(instance)
    return match["role"] if match else instance
