"""The budget of a request with recalled context."""

from __future__ import annotations

import pytest

from perdure.context.incremental.conversation import Conversation, conversation_of
from perdure.context.incremental.prompt import Prompt, prompt_of
from perdure.engine.turns.executor.working_memory import (
    recalled_block,
    room_for,
    tokens_of,
    with_block,
    without_unanswered,
)
from perdure.errors import ContextOverflow
from perdure.session.messages import Message, assistant, user
from tests.fakes.tree_log import window_on


def conversation(*messages: Message) -> Conversation:
    return conversation_of(window_on(*messages))


def prompt(*messages: Message) -> Prompt:
    return prompt_of(conversation(*messages))


def test_request_larger_than_the_budget_raises_context_overflow() -> None:
    said = conversation(user("x" * 400))  # 100 tokens
    with pytest.raises(ContextOverflow) as refused:
        room_for(said, "m", 149, 50, 1.0)
    assert (refused.value.used_tokens, refused.value.limit_tokens) == (150, 149)
    assert not refused.value.can_compact
    assert room_for(said, "m", 150, 50, 1.0) == 0
    assert room_for(said, "m", 400, 50, 1.0) == 100
    assert room_for(said, "m", None, 50, 1.0) is None


def test_recalled_texts_stay_within_their_share_of_the_budget() -> None:
    texts = ["y" * 100 for _ in range(20)]
    for room in range(0, 800, 13):
        assert tokens_of(recalled_block(texts, "b", 1.0, room, None), 1.0) <= room
    block = recalled_block(texts, "b", 1.0, None, 2_000)
    assert 0 < tokens_of(block, 1.0) <= 500


def test_recalled_memory_precedes_the_history_in_a_request() -> None:
    before = prompt(user("one"), assistant("two"), user("three"))
    after = with_block(before, "block", 1.0)
    assert [message.text for message in after.messages] == ["block\n\none", "two", "three"]
    assert after.tokens == before.tokens + 2
    assert after.size == before.size + 1.25


def test_old_unanswered_messages_are_omitted_first() -> None:
    new = user("new" * 4)
    said = conversation(user("old" * 40), user("older" * 40), new)
    before = prompt_of(said)
    after = without_unanswered(before, said, 1.0, 10)
    assert [message.text for message in after.messages] == [new.text]
    assert after.dropped == before.dropped + 2
    assert without_unanswered(before, said, 1.0, 1_000) is before
