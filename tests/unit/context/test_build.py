from __future__ import annotations

import pytest

from perdure.context.build import Context, build_context
from perdure.context.tokens import estimate_tokens
from perdure.events.wire import wire
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
    """Return a question, a tool round with a result of `size` bytes, and an answer per name."""
    said: list[Message] = []
    for name in names:
        said += [
            user(f"ask {name}"),
            assistant(tool_call(name, "read", {"path": name})),
            tool_result(name, "r" * size),
            assistant(f"answer {name}"),
        ]
    return said


def test_context_before_the_root_is_empty() -> None:
    log = TreeLog()
    log.extend(user("a"), ModelChange("openai:x"))
    context = build_context(log.window(None))
    assert context == Context(None, None, 0, (), 0)


def test_context_of_a_missing_leaf_is_empty() -> None:
    """For a missing leaf, pi shows the newest entry; perdure's stores raise an error instead."""
    log = TreeLog()
    log.append(user("a"))
    assert build_context(log.window("s/99")).messages == ()


def test_retained_message_that_does_not_fit_counts_as_dropped() -> None:
    retained = (user("ask" * 200), assistant("answer"), user("newest"))
    window = window_on(Compaction("", retained=retained))
    context = build_context(window, budget_tokens=50)
    assert texts(context) == ["newest"]
    assert context.dropped == 1


def test_newest_settings_on_the_branch_apply() -> None:
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


def test_model_argument_overrides_the_last_model_change() -> None:
    assert build_context(window_on(user("x")), model="openai:a").model == "openai:a"
    named = window_on(user("x"), ModelChange("openai:b"))
    assert build_context(named, model="openai:a").model == "openai:a"
    assert build_context(named).model == "openai:b"


def test_model_name_of_an_answer_does_not_select_the_model() -> None:
    assert build_context(window_on(user("x"), assistant("y", model="openai:z"))).model is None


@pytest.mark.parametrize("model", [None, "anthropic:a", "openai:b"])
def test_reasoning_is_never_sent(model: str | None) -> None:
    said = assistant(thinking("secret"), "open", model="anthropic:a")
    context = build_context(window_on(user("x"), said), model=model)
    assert texts(context) == ["x", "open"]
    assert "secret" not in str(wire(context.messages))


def test_token_count_is_the_reported_usage_plus_estimates_of_later_messages() -> None:
    context = build_context(window_on(user("x"), assistant("y", usage=Usage(70, 7)), user("1234")))
    assert context.tokens == 78


def test_token_usage_reported_before_a_compaction_is_ignored() -> None:
    log = TreeLog()
    log.append(user("old"))
    kept = log.append(user("kept"))
    log.append(assistant("big", usage=Usage(150_000)))
    log.append(Compaction("so far", kept))
    assert build_context(log.window()).tokens < 200


def test_usage_of_all_zeros_counts_as_no_usage() -> None:
    """Issue 5526 of pi: providers that report zeros prevented every compaction."""
    window = window_on(user("x" * 400_000), assistant("ok", usage=Usage()))
    assert build_context(window).tokens > 100_000


def test_token_estimates_are_multiplied_by_the_scale() -> None:
    assert build_context(window_on(user("x" * 40)), scale=2.0).tokens == 20


def test_unreadable_entries_are_skipped_and_counted() -> None:
    log = TreeLog()
    log.append(user("a"))
    log.append_raw("hologram", b"{}")
    context = build_context(log.window())
    assert (texts(context), context.skipped) == (["a"], 1)


# Budgets -----------------------------------------------------------------------------------------


def test_context_within_the_budget_drops_no_message() -> None:
    window = window_on(*exchanges("1", "2"))
    assert build_context(window, budget_tokens=10_000) == build_context(window)


def test_oldest_exchanges_are_dropped_until_the_context_fits() -> None:
    said = exchanges("1", "2", "3")
    one = sum(estimate_tokens(message) for message in exchanges("1"))
    context = build_context(window_on(*said), budget_tokens=2 * one)
    assert [each.message for each in context.messages[:1]] == [user("ask 2")]
    assert context.dropped == 4
    assert context.tokens <= 2 * one
    less = build_context(window_on(*said), budget_tokens=2 * one - 1)
    assert (less.messages[0].message, less.dropped) == (user("ask 3"), 8)


