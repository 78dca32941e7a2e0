"""Values of flows: names as clients see them."""

from __future__ import annotations

import msgspec

from perdure.apps.server.flows.values import FlowEdgeView


def test_edge_names_its_ends_from_and_to() -> None:
    edge = FlowEdgeView(source="a", target="b", state="done", artifact="x.md")
    assert msgspec.to_builtins(edge) == {
        "from": "a",
        "to": "b",
        "state": "done",
        "artifact": "x.md",
    }
