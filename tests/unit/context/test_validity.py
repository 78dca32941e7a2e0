from __future__ import annotations

from perdure.context import prompts
from perdure.context.emission import ContextMessage
from perdure.context.tool_pairs import repair_pairs
from perdure.context.validity import alternating
from perdure.session.ids import EntryId
from perdure.session.messages import (
    Message,
    TextPart,
    Usage,
    assistant,
    tool_call,
    tool_result,
    user,
)
from tests.fakes.provider_rules import all_problems


def valid(*said: Message) -> list[Message]:
    return [each.message for each in history(*said)]


def history(*said: Message) -> tuple[ContextMessage, ...]:
    return alternating(
        repair_pairs([ContextMessage(m, EntryId(f"s/{n}")) for n, m in enumerate(said)])
    )


def test_neighbouring_messages_of_one_role_are_merged_part_by_part() -> None:
    sent = valid(user("a"), user("b", "c"), assistant("d"), assistant("e"))
    assert sent == [user("a", "b", "c"), assistant("d", "e")]


def test_merged_message_lists_the_ids_of_all_merged_entries() -> None:
    sent = history(user("a"), user("b"), assistant("c"))
    assert sent[0].entry_id == "s/0"
    assert sent[0].entry_ids == ("s/0", "s/1")
    assert sent[1].entry_ids == ("s/2",)


def test_merged_answer_has_the_usage_of_the_last_answer() -> None:
    sent = valid(user("a"), assistant("b", usage=Usage(1)), assistant("c", usage=Usage(2)))
    assert sent[1].usage == Usage(2)


def test_answers_around_empty_message_are_merged() -> None:
    assert valid(user("a"), assistant("b"), user(" "), assistant("c"))[1:] == [assistant("b", "c")]


def test_user_message_can_follow_tool_results() -> None:
    said = [user("a"), assistant(tool_call("1", "x")), tool_result("1", "r"), user("b")]
    assert [message.role for message in valid(*said)] == ["user", "assistant", "tool", "user"]


def test_history_starting_with_assistant_gets_user_message() -> None:
    sent = history(assistant("welcome"), user("hi"))
    assert sent[0] == ContextMessage(user(prompts.CONVERSATION_BEGINS), None)
    assert [each.message.role for each in sent] == ["user", "assistant", "user"]


def test_trailing_white_space_of_last_answer_is_removed() -> None:
    assert valid(user("a"), assistant("b \n"), user("c"), assistant("d \n"))[-1].text == "d"


def test_whitespace_of_earlier_answers_is_unchanged() -> None:
    assert valid(user("a"), assistant("b \n"), user("c"))[1].parts == (TextPart("b \n"),)


def test_history_without_sendable_content_is_empty() -> None:
    assert valid() == []
    assert valid(user(""), assistant(" ")) == []


def test_history_with_many_faults_is_made_valid() -> None:
    sent = valid(
        tool_result("lost", "x"),
        assistant(tool_call("a.b", "no/slash"), "behind", tool_call("a.b", "")),
        user("steering"),
        tool_result("a.b", ""),
        Message("assistant", (TextPart("par"),), stop_reason="error"),
        assistant("", tool_call("a.b", "x")),
    )
    assert all_problems(sent) == []
    assert [message.role for message in sent] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
        "tool",
    ]
