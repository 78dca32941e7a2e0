"""A tree as rows: each entry once, the conversation in one column, branches to its right."""

from __future__ import annotations

import time

import hypothesis.strategies as st
import pytest
from hypothesis import given

from perdure.apps.terminal.outline import Fold, Line, Row, lines_of, rows_of
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction
from perdure.session.messages import assistant, tool_result, user
from perdure.session.tree import TreeNode, index_of, nodes_of
from tests.fakes.tree_log import TreeLog


def tree(log: TreeLog, **labels: str) -> tuple[TreeNode, ...]:
    named = {EntryId(f"s/{name.removeprefix('at')}"): label for name, label in labels.items()}
    return nodes_of(index_of(log.entries), named)


def turns(count: int, log: TreeLog | None = None, steps: int = 3) -> TreeLog:
    """Append `count` turns; each has a question, `steps` tool rounds and an answer."""
    log = log or TreeLog()
    for number in range(count):
        log.append(user(f"question {number}"))
        for _ in range(steps):
            log.append(assistant("looking"))
            log.append(tool_result("c", "found"))
        log.append(assistant(f"answer {number}"))
    return log


def seqs(lines: list[Line]) -> list[int | str]:
    return [line.entry.seq if isinstance(line, Row) else f"+{line.count}" for line in lines]


def test_branch_with_the_leaf_is_in_the_first_column() -> None:
    log = TreeLog()
    log.extend(user("0"), user("1"), user("2"))
    log.append(user("3"), parent="s/0")
    rows = list(rows_of(tree(log), EntryId("s/2")))
    assert [(row.entry.seq, row.depth) for row in rows] == [(0, 0), (3, 1), (1, 0), (2, 0)]
    rows = list(rows_of(tree(log), EntryId("s/3")))
    assert [(row.entry.seq, row.depth) for row in rows] == [(0, 0), (1, 1), (2, 1), (3, 0)]
    assert [row.entry.seq for row in rows if row.is_leaf] == [3]
    assert [row.entry.seq for row in rows if row.starts] == [0, 1]


def test_newest_branch_is_in_the_first_column_if_there_is_no_leaf() -> None:
    log = TreeLog()
    log.extend(user("0"), user("1"))
    log.append(user("2"), parent="s/0")
    rows = list(rows_of(tree(log), None))
    assert [(row.entry.seq, row.depth) for row in rows] == [(0, 0), (1, 1), (2, 0)]


def test_tree_shows_every_root() -> None:
    log = TreeLog()
    log.append(user("a"))
    log.append(user("b"), parent=None)
    log.append(user("c"), parent="gone/1")
    rows = list(rows_of(tree(log), EntryId("s/1")))
    assert [(row.entry.seq, row.depth) for row in rows] == [(0, 1), (2, 1), (1, 0)]


def test_tree_that_fits_is_shown_whole() -> None:
    log = turns(2)
    assert seqs(lines_of(tree(log), log.leaf, limit=16)) == list(range(16))


def test_steps_inside_turns_are_folded_first() -> None:
    log = turns(3)
    lines = lines_of(tree(log), log.leaf, limit=12)
    assert seqs(lines) == [0, "+6", 7, 8, "+6", 15, 16, "+6", 23]
    fold = lines[1]
    assert isinstance(fold, Fold)
    assert fold.kinds == (("assistant", 3), ("tool", 3))


def test_steps_of_turns_are_folded_before_questions() -> None:
    log = turns(100)
    lines = lines_of(tree(log), log.leaf, limit=20)
    asked = [line for line in lines if isinstance(line, Row)]
    assert 4 < len(asked) <= 20
    assert len(lines) <= 20
    assert (asked[0].entry.seq, asked[-1].entry.seq) == (0, 799)


def test_labelled_entries_are_always_shown() -> None:
    log = turns(50)
    middle = log.append(Compaction("so far"))
    turns(50, log)
    lines = lines_of(tree(log, at123="here"), log.leaf, limit=3)
    shown = {line.entry.id for line in lines if isinstance(line, Row)}
    assert {"s/0", "s/123", middle, log.leaf} <= shown


def test_side_branches_are_folded_last() -> None:
    log = turns(5)
    leaf = log.leaf
    for start in range(0, 32, 8):
        log.leaf = EntryId(f"s/{start}")
        turns(2, log)
        log.append(user("x"), parent=f"s/{len(log.entries) - 4}")
    lines = lines_of(tree(log), leaf, limit=20)
    assert len(lines) <= 20
    starts = [line for line in lines if isinstance(line, Row) and line.starts and line.depth == 1]
    assert len(starts) == 4
    assert all(line.depth <= 1 for line in lines)
    assert any(isinstance(line, Fold) and line.is_branch for line in lines)


def test_branches_below_a_depth_are_folded_on_request() -> None:
    log = TreeLog()
    log.extend(user("0"), user("1"), user("2"))
    log.append(user("3"), parent="s/1")
    log.append(user("4"), parent="s/3")
    log.append(user("5"), parent="s/3")
    leaf = EntryId("s/2")
    assert seqs(lines_of(tree(log), leaf)) == [0, 1, 3, 4, 5, 2]
    assert seqs(lines_of(tree(log), leaf, depth=1)) == [0, 1, 3, 4, 5, 2]
    assert seqs(lines_of(tree(log), leaf, depth=0)) == [0, 1, 3, "+2", 2]


@given(
    parents=st.lists(st.integers(min_value=-1, max_value=30), max_size=60),
    limit=st.none() | st.integers(min_value=1, max_value=40),
    depth=st.none() | st.integers(min_value=0, max_value=5),
    leaf=st.integers(min_value=0, max_value=59),
)
def test_no_entry_is_lost_or_shown_twice(
    parents: list[int], limit: int | None, depth: int | None, leaf: int
) -> None:
    log = TreeLog()
    for number, parent in enumerate(parents):
        body = [user("u"), assistant("a"), tool_result("c", "t")][number % 3]
        log.append(body, parent=f"s/{parent}" if 0 <= parent < number else None)
    end = EntryId(f"s/{leaf}") if leaf < len(parents) else None
    lines = lines_of(tree(log), end, limit=limit, depth=depth)
    rows = [line.entry.seq for line in lines if isinstance(line, Row)]
    folded = sum(line.count for line in lines if isinstance(line, Fold))
    assert len(rows) == len(set(rows))
    assert len(rows) + folded == len(parents)
    if limit is None and depth is None:
        assert sorted(rows) == list(range(len(parents)))


@pytest.mark.full_only
def test_ten_thousand_entries_are_shown_quickly() -> None:
    chain = TreeLog()
    for _ in range(10_000):
        chain.append(user("x"))
    assert len(lines_of(tree(chain), chain.leaf)) == 10_000
    assert len(lines_of(tree(chain), chain.leaf, limit=50)) <= 50
    nested = TreeLog()
    nested.append(user("x"))
    for _ in range(2_000):  # each is left at once: two children, the later one goes on
        above = nested.leaf
        nested.append(user("left"), parent=above)
        nested.append(user("x"), parent=above)
    begun = time.process_time()
    lines = lines_of(tree(nested), EntryId("s/1"), limit=100)
    assert len(lines) <= 4_001
    assert time.process_time() - begun < 30  # only a guard against a square: it takes 0.1 s
