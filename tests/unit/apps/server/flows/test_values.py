"""Values of flows: field names in the API."""

from __future__ import annotations

import msgspec

from perdure.apps.server.flows.values import FlowEdgeView


def test_json_of_an_edge_has_the_fields_from_and_to() -> None:
    edge = FlowEdgeView(source="a", target="b", state="done", artifact="x.md")
    assert msgspec.to_builtins(edge) == {
        "from": "a",
        "to": "b",
        "state": "done",
        "artifact": "x.md",
    }