def test_newest_exchange_stays_in_the_context_for_any_budget() -> None:
    context = build_context(window_on(*exchanges("1", "2")), budget_tokens=0)
    assert texts(context)[0] == "ask 2"
    assert all_problems([each.message for each in context.messages]) == []


def test_single_exchange_is_never_dropped() -> None:
    window = window_on(*exchanges("1"))
    assert build_context(window, budget_tokens=1) == build_context(window)


def test_summary_of_a_compaction_stays_in_a_trimmed_context() -> None:
    log = TreeLog()
    log.append(user("old"))
    kept, *_ = log.extend(*exchanges("1", "2"))
    log.append(Compaction("so far", kept))
    log.extend(*exchanges("3"))
    context = build_context(log.window(), budget_tokens=1)
    assert "so far" in texts(context)[0]
    assert texts(context)[0].endswith("ask 3")
    assert context.dropped == 8


def test_turn_cut_by_a_compaction_is_dropped_before_later_turns() -> None:
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


def test_consecutive_user_messages_are_one_exchange() -> None:
    said = [user("a" * 400), user("b" * 400), assistant("c"), user("d"), assistant("e")]
    context = build_context(window_on(*said), budget_tokens=110)
    assert texts(context) == ["d", "e"]
    assert context.dropped == 3


def test_low_estimates_are_corrected_by_reported_usage() -> None:
    said = [*exchanges("1", "2", "3")[:-1], assistant("answer 3", usage=Usage(700))]
    window = window_on(*said)
    assert build_context(window, budget_tokens=10_000).tokens == 700
    context = build_context(window, budget_tokens=500)
    assert texts(context)[0] == "ask 2"
    assert 400 < context.tokens <= 500


def test_low_reported_usage_does_not_disable_budget() -> None:
    said = [*exchanges("1", "2")[:-1], assistant("answer 2", usage=Usage(1))]
    assert build_context(window_on(*said), budget_tokens=150).dropped == 4


def test_large_reported_usage_does_not_drop_short_history() -> None:
    said = [*exchanges("1", "2")[:-1], assistant("answer 2", usage=Usage(20_000))]
    context = build_context(window_on(*said), budget_tokens=8_000)
    assert context.dropped == 0
    assert context.tokens <= 8_000
    assert build_context(window_on(*said), budget_tokens=30_000).tokens == 20_000


# Texts only --------------------------------------------------------------------------------------


def test_text_only_history_keeps_questions_and_answers() -> None:
    window = window_on(*exchanges("1"), user("ask 2"))
    context = build_context(window, history="text_only")
    assert texts(context) == ["ask 1", "answer 1", "ask 2"]
    assert context.dropped == 0


def test_text_only_history_keeps_the_tool_calls_of_the_current_turn() -> None:
    said = [*exchanges("1"), *exchanges("2")[:-1], user("steering"), *exchanges("3")[1:-1]]
    context = build_context(window_on(*said), history="text_only")
    roles = [each.message.role for each in context.messages]
    assert roles == ["user", "assistant", "user", "assistant", "tool", "user", "assistant", "tool"]


@pytest.mark.parametrize("reason", ["aborted", "error"])
def test_interrupted_answer_keeps_tool_calls_in_a_text_only_history(
    reason: StopReason,
) -> None:
    said = [*exchanges("1")[:-1], assistant("part", stop_reason=reason), user("again")]
    context = build_context(window_on(*said), history="text_only")
    assert [each.message.role for each in context.messages].count("tool") == 1


def test_text_only_history_ignores_the_usage_of_omitted_messages() -> None:
    said = [*exchanges("1")[:-1], assistant("answer", usage=Usage(50_000)), user("ask 2")]
    assert build_context(window_on(*said), history="text_only").tokens < 20
