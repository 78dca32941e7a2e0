"""The conversation of a session, in the form that another program can continue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.interop.formats.conversation import allowed_id, allowed_name, conversation_of, named
from perdure.session.kinds import Compaction
from perdure.session.messages import (
    MediaPart,
    ToolResultPart,
    assistant,
    tool_call,
    tool_result,
    user,
)
from perdure.session.notes import LeafMoved, SessionInfoChanged
from tests.fakes.bundles import BEGUN, Making, bundle_of_log
from tests.fakes.random_logs import random_logs
from tests.fakes.tree_log import TreeLog


def test_conversation_is_the_branch_of_the_leaf() -> None:
    making = Making()
    asked = making.say(user("Which bird?"))
    making.say(assistant("A crow."))
    answered = making.say(assistant("A heron."), parent=asked)
    making.note(SessionInfoChanged(title="Birds"))
    first = conversation_of(making.made())
    assert [said.message.text for said in first.said] == ["Which bird?", "A heron."]
    assert (first.title, first.cwd, first.created_at) == ("Birds", "/srv/tides", BEGUN)
    assert first.left_out == 1
    making.say(user("And that one?"), parent=answered)
    second = conversation_of(making.made())
    assert second.id != first.id
    making.note(LeafMoved(answered))
    assert conversation_of(making.made()).id == first.id


def test_compaction_replaces_older_messages() -> None:
    making = Making()
    making.say(user("Which bird?"), assistant("A heron."))
    kept = making.say(user("Where?"))
    making.say(assistant("At the lake."), Compaction("They asked about a bird.", first_kept=kept))
    texts = [said.message.text for said in conversation_of(making.made()).said]
    assert "They asked about a bird." in texts[0]
    assert "Which bird?" not in "".join(texts)
    assert texts[-1] == "At the lake."


@given(st.data(), random_logs(12))
def test_exported_conversation_has_a_result_for_every_call(
    data: st.DataObject, log: TreeLog
) -> None:
    leaf = data.draw(st.sampled_from([None, *log.by_id]))
    messages = [said.message for said in conversation_of(bundle_of_log(log, leaf)).said]
    calls = [call.id for message in messages for call in message.tool_calls]
    parts = [part for message in messages for part in message.parts]
    results = [part.call_id for part in parts if isinstance(part, ToolResultPart)]
    assert sorted(calls) == sorted(results)


def test_unanswered_call_gets_a_result() -> None:
    making = Making()
    making.say(user("Look"), assistant("", tool_call("c1", "look", {})))
    assert conversation_of(making.made()).said[-1].message.role == "tool"
    making.say(tool_result("c1", "Seen."))
    assert len(conversation_of(making.made()).said) == 3


def test_tool_names_and_call_ids_become_valid_for_providers() -> None:
    assert allowed_name("field guide.look up") == "field_guide_look_up"
    assert allowed_name("") == "_"
    assert allowed_id("toolu_1-x") == "toolu_1-x"
    odd = [allowed_id("call:1"), allowed_id("call.1"), allowed_id("c" * 99), allowed_id("")]
    assert len(set(odd)) == 4
    assert all(allowed_name(each) == each for each in odd)


def test_missing_media_content_is_replaced_by_a_description() -> None:
    part = MediaPart("audio/wav", "media://sha256-" + "0" * 64, 12, name="call.wav")
    assert named(part) == "[audio/wav call.wav, 12 bytes, not exported]"
