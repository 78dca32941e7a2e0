"""What a flow's log may begin with."""

from __future__ import annotations

import pytest

from perdure.errors import CorruptLog
from perdure.session.flows import kinds
from perdure.session.flows.fold import flow_state
from tests.fakes.flow_log import FLOW, FlowLog, entry_of, graph

LINE = graph("owner-intake>a", "a>end", **{"owner-intake": "owner", "end": "owner"})


def test_a_flow_begins_with_what_it_was_started_with() -> None:
    run = FlowLog(LINE).run
    assert (run.flow_id, run.status, run.project_namespace) == (FLOW, "running", "project")
    assert (run.record_name, run.state_version) == ("a flow", "11")
    assert FlowLog(LINE).state.start == ("owner-intake",)


def test_a_log_without_its_beginning_is_damaged() -> None:
    awaited = kinds.HandoffAwaited("a")
    with pytest.raises(CorruptLog, match="flow_started"):
        flow_state([(entry_of(0, awaited), awaited)])
    with pytest.raises(CorruptLog):
        flow_state([])
