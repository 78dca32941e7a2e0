"""The end of a window gives the same context within a budget as the whole window."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from perdure.context.build import History, build_context
from perdure.context.pins import has_partners, with_pins
from perdure.context.window_end import context_of_end, from_question
from perdure.session.fold import ContextWindow, Placed, end_of
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction
from perdure.session.messages import (
    Usage,
    assistant,
    tool_call,
    tool_result,
    user,
)
from tests.fakes.contexts import with_numbered_calls
from tests.fakes.random_logs import random_logs
from tests.fakes.tree_log import TreeLog


def around(path: list[Placed], pins: frozenset[EntryId], reach: int) -> list[Placed]:
    """Return the entries of `path` that are at most `reach` entries away from a pinned one."""
    on = [each.depth for each in path if each.entry.id in pins]
    return [each for each in path if any(abs(each.depth - depth) <= reach for depth in on)]


def _belonging(
    near: list[Placed], end: ContextWindow, pins: frozenset[EntryId]
) -> frozenset[EntryId]:
    entries = [*(each.entry for each in near), *end.entries]
    return with_pins(end, entries, pins).pins


HISTORIES: list[History] = ["full", "full", "text_only"]


@given(
    log=random_logs(),
    history=st.sampled_from(HISTORIES),
    limits=st.tuples(
        st.none() | st.integers(1, 30) | st.integers(1, 3_000), st.none() | st.integers(1, 6)
    ),
    pins=st.lists(st.integers(0, 40), max_size=2),
    data=st.data(),
)
def test_context_read_from_the_end_equals_the_context_of_the_whole_window(
    log: TreeLog,
    history: History,
    limits: tuple[int | None, int | None],
    pins: list[int],
    data: st.DataObject,
) -> None:
    ids, (budget, most) = list(log.by_id), limits
    leaf = data.draw(st.sampled_from([None, *ids]))
    pinned = frozenset(ids[n] for n in pins if n < len(ids))
    window = log.window(leaf)
    whole = build_context(
        with_pins(window, log.path(leaf), pinned),
        budget_tokens=budget,
        history=history,
        max_messages=most,
    )
    path = [Placed(depth, entry) for depth, entry in enumerate(log.path(leaf))]
    reach = data.draw(st.sampled_from([1, 3, 100]))
    for limit in range(1, len(window.entries)):
        end = end_of(window, limit)
        shown = from_question(end)
        first = shown.hidden + shown.earlier
        near = around(path[:first], pinned, reach)
        if not has_partners(near, pinned, first):
            event("more around a pin")
            continue
        if _belonging(near, shown, pinned) != _belonging(path[:first], shown, pinned):
            event("a second result of a call")
            continue
        found = context_of_end(
            end, pinned, near, budget_tokens=budget, history=history, max_messages=most
        )
        event("enough" if found else "more")
        if found is not None and near:
            event("enough, with a pin before it")
        if found is not None:
            assert with_numbered_calls(found) == with_numbered_calls(whole)


@given(
    rounds=st.lists(st.integers(0, 3), min_size=12, max_size=30),
    kept=st.none() | st.integers(0, 12),
    pins=st.sets(st.integers(0, 30), min_size=1, max_size=3),
    history=st.sampled_from(HISTORIES),
    budget=st.integers(20, 150),
)
def test_context_read_from_the_end_contains_old_pinned_entries(
    rounds: list[int], kept: int | None, pins: set[int], history: History, budget: int
) -> None:
    log = TreeLog()
    for number, count in enumerate(rounds):
        if kept is not None and number == 8:
            log.extend(Compaction("gist", list(log.by_id)[kept]))
        calls = [tool_call(f"c{number}-{n}", "look", {}) for n in range(count)]
        results = [tool_result(call.id, "it is red") for call in calls]
        usage = Usage(number * 10) if number % 5 == 4 else None
        log.extend(user(f"ask {number}"), assistant(*calls) if calls else assistant("let me see"))
        log.extend(*results, assistant(f"answer {number}", usage=usage))
    window, ids = log.window(), list(log.by_id)
    path = [Placed(depth, entry) for depth, entry in enumerate(log.path(window.leaf))]
    pinned = frozenset(ids[n] for n in pins)
    whole = build_context(
        with_pins(window, log.path(window.leaf), pinned), budget_tokens=budget, history=history
    )
    for limit in range(len(window.entries) // 3, len(window.entries), 9):
        end = end_of(window, limit)
        shown = from_question(end)
        near = around(path[: shown.hidden + shown.earlier], pinned, 8)
        assert has_partners(near, pinned, shown.hidden + shown.earlier)
        found = context_of_end(end, pinned, near, budget_tokens=budget, history=history)
        if found is not None and near:
            event("enough, with a pin before it")
        assert found in (None, whole)
