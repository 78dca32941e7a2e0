from __future__ import annotations

import re

import msgspec
import pytest

from perdure.context import prompts
from perdure.context.emission import ContextMessage
from perdure.context.tool_pairs import repair_pairs, sendable_name
from perdure.session.ids import EntryId
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    StopReason,
    TextPart,
    ToolResultPart,
    UnknownPart,
    assistant,
    system,
    thinking,
    tool_call,
    tool_result,
    user,
)

PICTURE = MediaPart("image/png", "media://sha256-" + "0" * 64, 10, "plan.png")


def repair(*said: Message) -> list[Message]:
    return [each.message for each in repair_pairs(numbered(said))]


def numbered(said: tuple[Message, ...]) -> list[ContextMessage]:
    return [ContextMessage(message, EntryId(f"s/{n}")) for n, message in enumerate(said)]


def results_in(message: Message) -> list[tuple[str, str]]:
    return [(p.call_id, p.text) for p in message.parts if isinstance(p, ToolResultPart)]


def ids_in(message: Message) -> list[str]:
    return [call.id for call in message.tool_calls]


def cut_short(reason: StopReason, *parts: Part) -> Message:
    return Message("assistant", parts, stop_reason=reason)


def test_valid_history_is_unchanged() -> None:
    said = (user("go"), assistant("yes", tool_call("1", "ls")), tool_result("1", "a", name="ls"))
    assert repair(*said) == [*said]


def test_results_follow_their_calls_in_call_order() -> None:
    asked = assistant(tool_call("1", "a"), tool_call("2", "b"))
    sent = repair(asked, tool_result("2", "two"), user("meanwhile"), tool_result("1", "one"))
    assert [message.role for message in sent] == ["assistant", "tool", "user"]
    assert results_in(sent[1]) == [("1", "one"), ("2", "two")]


def test_call_without_result_gets_unknown_outcome() -> None:
    asked = assistant(tool_call("1", "a"), tool_call("2", "b"))
    sent = repair(asked, tool_result("1", "one"), user("next"))
    missing = sent[1].parts[1]
    assert missing == ToolResultPart("2", prompts.CALL_INTERRUPTED, is_error=True, name="b")
    assert "may or may not have taken effect" in prompts.CALL_INTERRUPTED


def test_calls_of_the_last_answer_get_results() -> None:
    sent = repair(user("go"), assistant(tool_call("1", "a")))
    assert results_in(sent[-1]) == [("1", prompts.CALL_INTERRUPTED)]


def test_first_of_two_results_of_one_call_is_used() -> None:
    sent = repair(assistant(tool_call("1", "a")), tool_result("1", "x"), tool_result("1", "y"))
    assert results_in(sent[1]) == [("1", "x")]
    assert len(sent) == 2


def test_result_without_call_becomes_user_message() -> None:
    """Issues 1764, 4570, 6832 of pi: results without a call made every later request fail."""
    lost = Message("tool", (ToolResultPart("gone", "42", media=(PICTURE,)),))
    assert repair(user("go"), lost)[1] == user(f"{prompts.RESULT_WITHOUT_CALL}\n\n42", PICTURE)


def test_result_before_its_call_does_not_answer_it() -> None:
    sent = repair(tool_result("1", "early"), assistant(tool_call("1", "a")))
    assert sent[0].role == "user"
    assert results_in(sent[2]) == [("1", prompts.CALL_INTERRUPTED)]


def test_reused_id_is_renamed_with_its_result() -> None:
    sent = repair(
        assistant(tool_call("call_0", "a")),
        tool_result("call_0", "first"),
        assistant(tool_call("call_0", "a")),
        tool_result("call_0", "second"),
    )
    assert [ids_in(sent[0]), ids_in(sent[2])] == [["call_0"], ["call_0_2"]]
    assert results_in(sent[1]) == [("call_0", "first")]
    assert results_in(sent[3]) == [("call_0_2", "second")]


def test_two_calls_with_same_id_get_results_in_order() -> None:
    asked = assistant(tool_call("1", "a"), tool_call("1", "b"))
    sent = repair(asked, tool_result("1", "for a"), tool_result("1", "for b"))
    assert results_in(sent[1]) == [("1", "for a"), ("1_2", "for b")]


def test_new_call_id_never_equals_an_existing_id() -> None:
    said = [assistant(tool_call(id_, "a")) for id_ in ("1", "1", "1_2", "1_2", "1")]
    used = [id_ for message in repair(*said) for id_ in ids_in(message)]
    assert len(set(used)) == 5
    assert used[:2] == ["1", "1_2"]


@pytest.mark.parametrize("bad", ["", "a.b", "call|fc", "x" * 41, "ü"])
def test_invalid_ids_are_replaced_in_call_and_result(bad: str) -> None:
    sent = repair(assistant(tool_call(bad, "a")), tool_result(bad, "one"))
    (id_,) = ids_in(sent[0])
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", id_)
    assert results_in(sent[1]) == [(id_, "one")]


