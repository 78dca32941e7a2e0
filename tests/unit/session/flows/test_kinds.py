from __future__ import annotations

import msgspec
import pytest

from perdure.session.flows.kinds import FLOW_BODIES, FlowStarted, HandoffMade, HandoffTarget
from perdure.session.notes import SideBody
from tests.fakes.flow_log import graph


def test_flow_entry_kinds_are_unique_and_outside_the_tree() -> None:
    names = [body.kind for body in FLOW_BODIES]
    assert len(set(names)) == len(names)
    assert {body.lane for body in FLOW_BODIES} == {"side"}


@pytest.mark.parametrize(
    "body",
    [
        FlowStarted("p", "/w", "/w/r", graph("a>b"), ("a",)),
        HandoffMade("a", (HandoffTarget("b", "x.md", "sha256-0"),), approved_by="me"),
    ],
)
def test_flow_entry_body_is_decoded_to_the_value_that_was_encoded(body: SideBody) -> None:
    assert msgspec.json.decode(msgspec.json.encode(body), type=type(body)) == body
