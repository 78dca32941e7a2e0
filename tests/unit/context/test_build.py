from __future__ import annotations

import pytest

from perdure.context.build import Context, build_context
from perdure.context.tokens import estimate_tokens
from perdure.session.kinds import Compaction, ModelChange, ThinkingChange
from perdure.session.messages import (
    Message,
    StopReason,
    Usage,
    assistant,
    thinking,
    tool_call,
    tool_result,
    user,
)
from tests.fakes.provider_rules import all_problems
from tests.fakes.tree_log import TreeLog, window_on


def texts(context: Context) -> list[str]:
    return [each.message.text for each in context.messages]


def exchanges(*names: str, size: int = 400) -> list[Message]:
    """For each name a question with it, a tool round, and an answer of `size` bytes."""
    said: list[Message] = []
    for name in names:
        said += [
            user(f"ask {name}"),
            assistant(tool_call(name, "read", {"path": name})),
            tool_result(name, "r" * size),
            assistant(f"answer {name}"),
        ]
    return said


def test_scenario_16_before_the_root_the_context_is_empty_without_model_and_thinking() -> None:
    log = TreeLog()
    log.extend(user("a"), ModelChange("openai:x"))
    context = build_context(log.window(None))
    assert context == Context(None, None, 0, (), 0)


def test_scenario_17_a_leaf_that_is_not_there_has_nobody_elses_context() -> None:
    """pi shows the newest entry instead; a store of ours refuses, and here nothing is made up."""
    log = TreeLog()
    log.append(user("a"))
    assert build_context(log.window("s/99")).messages == ()


def test_the_newest_settings_on_the_branch_count() -> None:
    context = build_context(
        window_on(
            ModelChange("openai:a"),
            ThinkingChange("low"),
            user("x"),
            ModelChange("anthropic:b"),
            ThinkingChange("high"),
        )
    )
    assert (context.model, context.thinking_level) == ("anthropic:b", "high")


def test_given_model_counts_before_the_last_switch() -> None:
    assert build_context(window_on(user("x")), model="openai:a").model == "openai:a"
    named = window_on(user("x"), ModelChange("openai:b"))
    assert build_context(named, model="openai:a").model == "openai:a"
    assert build_context(named).model == "openai:b"


def test_an_answer_of_another_model_does_not_change_the_model() -> None:
    assert build_context(window_on(user("x"), assistant("y", model="openai:z"))).model is None


@pytest.mark.parametrize("model", [None, "anthropic:a", "openai:b"])
def test_reasoning_is_sent_to_no_provider_not_even_its_own(model: str | None) -> None:
    said = assistant(thinking("secret"), "open", model="anthropic:a")
    context = build_context(window_on(user("x"), said), model=model)
    assert texts(context) == ["x", "open"]
    assert "secret" not in str(context.messages)


def test_tokens_are_the_reported_usage_and_estimates_for_the_rest() -> None:
    context = build_context(window_on(user("x"), assistant("y", usage=Usage(70, 7)), user("1234")))
    assert context.tokens == 78


def test_scenario_26_usage_from_before_the_compaction_is_stale() -> None:
    log = TreeLog()
    log.append(user("old"))
    kept = log.append(user("kept"))
    log.append(assistant("big", usage=Usage(150_000)))
    log.append(Compaction("so far", kept))
    assert build_context(log.window()).tokens < 200


def test_all_zero_usage_is_no_usage() -> None:
    """#5526"""
    window = window_on(user("x" * 400_000), assistant("ok", usage=Usage()))
    assert build_context(window).tokens > 100_000


def test_estimates_follow_the_scale() -> None:
    assert build_context(window_on(user("x" * 40)), scale=2.0).tokens == 20


def test_what_cannot_be_read_is_skipped_and_counted() -> None:
    log = TreeLog()
    log.append(user("a"))
    log.append_raw("hologram", b"{}")
    context = build_context(log.window())
    assert (texts(context), context.skipped) == (["a"], 1)


# Budgets -----------------------------------------------------------------------------------------


def test_within_the_budget_nothing_is_dropped() -> None:
    window = window_on(*exchanges("1", "2"))
    assert build_context(window, budget_tokens=10_000) == build_context(window)


def test_the_oldest_exchanges_are_dropped_whole_until_the_rest_fits() -> None:
    said = exchanges("1", "2", "3")
    one = sum(estimate_tokens(message) for message in exchanges("1"))
    context = build_context(window_on(*said), budget_tokens=2 * one)
    assert [each.message for each in context.messages[:1]] == [user("ask 2")]
    assert context.dropped == 4
    assert context.tokens <= 2 * one
    less = build_context(window_on(*said), budget_tokens=2 * one - 1)
    assert (less.messages[0].message, less.dropped) == (user("ask 3"), 8)


