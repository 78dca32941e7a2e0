"""A conversation is extended by new entries, and reports when it must be rebuilt."""

from __future__ import annotations

import pytest

from perdure.context.build import build_context
from perdure.context.incremental import conversation as module
from perdure.context.incremental.conversation import Conversation, conversation_of
from perdure.context.incremental.prompt import prompt_of
from perdure.context.pins import with_pins
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction, CustomMessage
from perdure.session.messages import (
    Message,
    TextPart,
    Usage,
    assistant,
    tool_call,
    tool_result,
    user,
)
from tests.fakes.tree_log import TreeLog


def extended(
    log: TreeLog, conversation: Conversation, *said: Message | CustomMessage
) -> Conversation:
    before = len(log.entries)
    log.extend(*said)
    more = conversation.extend(log.entries[before:])
    assert more is not None
    window = build_context(log.window(), history=conversation.history)
    assert prompt_of(more).messages == tuple(each.message for each in window.messages)
    assert prompt_of(more).tokens == window.tokens
    return more


def exchange(name: str) -> list[Message]:
    asked = assistant(tool_call(name, "look"))
    return [user("go"), asked, tool_result(name, "seen"), assistant("done")]


def test_messages_in_the_stable_prefix_of_a_conversation_do_not_change() -> None:
    log = TreeLog()
    conversation = conversation_of(log.window())
    for n in range(5):
        conversation = extended(log, conversation, *exchange(f"c{n}"))
    settled = conversation.settled.messages.whole()
    assert len(settled) >= module.MOST_OPEN
    more = extended(log, conversation, user("and?"))
    kept = more.settled.messages.whole()[: len(settled)]
    assert all(one is other for one, other in zip(kept, settled, strict=True))


def test_late_tool_result_is_added_next_to_its_call() -> None:
    log = TreeLog()
    asked = assistant(tool_call("late", "look"))
    conversation = extended(log, conversation_of(log.window()), user("go"), asked)
    for n in range(4):
        conversation = extended(log, conversation, *exchange(f"c{n}"))
    assert "late" in conversation.settled.calls.owed
    conversation = extended(log, conversation, tool_result("late", "at last"))
    assert prompt_of(conversation).messages[2].text == "at last"
    assert "late" not in conversation.settled.calls.owed


def test_second_result_of_a_tool_call_in_the_stable_prefix_is_dropped() -> None:
    log = TreeLog()
    conversation = conversation_of(log.window())
    for n in range(4):
        conversation = extended(log, conversation, *exchange(f"c{n}"))
    conversation = extended(log, conversation, tool_result("c0", "again"))
    said = [message.text for message in prompt_of(conversation).messages]
    assert "again" not in " ".join(said)


def test_repeated_tool_call_ids_are_renamed() -> None:
    log = TreeLog()
    conversation = conversation_of(log.window())
    for _ in range(6):
        conversation = extended(log, conversation, *exchange("call_0"))
    ids = [call.id for m in prompt_of(conversation).messages for call in m.tool_calls]
    assert ids == ["call_0", *(f"call_0_{n}" for n in range(2, 7))]


def test_text_only_history_drops_the_tool_calls_of_completed_turns() -> None:
    log = TreeLog()
    conversation = conversation_of(log.window(), "text_only")
    for n in range(6):
        for said in exchange(f"c{n}"):
            conversation = extended(log, conversation, said)
    assert conversation.open == ()
    assert not any(message.tool_calls for message in prompt_of(conversation).messages)


def test_usage_after_an_undone_compaction_is_ignored() -> None:
    log = TreeLog()
    first = log.append(user("one"))
    compaction = log.append(Compaction("So far.", first_kept=first))
    log.undone = {compaction}
    conversation = conversation_of(log.window())
    assert not conversation.is_fresh
    answer = assistant("two", usage=Usage(1_000, 1))
    assert prompt_of(extended(log, conversation, user("go"), answer)).tokens < 100


def pinned_at(log: TreeLog, *pins: EntryId) -> Conversation:
    window = with_pins(log.window(), log.path(log.leaf), frozenset(pins))
    return conversation_of(window)


def test_result_of_a_pinned_call_forces_a_rebuild_of_the_conversation() -> None:
    log = TreeLog()
    _, call = log.extend(user("look at this"), assistant(tool_call("c", "look")))
    conversation = pinned_at(log, call)
    log.extend(user("go"), tool_result("c", "seen"))
    assert conversation.extend(log.entries[2:3]) is not None
    assert conversation.extend(log.entries[2:]) is None


def test_result_of_an_unpinned_call_extends_the_built_conversation() -> None:
    for pin in range(5):
        log = TreeLog()
        log.extend(*exchange("c0"), assistant(tool_call("c1", "look")))
        pinned = log.entries[pin].id if pin < 4 else log.entries[0].id
        conversation = pinned_at(log, pinned)
        before = len(log.entries)
        log.extend(tool_result("c1", "seen"), *exchange("c2"), *exchange("c1"))
        more = conversation.extend(log.entries[before:])
        assert more is not None
        anew = pinned_at(log, pinned)
        assert (more.pins, more.pinned) == (anew.pins, anew.pinned)
        for budget in (None, 20):
            said, told = (
                prompt_of(more, budget_tokens=budget),
                prompt_of(anew, budget_tokens=budget),
            )
            assert (said.messages, said.tokens) == (told.messages, told.tokens)


def test_later_call_with_the_id_of_a_pinned_call_is_not_pinned() -> None:
    log = TreeLog()
    log.extend(*exchange("c"))
    conversation = pinned_at(log, log.entries[1].id)
    before = len(log.entries)
    log.extend(*exchange("c"))
    more = conversation.extend(log.entries[before:])
    assert more is not None
    assert more.pins == pinned_at(log, log.entries[1].id).pins


@pytest.mark.parametrize("is_in_context", [True, False])
def test_message_of_an_extension_extends_the_built_conversation(*, is_in_context: bool) -> None:
    log = TreeLog()
    conversation = conversation_of(log.window())
    note = CustomMessage("x", (TextPart("noted"),), in_context=is_in_context)
    conversation = extended(log, conversation, user("go"), note)
    assert conversation.leaf == log.leaf
