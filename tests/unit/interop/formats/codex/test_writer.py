"""Export to a Codex rollout: the reader of perdure gets the same conversation back."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from perdure.interop.formats.codex import writer
from perdure.interop.formats.codex.reader import FORMAT
from perdure.interop.formats.conversation import conversation_of
from tests.fakes.bundles import bundle_of_log
from tests.fakes.continued import bird_bundle, read_back, spoken
from tests.fakes.random_logs import random_logs
from tests.fakes.tree_log import TreeLog


def test_rollout_has_response_items_and_display_events() -> None:
    conversation = conversation_of(bird_bundle())
    exported = writer.rollout_file(conversation)
    lines = [json.loads(line) for line in exported.content.splitlines()]
    assert lines[0]["type"] == "session_meta"
    assert lines[0]["payload"]["id"] == str(conversation.id)
    assert "model_provider" not in lines[0]["payload"]
    items = [line["payload"] for line in lines if line["type"] == "response_item"]
    assert [item["type"] for item in items] == [
        *("message", "message", "function_call", "function_call_output"),
        *("message", "function_call", "function_call_output", "message"),
    ]
    image = items[0]["content"][1]
    assert image["type"] == "input_image"
    assert image["image_url"].startswith("data:image/png;base64,")
    assert json.loads(items[2]["arguments"]) == {"legs": "long"}
    assert items[3]["call_id"] == items[2]["call_id"]
    assert "image/png bird.png" in items[6]["output"]
    shown = [line["payload"]["type"] for line in lines if line["type"] == "event_msg"]
    assert shown == ["user_message", *["agent_message"] * 3]
    assert any("medium" in warning for warning in exported.warnings)


def test_file_has_the_name_that_codex_expects() -> None:
    conversation = conversation_of(bird_bundle())
    day = "2025/06/15/rollout-2025-06-15T15-06-40-"
    assert writer.file_name(conversation) == f"{day}{conversation.id}.jsonl"


@given(data=st.data(), log=random_logs(12))
async def test_any_exported_conversation_is_read_back_unchanged(
    data: st.DataObject, log: TreeLog
) -> None:
    leaf = data.draw(st.sampled_from([None, *log.by_id]))
    conversation = conversation_of(bundle_of_log(log, leaf))
    exported = writer.rollout_file(conversation)
    assert exported == writer.rollout_file(conversation)
    if conversation.said:
        assert await read_back(exported.content, FORMAT) == spoken(conversation)
