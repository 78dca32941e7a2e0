"""One entry as records of Operator: the fields and their order."""

from __future__ import annotations

import json
import uuid
from typing import Any

from perdure.codecs.operator.codec import OPERATOR
from perdure.codecs.operator.records import records_of
from perdure.codecs.shared_keys import ROOT
from perdure.session.codec import body_of, new_tree
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
    TreeBody,
)
from perdure.session.messages import (
    Message,
    TextPart,
    Usage,
    assistant,
    tool_call,
    tool_result,
    user,
)
from tests.fakes.session_lines import header_line, record_line, writing_of

WRITING = writing_of({EntryId("s/0"): "00000000"}, {}, "77777777")


def line(body: Message | TreeBody) -> dict[str, Any]:
    new = new_tree(body)
    entry = Entry(StreamId("s"), 7, "tree", None, None, 1_500, new.kind, 1, new.body)
    made = records_of(entry, body_of(entry), WRITING)
    assert len(made) == 1
    return json.loads(record_line(OPERATOR, made[0], "77777777", "00000000", entry.at))


def test_header_has_its_fields_in_order() -> None:
    assert header_line(OPERATOR, "s", 1_750_000_000_250, None) == (
        b'{"type":"session","version":3,"id":"s","timestamp":1750000000.25,"cwd":""}'
    )


def test_record_of_a_root_has_no_parent() -> None:
    made = record_line(OPERATOR, {"type": "leaf"}, "a", None, 1_000)
    assert made == b'{"id":"a","timestamp":1.0,"type":"leaf"}'
    assert b'"parent_id":"b"' in record_line(OPERATOR, {"type": "leaf"}, "a", "b", 1_000)


def test_answer_has_usage_stop_reason_and_error() -> None:
    usage = Usage(1, 2, 3, 4, cost_microcents=50_000_000)
    said = assistant("x", tool_call("c", "read", {"a": None}), usage=usage)
    record = line(said)
    message = record["message"]
    names = ["contents", "id", "timestamp", "role", "usage", "stop_reason", "error"]
    assert list(message) == names
    assert uuid.UUID(message["id"]).version == 4
    assert message["stop_reason"] == "tool_calls"
    assert message["usage"] == {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_read_tokens": 3,
        "cache_write_tokens": 4,
        "cost": {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0, "total": 0.5},
    }
    call = {"type": "tool_call", "id": "c", "name": "read", "args": {"a": None}, "metadata": {}}
    assert message["contents"] == [{"type": "text", "content": "x"}, call]
    assert (
        line(Message("assistant", (), stop_reason="aborted"))["message"]["stop_reason"] == "abort"
    )


def test_user_message_has_only_the_required_fields() -> None:
    message = line(user("x"))["message"]
    assert list(message) == ["contents", "id", "timestamp", "role"]


def test_gateway_metadata_of_message_is_written() -> None:
    body = b'{"role":"user","parts":[],"meta":{"reactions":["+1"],"subagent":"x"}}'
    entry = Entry(StreamId("s"), 7, "tree", None, None, 1_500, "message", 1, body)
    (record,) = records_of(entry, body_of(entry), WRITING)
    assert record["meta"] == {"reactions": ["+1"]}


def test_settings_custom_entries_and_summaries_are_written_as_records() -> None:
    assert {k: v for k, v in line(ModelChange("anthropic:a:b")).items() if "_id" in k} == {
        "parent_id": "00000000",
        "model_id": "a:b",
        "provider_id": "anthropic",
    }
    assert line(ModelChange("solo"))["provider_id"] == "unknown"
    assert line(ThinkingChange("high"))["thinking_level"] == "high"
    assert line(Custom("note", {"a": 1}))["data"] == {"a": 1}
    assert "data" not in line(Custom("note"))
    summary = line(Compaction("s", EntryId("s/0"), 9, read_files=("r",)))
    assert summary["first_kept_entry_id"] == "00000000"
    assert summary["details"] == {"read_files": ["r"], "modified_files": []}
    assert summary["from_hook"] is False
    assert line(Compaction("s"))["first_kept_entry_id"] == "77777777"
    assert line(BranchSummary("s"))["from_id"] == ROOT
    said = line(CustomMessage("n", (TextPart("x"),), is_displayed=False, details=[1]))
    assert (said["content"], said["display"], said["details"]) == (
        [{"type": "text", "content": "x"}], False, [1],
    )  # fmt: skip


def test_entry_outside_the_context_becomes_a_custom_record() -> None:
    for body in (CustomMessage("n", (TextPart("x"),), in_context=False), BranchSummary(" ")):
        assert str(line(body)["custom_type"]).startswith("perdure.")


def test_metadata_of_a_tool_result_contains_the_tool_name() -> None:
    (block,) = line(tool_result("c", "out", name="read"))["message"]["contents"]
    assert block["metadata"] == {"perdure.name": "read"}
    (block,) = line(tool_result("c", "out"))["message"]["contents"]
    assert block["metadata"] == {}


def test_retained_messages_come_before_their_compaction() -> None:
    body = Compaction("s", retained=(user("a"), assistant("b")))
    new = new_tree(body)
    entry = Entry(StreamId("s"), 7, "tree", None, None, 1_500, new.kind, 1, new.body)
    *kept, made = records_of(entry, body, WRITING)
    assert [record["message"]["role"] for record in kept] == ["user", "assistant"]
    assert made["first_kept_entry_id"] == "77777777"  # the first of them
