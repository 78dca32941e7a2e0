"""Compactions and budgets do not remove pinned entries, nor their calls and results."""

from __future__ import annotations

from perdure.context.build import build_context
from perdure.context.compaction import left_context
from perdure.context.pins import pins_of, with_pins
from perdure.session.codec import new_side
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import Compaction
from perdure.session.messages import assistant, tool_call, tool_result, user
from perdure.session.notes import Pin
from tests.fakes.tree_log import TreeLog


def note(seq: int, about: EntryId | None, *, is_pinned: bool = True) -> Entry:
    new = new_side(Pin(is_pinned=is_pinned))
    return Entry(StreamId("s"), seq, "side", None, about, 0, new.kind, new.v, new.body)


def grown() -> tuple[TreeLog, list[EntryId]]:
    """Return four exchanges, the second with a tool, and a compaction that keeps the last."""
    log = TreeLog()
    ids = log.extend(
        user("first"),
        assistant("one"),
        user("second"),
        assistant("look", tool_call("c", "read")),
        tool_result("c", "seen"),
        assistant("two"),
        user("third"),
        assistant("three"),
        user("fourth"),
    )
    log.append(Compaction("So far.", first_kept=ids[-1]))
    log.append(assistant("four"))
    return log, ids


def pinned(log: TreeLog, *pins: EntryId) -> ContextWindow:
    return with_pins(log.window(), log.path(log.leaf), frozenset(pins))


def said(window: ContextWindow, budget: int | None = None) -> list[str]:
    context = build_context(window, budget_tokens=budget)
    return [item.message.text for item in context.messages]


def test_last_pin_or_unpin_decides_if_an_entry_is_pinned() -> None:
    a, b = EntryId("s/1"), EntryId("s/2")
    assert pins_of([note(3, a), note(4, b), note(5, a, is_pinned=False)]) == {b}
    assert pins_of([note(3, a, is_pinned=False), note(4, a), note(5, None)]) == {a}
    assert pins_of([]) == frozenset()


def test_pinned_entry_that_a_compaction_hides_follows_the_summary() -> None:
    log, ids = grown()
    (summary, *rest) = said(pinned(log, ids[1], ids[6]))
    assert "So far." in summary
    assert rest[0] == "one"
    assert "third" in rest[1]
    assert "fourth" in rest[1]
    assert rest[2] == "four"


def test_call_and_its_result_are_pinned_together() -> None:
    log, ids = grown()
    for pin in (ids[3], ids[4]):
        window = pinned(log, pin)
        assert [entry.id for entry in window.pinned] == [ids[3], ids[4]]
        parts = [part for m in build_context(window).messages for part in m.message.parts]
        assert tool_call("c", "read") in parts


def test_pins_of_other_branches_are_ignored() -> None:
    log, ids = grown()
    here = log.leaf
    away = log.append(user("elsewhere"), parent=ids[0])
    window = with_pins(log.window(here), log.path(here), frozenset({away}))
    assert (window.pinned, window.pins) == ((), frozenset())


def test_budget_drops_only_unpinned_messages() -> None:
    log = TreeLog()
    ids = log.extend(
        *(message for n in range(6) for message in (user(f"{n} " * 200), assistant(f"a{n}")))
    )
    window = with_pins(log.window(), log.path(log.leaf), frozenset({ids[3]}))
    texts = said(window, budget=150)
    assert any("a1" in text for text in texts)
    assert not any(text.startswith("1 ") for text in texts)
    assert texts[-1] == "a5"


def test_pin_of_a_visible_entry_does_not_change_the_context() -> None:
    log, ids = grown()
    assert said(pinned(log, ids[-1])) == said(log.window())


def test_entries_that_a_compaction_removed_from_the_context_are_listed() -> None:
    log, ids = grown()
    path = log.path(log.leaf)[:-1]
    left = left_context(path, frozenset(), frozenset({ids[4]}))
    assert left is not None
    assert left.entries == (ids[0], ids[1], ids[2], ids[5], ids[6], ids[7])
    assert left.pinned == (ids[3], ids[4])
    assert left.roles == {"user": 3, "assistant": 3}
    assert left.tool_calls == 0
    undone = left_context(path, frozenset({path[-1].id}), frozenset())
    assert undone is not None
    assert len(undone.entries) == 8
    assert left_context(path[:-1], frozenset(), frozenset()) is None
    assert left_context([], frozenset(), frozenset()) is None