def test_the_newest_exchange_stays_whatever_the_budget() -> None:
    context = build_context(window_on(*exchanges("1", "2")), budget_tokens=0)
    assert texts(context)[0] == "ask 2"
    assert all_problems([each.message for each in context.messages]) == []


def test_a_single_exchange_is_never_dropped() -> None:
    window = window_on(*exchanges("1"))
    assert build_context(window, budget_tokens=1) == build_context(window)


def test_the_summary_of_a_compaction_stays() -> None:
    log = TreeLog()
    log.append(user("old"))
    kept, *_ = log.extend(*exchanges("1", "2"))
    log.append(Compaction("so far", kept))
    log.extend(*exchanges("3"))
    context = build_context(log.window(), budget_tokens=1)
    assert "so far" in texts(context)[0]
    assert texts(context)[0].endswith("ask 3")
    assert context.dropped == 8


def test_the_rest_of_a_split_turn_goes_before_the_exchanges_behind_it() -> None:
    log = TreeLog()
    _, call, *_ = log.extend(*exchanges("1"))
    log.append(Compaction("so far", call))
    log.extend(*exchanges("2"))
    context = build_context(log.window(), budget_tokens=150)
    assert [each.message.role for each in context.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert context.messages[0].message.text.endswith("ask 2")
    assert context.dropped == 3


def test_words_said_one_after_the_other_are_one_exchange() -> None:
    said = [user("a" * 400), user("b" * 400), assistant("c"), user("d"), assistant("e")]
    context = build_context(window_on(*said), budget_tokens=110)
    assert texts(context) == ["d", "e"]
    assert context.dropped == 3


def test_estimates_that_are_too_low_are_corrected_by_what_was_reported() -> None:
    said = [*exchanges("1", "2", "3")[:-1], assistant("answer 3", usage=Usage(700))]
    window = window_on(*said)
    assert build_context(window, budget_tokens=10_000).tokens == 700
    context = build_context(window, budget_tokens=500)
    assert texts(context)[0] == "ask 2"
    assert 400 < context.tokens <= 500


def test_a_provider_that_reports_too_little_does_not_make_a_budget_void() -> None:
    said = [*exchanges("1", "2")[:-1], assistant("answer 2", usage=Usage(1))]
    assert build_context(window_on(*said), budget_tokens=150).dropped == 4


def test_instructions_and_tools_in_the_reported_usage_do_not_empty_the_history() -> None:
    said = [*exchanges("1", "2")[:-1], assistant("answer 2", usage=Usage(20_000))]
    context = build_context(window_on(*said), budget_tokens=8_000)
    assert context.dropped == 0
    assert context.tokens <= 8_000
    assert build_context(window_on(*said), budget_tokens=30_000).tokens == 20_000


# Texts only --------------------------------------------------------------------------------------


def test_texts_only_keeps_of_turns_that_are_over_what_was_asked_and_answered() -> None:
    window = window_on(*exchanges("1"), user("ask 2"))
    context = build_context(window, history="text_only")
    assert texts(context) == ["ask 1", "answer 1", "ask 2"]
    assert context.dropped == 0


def test_texts_only_keeps_the_tool_calls_of_the_turn_that_is_going_on() -> None:
    said = [*exchanges("1"), *exchanges("2")[:-1], user("steering"), *exchanges("3")[1:-1]]
    context = build_context(window_on(*said), history="text_only")
    roles = [each.message.role for each in context.messages]
    assert roles == ["user", "assistant", "user", "assistant", "tool", "user", "assistant", "tool"]


@pytest.mark.parametrize("reason", ["aborted", "error"])
def test_texts_only_does_not_take_an_answer_cut_short_for_the_end_of_a_turn(
    reason: StopReason,
) -> None:
    said = [*exchanges("1")[:-1], assistant("part", stop_reason=reason), user("again")]
    context = build_context(window_on(*said), history="text_only")
    assert [each.message.role for each in context.messages].count("tool") == 1


def test_texts_only_does_not_trust_usage_that_counted_what_is_left_out() -> None:
    said = [*exchanges("1")[:-1], assistant("answer", usage=Usage(50_000)), user("ask 2")]
    assert build_context(window_on(*said), history="text_only").tokens < 20