def test_long_ids_with_common_prefix_stay_distinct() -> None:
    long = ["x" * 45 + end for end in "abc"]
    sent = repair(assistant(*(tool_call(id_, "t") for id_ in long)))
    assert len(set(ids_in(sent[0]))) == 3
    assert all(len(id_) <= 40 for id_ in ids_in(sent[0]))


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("read_file", "read_file"),
        ("mcp.server/tool", "mcp_server_tool"),
        ("9lives", "_9lives"),
        ("-x", "_-x"),
        ("", "unnamed_tool"),
        ("n" * 80, "n" * 64),
    ],
)
def test_tool_names_are_made_valid_for_all_providers(name: str, sent: str) -> None:
    assert sendable_name(name) == sent


@pytest.mark.parametrize("reason", ["aborted", "error"])
def test_interrupted_answer_keeps_text_and_answered_calls(
    reason: StopReason,
) -> None:
    partial = cut_short(
        reason, TextPart("I will"), tool_call("1", "a"), tool_call("2", "b"), thinking("hm")
    )
    sent = repair(user("go"), partial, tool_result("2", "two"), user("on"))
    assert sent[1].text == "I will"
    assert ids_in(sent[1]) == ["2"]
    assert results_in(sent[2]) == [("2", "two")]


@pytest.mark.parametrize("reason", ["aborted", "error"])
def test_interrupted_answer_without_content_is_dropped(reason: StopReason) -> None:
    partial = cut_short(reason, thinking("hm"), TextPart(" "), tool_call("1", "a"))
    assert repair(user("go"), partial) == [user("go")]


def test_failed_answer_that_was_retried_is_not_in_the_context() -> None:
    failed = cut_short("error", TextPart("Let me"))
    assert repair(user("go"), failed, failed, assistant("Let me see")) == [
        user("go"),
        assistant("Let me see"),
    ]


def test_failed_answer_with_an_answered_call_stays_in_the_context() -> None:
    failed = cut_short("error", TextPart("Let me"), tool_call("1", "a"))
    sent = repair(user("go"), failed, assistant("Let me see"), tool_result("1", "one"))
    assert [message.role for message in sent] == ["user", "assistant", "tool", "assistant"]


def test_failed_answer_without_a_retry_stays_in_the_context() -> None:
    failed = cut_short("error", TextPart("Let me"))
    assert [m.text for m in repair(user("go"), failed, user("well?"))] == ["go", "Let me", "well?"]


def test_reasoning_is_never_in_a_context() -> None:
    said = assistant(thinking("secret"), "open", model="anthropic:one")
    assert repair(user("go"), said)[1].parts == (TextPart("open"),)


def test_empty_texts_and_messages_are_dropped() -> None:
    empty = [user(""), user(" \n"), assistant(""), Message("tool", ()), assistant(thinking("x"))]
    assert repair(*empty, user(" ", "words")) == [user("words")]


def test_text_after_tool_calls_is_moved_before_the_calls() -> None:
    """Anthropic treats text after the calls as the end of the answer, without results."""
    sent = repair(assistant("a", tool_call("1", "x"), "b"), tool_result("1", "one"))
    assert [type(part).__name__ for part in sent[0].parts] == [
        "TextPart",
        "TextPart",
        "ToolCallPart",
    ]


def test_empty_tool_result_is_replaced_by_a_notice() -> None:
    sent = repair(assistant(tool_call("1", "a")), tool_result("1", " \n"))
    assert results_in(sent[1]) == [("1", prompts.NO_OUTPUT)]


def test_system_message_is_sent_as_user_message_with_system_tag() -> None:
    assert repair(system("be brief")) == [user("<system>\nbe brief\n</system>")]


def test_assistant_media_become_text_notes() -> None:
    answer = Message("assistant", (TextPart("see"), PICTURE))
    assert repair(answer)[0].text == "see\n\n[attached: plan.png, image/png]"


def test_misplaced_parts_of_a_message_are_sent_in_a_valid_place() -> None:
    odd = Message("user", (TextPart("a"), tool_call("9", "x"), ToolResultPart("1", "one")))
    behind = Message("tool", (ToolResultPart("2", "two"), TextPart("words")))
    sent = repair(assistant(tool_call("1", "x"), tool_call("2", "y")), odd, behind)
    assert results_in(sent[1]) == [("1", "one"), ("2", "two")]
    assert [message.text for message in sent[2:]] == ["a\n\nx()", "words"]


def test_parts_of_unknown_types_are_not_sent() -> None:
    future = UnknownPart(msgspec.Raw(b"{}"))
    assert repair(Message("user", (future, TextPart("now")))) == [user("now")]


def test_merged_tool_message_lists_the_entries_of_all_results() -> None:
    said = (
        user("go"),
        assistant(tool_call("1", "a"), tool_call("2", "b"), tool_call("3", "c")),
        tool_result("3", "three"),
        tool_result("1", "one"),
    )
    results = repair_pairs(numbered(said))[2]
    assert results.entry_ids == ("s/3", "s/2")
    assert results.entry_id == "s/3"


def test_result_created_for_an_interrupted_call_has_no_entry_id() -> None:
    sent = repair_pairs(numbered((assistant(tool_call("1", "a")),)))
    assert sent[1].entry_id is None
    assert sent[1].entry_ids == ()
