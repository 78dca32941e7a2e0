"""The newest part of a window is enough to build a context within a budget."""

from __future__ import annotations

import pytest

from perdure.context.build import Context, build_context
from perdure.context.pins import has_partners, with_pins
from perdure.context.window_end import context_of_end
from perdure.session.fold import Placed, end_of
from perdure.session.kinds import Compaction, ModelChange
from perdure.session.messages import Message, Usage, assistant, tool_call, tool_result, user
from tests.fakes.tree_log import TreeLog

BUDGET = 200


def exchanges(count: int, usage: Usage | None = None) -> list[Message]:
    said: list[Message] = []
    for number in range(count):
        asked, answered = f"ask {number:04} " * 8, f"answer {number:04} " * 8
        said += [user(asked), assistant(answered, usage=usage)]
    return said


def needed(log: TreeLog, budget: int | None = BUDGET, most: int | None = None) -> int:
    """Return how many newest entries are needed to get the same context as from all entries."""
    window = log.window()
    whole = build_context(window, budget_tokens=budget, max_messages=most)
    for limit in range(1, len(window.entries)):
        found = at_limit(log, limit, budget, most)
        if found is not None:
            assert found == whole
            return limit
    return len(window.entries)


def at_limit(
    log: TreeLog, limit: int, budget: int | None = BUDGET, most: int | None = None
) -> Context | None:
    end = end_of(log.window(), limit)
    return context_of_end(end, budget_tokens=budget, max_messages=most)


@pytest.mark.parametrize("usage", [None, Usage(120)])
def test_number_of_read_entries_does_not_depend_on_branch_length(
    usage: Usage | None,
) -> None:
    found: set[int] = set()
    for count in (20, 200):
        log = TreeLog()
        log.append(ModelChange("openai:one"))
        log.extend(*exchanges(count, usage))
        found.add(needed(log))
    assert len(found) == 1
    assert max(found) < 16


def test_few_entries_are_read_for_a_context_with_a_message_limit() -> None:
    log = TreeLog()
    log.extend(*exchanges(100))
    assert needed(log, None, 6) < 12


def growing_reports(count: int, per_message: int) -> list[Message]:
    """Return exchanges, each followed by the provider's reported usage."""
    said = exchanges(count)
    for at in range(1, len(said), 2):
        said[at] = assistant(said[at].text, usage=Usage((at + 1) * per_message))
    return said


@pytest.mark.parametrize("per_message", [1, 20, 50, 500])
def test_few_entries_are_read_for_a_context_with_usage_reports(per_message: int) -> None:
    found: set[int] = set()
    for count in (100, 400):
        log = TreeLog()
        log.extend(*growing_reports(count, per_message))
        found.add(needed(log))
    assert len(found) == 1
    assert max(found) < 20


def test_reported_usage_corrects_token_estimates_of_a_long_branch() -> None:
    log = TreeLog()
    log.extend(*growing_reports(100, 40))
    right = build_context(log.window(), budget_tokens=BUDGET)
    assert len(right.messages) == 4
    assert 130 < right.tokens <= BUDGET


def test_old_usage_report_is_ignored() -> None:
    log = TreeLog()
    log.extend(*exchanges(1, Usage(100_000)), *exchanges(100))
    assert needed(log) < 16


def test_entries_are_read_backwards_to_the_call_of_a_result() -> None:
    log = TreeLog()
    log.extend(*exchanges(50), user("look"), assistant(tool_call("far", "read", {})))
    log.extend(*exchanges(10), tool_result("far", "at last"), user("and?"), assistant("so"))
    assert needed(log, 1) >= 24


