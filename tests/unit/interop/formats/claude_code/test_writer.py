"""Export to a Claude Code transcript: the reader of perdure gets the same conversation back."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from perdure.interop.formats.claude_code import writer
from perdure.interop.formats.claude_code.reader import FORMAT
from perdure.interop.formats.conversation import conversation_of
from tests.fakes.bundles import bundle_of_log
from tests.fakes.continued import bird_bundle, read_back, spoken
from tests.fakes.random_logs import random_logs
from tests.fakes.tree_log import TreeLog


def test_records_have_blocks_results_and_title() -> None:
    conversation = conversation_of(bird_bundle())
    exported = writer.transcript_file(conversation)
    records = [json.loads(line) for line in exported.content.splitlines()]
    said = [record["message"] for record in records if "message" in record]
    assert [each["role"] for each in said] == ["user", "assistant", "user"] * 1 + [
        *("assistant", "user", "assistant")
    ]
    kinds = [block["type"] for block in said[0]["content"]]
    assert kinds == ["text", "image", "text"]
    assert said[1]["content"][1]["name"] == "guide_find"
    assert said[1]["model"] == "gpt-5"
    assert said[1]["stop_reason"] == "tool_use"
    assert said[1]["usage"]["cache_read_input_tokens"] == 3
    (failed,) = said[2]["content"]
    assert (failed["is_error"], failed["content"]) == (True, "No such page.")
    assert failed["tool_use_id"] == said[1]["content"][1]["id"]
    assert said[4]["content"][0]["content"][1]["type"] == "image"
    assert records[-1] == {
        "type": "custom-title",
        "customTitle": "Birds",
        "sessionId": str(conversation.id),
    }
    parents = [record["parentUuid"] for record in records[:-1]]
    assert parents == [None, *(record["uuid"] for record in records[:-2])]
    assert any("medium" in warning for warning in exported.warnings)


def test_folder_has_the_name_that_claude_code_expects() -> None:
    assert writer.folder_of("/srv/my.book_é 1") == "-srv-my-book---1"


@given(data=st.data(), log=random_logs(12))
async def test_any_exported_conversation_is_read_back_unchanged(
    data: st.DataObject, log: TreeLog
) -> None:
    leaf = data.draw(st.sampled_from([None, *log.by_id]))
    conversation = conversation_of(bundle_of_log(log, leaf))
    exported = writer.transcript_file(conversation)
    assert exported == writer.transcript_file(conversation)
    if conversation.said:
        assert await read_back(exported.content, FORMAT) == spoken(conversation)
