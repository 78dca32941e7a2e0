"""Export to an opencode document: the reader of perdure gets the same conversation back."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from perdure.interop.formats.conversation import conversation_of
from perdure.interop.formats.opencode import writer
from perdure.interop.formats.opencode.reader import FORMAT
from tests.fakes.bundles import bundle_of_log
from tests.fakes.continued import bird_bundle, read_back, spoken
from tests.fakes.random_logs import random_logs
from tests.fakes.tree_log import TreeLog


def test_answers_contain_their_calls_with_results() -> None:
    conversation = conversation_of(bird_bundle())
    exported = writer.export_file(conversation)
    document = json.loads(exported.content)
    assert document["info"]["title"] == "Birds"
    assert document["info"]["id"] == writer.session_id(conversation)
    messages = document["messages"]
    assert [each["info"]["role"] for each in messages] == ["user", *["assistant"] * 3]
    assert [part["type"] for part in messages[0]["parts"]] == ["text", "file", "text"]
    first = messages[1]
    assert [part["type"] for part in first["parts"]] == [
        *("step-start", "text", "tool", "step-finish")
    ]
    assert first["info"]["parentID"] == messages[0]["info"]["id"]
    assert (first["info"]["providerID"], first["info"]["modelID"]) == ("openai", "gpt-5")
    failed = first["parts"][2]
    assert failed["tool"] == "guide_find"
    assert (failed["state"]["status"], failed["state"]["error"]) == ("error", "No such page.")
    assert messages[2]["parts"][2]["state"]["status"] == "completed"
    assert any("medium" in warning for warning in exported.warnings)


def test_ids_keep_the_order_of_messages_and_are_unique() -> None:
    conversation = conversation_of(bird_bundle())
    messages = json.loads(writer.export_file(conversation).content)["messages"]
    ids = [each["info"]["id"] for each in messages]
    assert ids == sorted(ids)
    every = [*ids, *(part["id"] for each in messages for part in each["parts"])]
    assert len(set(every)) == len(every)
    assert all(len(each.partition("_")[2]) == 26 for each in every)


@given(data=st.data(), log=random_logs(12))
async def test_any_exported_conversation_is_read_back_unchanged(
    data: st.DataObject, log: TreeLog
) -> None:
    leaf = data.draw(st.sampled_from([None, *log.by_id]))
    conversation = conversation_of(bundle_of_log(log, leaf))
    exported = writer.export_file(conversation)
    assert exported == writer.export_file(conversation)
    if conversation.said:
        assert await read_back(exported.content, FORMAT) == spoken(conversation)