def test_pinned_entry_before_the_loaded_entries_is_included() -> None:
    log = TreeLog()
    asked, *_ = log.extend(user("look"), assistant(tool_call("far", "read", {})))
    result, *_ = log.extend(tool_result("far", "it is red"), assistant("red"), *exchanges(50))
    window, path = log.window(), log.path(log.window().leaf)
    for pins in (frozenset({asked}), frozenset({asked, result})):
        whole = build_context(with_pins(window, path, pins), budget_tokens=BUDGET)
        near = [Placed(depth, entry) for depth, entry in enumerate(path[:4])]
        found = context_of_end(end_of(window, 16), pins, near, budget_tokens=BUDGET)
        assert found == whole
        assert found is not None
        assert found.messages[0].entry_ids[0] == asked
        assert len(found.messages) > len(pins)


@pytest.mark.parametrize(
    ("first", "last", "is_enough"),
    [(0, 4, True), (1, 4, True), (2, 4, False), (1, 3, False), (1, 2, False)],
)
def test_pinned_result_needs_its_call_and_the_other_results(
    first: int, last: int, is_enough: bool
) -> None:
    log = TreeLog()
    calls = assistant(tool_call("a", "read", {}), tool_call("b", "read", {}))
    log.extend(user("look"), calls, tool_result("a", "red"), tool_result("b", "blue"))
    ids = log.extend(*exchanges(50))
    near = [Placed(depth, log.window().entries[depth]) for depth in range(first, last)]
    pinned = frozenset({log.window().entries[1 if last == 2 else 2].id})
    assert has_partners(near, pinned, 20) is is_enough
    assert has_partners(near, frozenset(ids), 20)


def test_summary_before_the_loaded_entries_stays_in_the_context() -> None:
    log = TreeLog()
    kept, *_ = log.extend(*exchanges(2))
    log.append(Compaction("so far", kept))
    log.extend(*exchanges(50))
    assert needed(log) < 16
    found = at_limit(log, 20)
    assert found is not None
    assert "so far" in found.messages[0].message.text


def test_context_with_a_pinned_failed_answer_needs_more_entries() -> None:
    log = TreeLog()
    failed = assistant("oops", stop_reason="error")
    _, pinned, *_ = log.extend(user("hello"), failed, assistant("fine"), *exchanges(50))
    window, pins = log.window(), frozenset({pinned})
    near = [Placed(depth, entry) for depth, entry in enumerate(window.entries[:6])]
    whole = build_context(with_pins(window, window.entries, pins), budget_tokens=BUDGET)
    assert pinned not in [each.entry_id for each in whole.messages]
    assert context_of_end(end_of(window, 16), pins, near, budget_tokens=BUDGET) is None


def test_few_entries_are_read_for_a_text_only_context_with_a_pin() -> None:
    log = TreeLog()
    asked, called, *_ = log.extend(user("look"), assistant(tool_call("far", "read", {})))
    log.extend(tool_result("far", "it is red"), assistant("red"), *exchanges(50))
    window, pins = log.window(), frozenset({asked, called})
    near = [Placed(depth, entry) for depth, entry in enumerate(window.entries[:4])]
    whole = build_context(
        with_pins(window, window.entries, pins), budget_tokens=BUDGET, history="text_only"
    )
    found = context_of_end(
        end_of(window, 16), pins, near, budget_tokens=BUDGET, history="text_only"
    )
    assert found == whole
    assert whole.messages[0].entry_ids[0] == asked


def test_retained_messages_before_the_loaded_entries_are_omitted() -> None:
    log = TreeLog()
    log.extend(*exchanges(2))
    log.append(Compaction("so far", None, retained=(user("kept"), assistant("as it was"))))
    log.extend(*exchanges(50))
    assert needed(log) < 16
    found = at_limit(log, 20)
    assert found is not None
    assert "so far" in found.messages[0].message.text
    assert "as it was" not in "".join(each.message.text for each in found.messages)


def test_usage_before_undone_compaction_is_ignored() -> None:
    log = TreeLog()
    log.extend(*exchanges(2))
    undone = log.append(Compaction("gone", None))
    log.undone = {undone}
    log.extend(*exchanges(50, Usage(1_000)))
    assert needed(log) < 16
