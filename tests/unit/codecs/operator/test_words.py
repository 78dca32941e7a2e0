"""The records of Operator's files, as all write them."""

from __future__ import annotations

from typing import get_args

import pytest

from perdure.codecs.operator import words as operator
from perdure.session.kinds import BranchSummary, Compaction
from perdure.session.messages import Message, StopReason, Usage, assistant, tool_call


def test_ids_stand_first_and_a_root_names_no_parent() -> None:
    assert list(operator.placed({"type": "leaf"}, "b", "a", 1_500)) == [
        "id",
        "timestamp",
        "parent_id",
        "type",
    ]
    assert operator.placed({"type": "leaf"}, "b", None, 1_500) == {
        "id": "b",
        "timestamp": 1.5,
        "type": "leaf",
    }


@pytest.mark.parametrize("reason", get_args(StopReason))
def test_a_stop_reason_is_read_as_it_was_written(reason: StopReason) -> None:
    written = operator.ending(Message("assistant", (), stop_reason=reason))["stop_reason"]
    assert operator.STOP_REASONS[written] == reason


def test_an_answer_without_a_reason_has_the_one_its_parts_tell() -> None:
    assert operator.ending(assistant("yes"))["stop_reason"] == "stop"
    asking = assistant(tool_call("c", "read", {}))
    assert operator.ending(asking)["stop_reason"] == "tool_calls"


def test_usage_counts_each_class_and_costs_are_floats() -> None:
    usage = operator.usage(Usage(1, 2, 3, 4, 150_000_000))
    assert usage.pop("cost") == {
        "input": 0.0,
        "output": 0.0,
        "cache_read": 0.0,
        "cache_write": 0.0,
        "total": 1.5,
    }
    assert list(usage.values()) == [1, 2, 3, 4]


def test_the_files_of_a_summary_are_its_details() -> None:
    made = operator.compaction(Compaction("s", read_files=("a",)), "own")
    assert made["details"] == {"read_files": ["a"], "modified_files": []}
    assert "details" not in operator.branch_summary(BranchSummary("s"), None)
    assert operator.branch_summary(BranchSummary("s"), None)["from_id"] == "root"


def test_what_there_is_none_of_is_left_out() -> None:
    assert "data" not in operator.custom("todo", None)
    assert "details" not in operator.custom_message("todo", [], is_displayed=True)
    assert "parent_session" not in operator.header("s", 0, None)
