"""The messages of a conversation in a request, with and without a budget."""

from __future__ import annotations

import pytest

from perdure.context.build import build_context
from perdure.context.incremental.conversation import conversation_of
from perdure.context.incremental.prompt import prompt_of
from perdure.session.kinds import Compaction
from perdure.session.messages import (
    MediaPart,
    Message,
    Usage,
    assistant,
    tool_call,
    tool_result,
    user,
)
from tests.fakes.samples import case
from tests.fakes.tree_log import TreeLog, window_on

PICTURE = MediaPart("image/png", "media://sha256-" + "0" * 64, 10)


def test_conversation_that_fits_the_budget_is_sent_whole() -> None:
    said = (user("x" * 400), assistant("y", usage=Usage(500, 20)), user("z" * 40))
    prompt = prompt_of(conversation_of(window_on(*said)), budget_tokens=600)
    assert prompt.messages == said
    assert (prompt.tokens, prompt.dropped) == (530, 0)
    assert prompt.size == 110.25
    assert prompt.is_counted


def test_trimmed_incremental_prompt_equals_a_newly_built_context() -> None:
    for budget in range(20, 400, 20):
        with case(budget):
            log = TreeLog()
            kept = log.append(user("kept"))
            log.append(Compaction("So far.", first_kept=kept))
            for n in range(6):
                log.extend(user(f"{n}" * 100), assistant(f"{n}" * 100))
            window = log.window()
            context = build_context(window, budget_tokens=budget, scale=1.3)
            prompt = prompt_of(conversation_of(window), budget_tokens=budget, scale=1.3)
            assert prompt.messages == tuple(each.message for each in context.messages)
            assert (prompt.tokens, prompt.dropped) == (context.tokens, context.dropped)


@pytest.mark.parametrize(("most", "left"), [(1, 2), (3, 2), (4, 4), (5, 4), (11, 10), (12, 12)])
def test_message_limit_drops_the_oldest_questions_together_with_their_answers(
    most: int, left: int
) -> None:
    said = [m for n in range(6) for m in (user(f"ask {n}"), assistant(f"answer {n}"))]
    prompt = prompt_of(conversation_of(window_on(*said)), max_messages=most)
    assert prompt.messages == tuple(said[-left:])
    assert prompt.dropped == 12 - left


def test_summary_and_pinned_messages_do_not_count_toward_the_limit() -> None:
    log = TreeLog()
    kept = log.append(user("kept"))
    log.append(Compaction("So far.", first_kept=kept))
    for n in range(3):
        log.extend(user(f"ask {n}"), assistant(f"answer {n}"))
    prompt = prompt_of(conversation_of(log.window()), max_messages=2)
    texts = [message.text for message in prompt.messages]
    assert len(texts) == 2
    assert "So far." in texts[0]
    assert texts[0].endswith("ask 2")
    assert texts[1] == "answer 2"


def test_trimmed_prompt_still_lists_all_call_ids_and_media_handles() -> None:
    said: list[Message] = []
    for n in range(12):
        said += [user("look", PICTURE), assistant(tool_call(f"c{n}", "t"))]
        said += [tool_result(f"c{n}", "seen"), assistant("done")]
    for budget in (None, 100):
        prompt = prompt_of(conversation_of(window_on(*said)), budget_tokens=budget)
        assert all(f"c{n}" in prompt.call_ids for n in range(12))
        assert "c12" not in prompt.call_ids
        assert prompt.handles == {PICTURE.handle}


def test_empty_conversation_gives_no_messages_to_send() -> None:
    prompt = prompt_of(conversation_of(window_on()), budget_tokens=1)
    assert (prompt.messages, prompt.tokens, prompt.is_counted) == ((), 0, False)
