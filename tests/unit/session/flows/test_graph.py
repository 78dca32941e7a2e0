from __future__ import annotations

from itertools import pairwise

import pytest

from perdure.session.flows.graph import (
    FlowEdge,
    FlowNode,
    Graph,
    base_role,
    edge_key,
    ends_of,
    is_role,
)
from tests.fakes.flow_log import Counted, graph


def test_neighbours_of_node_are_in_edge_order() -> None:
    fork = graph("o>b", "o>a", "b>z", "a>z")
    assert fork.successors("o") == ("b", "a")
    assert fork.predecessors("z") == ("b", "a")
    assert fork.has_edge("o", "a")
    assert not fork.has_edge("a", "o")
    assert fork.node("nobody") is None


def test_role_instances_are_unique_in_node_order() -> None:
    assert graph("o>a", "a>z", o="owner", a="dev", z="owner").roles == ("owner", "dev")


@pytest.mark.parametrize("name", ["owner", "owner_2", "meta-analyst_10", "a1"])
def test_valid_role_instances_are_accepted(name: str) -> None:
    assert is_role(name)


@pytest.mark.parametrize("name", ["", "Owner", "owner_0", "owner_01", "owner-", "a__1", "a_b", "é"])
def test_invalid_role_instances_are_rejected(name: str) -> None:
    assert not is_role(name)


def test_base_role_is_the_instance_name_without_its_number() -> None:
    assert base_role("tech-lead_2") == "tech-lead"
    assert base_role("owner") == "owner"


def test_nodes_of_an_edge_are_read_back_from_its_key() -> None:
    assert ends_of(edge_key("a", "b")) == ("a", "b")
    with pytest.raises(ValueError, match="not an edge"):
        ends_of("a->b")


def test_graph_builds_its_edge_index_once() -> None:
    ids = [f"n{n}" for n in range(500)]
    edges = Counted(FlowEdge(a, b) for a, b in pairwise(ids))
    line = Graph("line", tuple(FlowNode(id, "r") for id in ids), edges)
    for a, b in pairwise(ids):
        assert line.successors(a) == (b,)
        assert line.predecessors(b) == (a,)
        assert line.has_edge(a, b)
        assert not line.has_edge(b, a)
        assert line.keys_from(a) == line.keys_to(b) == {f"{a}=>{b}"}
        assert line.node(b) == FlowNode(b, "r")
    assert (line.successors("n499"), line.keys_to("n0"), line.node("nobody")) == ((), set(), None)
    assert edges.reads == 1


def test_nodes_are_given_in_the_order_of_the_graph() -> None:
    nodes = (FlowNode("b", "first"), FlowNode("a", "r"), FlowNode("b", "second"))
    drawn = Graph("twice", nodes)
    assert drawn.in_order({"a", "b", "nobody"}) == [*nodes[:2]]
    assert drawn.node("b") == nodes[0]
