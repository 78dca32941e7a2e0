from __future__ import annotations

import msgspec
import pytest

from perdure.session.flows.kinds import FLOW_BODIES, FlowStarted, HandoffMade, HandoffTarget
from perdure.session.notes import SideBody
from tests.fakes.flow_log import graph


def test_kinds_are_unique_and_in_side_lane() -> None:
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
def test_body_round_trips(body: SideBody) -> None:
    assert msgspec.json.decode(msgspec.json.encode(body), type=type(body)) == body
