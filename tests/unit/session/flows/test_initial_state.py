"""The possible first entries of a flow's log."""

from __future__ import annotations

import pytest

from perdure.errors import CorruptLog
from perdure.session.flows import kinds
from perdure.session.flows.fold import flow_state
from tests.fakes.flow_log import FLOW, FlowLog, entry_of, graph

LINE = graph("owner-intake>a", "a>end", **{"owner-intake": "owner", "end": "owner"})


def test_new_flow_has_the_arguments_of_its_start() -> None:
    run = FlowLog(LINE).run
    assert (run.flow_id, run.status, run.project_namespace) == (FLOW, "running", "project")
    assert (run.record_name, run.state_version) == ("a flow", "11")
    assert FlowLog(LINE).state.start == ("owner-intake",)


def test_log_without_start_raises_corrupt_log() -> None:
    awaited = kinds.HandoffAwaited("a")
    with pytest.raises(CorruptLog, match="flow_started"):
        flow_state([(entry_of(0, awaited), awaited)])
    with pytest.raises(CorruptLog):
        flow_state([])
