"""The rows of the tree navigator: which rows are folded, and which match a search. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from perdure.apps.terminal.outline import (
    Line,
    Row,
    branch_end,
    fold_branches,
    fold_runs,
    rows_of,
)
from perdure.apps.terminal.previews import preview_of, who_of
from perdure.session.ids import EntryId
from perdure.session.tree import TreeNode

_SEARCHED_CELLS = 2_000


class TreeState(msgspec.Struct, frozen=True):
    """All rows of a tree.

    `shown` contains the entries that stay visible inside runs of rows. `closed` contains the first
    entries of folded branches.
    """

    rows: tuple[Row, ...]
    shown: frozenset[EntryId] = frozenset()
    closed: frozenset[EntryId] = frozenset()


def tree_state(roots: Sequence[TreeNode], leaf: EntryId | None) -> TreeState:
    """Return the initial state: messages of people are visible, steps between them are folded."""
    rows = tuple(rows_of(roots, leaf))
    said = frozenset(row.entry.id for row in rows if who_of(row.entry)[0] == "user")
    return TreeState(rows, said)


def visible(state: TreeState) -> list[Line]:
    """Return the visible lines in drawing order."""
    return fold_runs(fold_branches(state.rows, state.closed), state.shown)


def unfolded(state: TreeState, at: Line) -> TreeState:
    """Return `state` after showing the closed branch or the hidden rows of the line `at`."""
    if isinstance(at, Row):
        return msgspec.structs.replace(state, closed=state.closed - {at.entry.id})
    if at.is_branch:
        first = next(n for n, row in enumerate(state.rows) if row.entry.id == at.hidden[0])
        opened = state.rows[first - 1].entry.id
        return msgspec.structs.replace(state, closed=state.closed - {opened})
    return msgspec.structs.replace(state, shown=state.shown | set(at.hidden))


def folded_at(state: TreeState, at: Line) -> TreeState:
    """Return `state` after closing the branch of the line `at`.

    If the line is not on a side branch, only the run of rows around the line is folded.
    """
    if not isinstance(at, Row):
        return state
    place = next(n for n, row in enumerate(state.rows) if row.entry.id == at.entry.id)
    depth = at.depth
    for n in range(place, -1, -1):
        row = state.rows[n]
        if depth and row.starts and row.depth <= depth:
            return msgspec.structs.replace(state, closed=state.closed | {row.entry.id})
    run = {row.entry.id for row in _run_around(state.rows, place)}
    return msgspec.structs.replace(state, shown=state.shown - run)


def _run_around(rows: Sequence[Row], place: int) -> Iterator[Row]:
    """Return the rows around `place` that `fold_runs` can fold together."""
    first = place
    while first > 0 and not rows[first - 1].is_kept:
        first -= 1
    for row in rows[first:]:
        if row.is_kept and row is not rows[place]:
            return
        yield row


def with_visible(state: TreeState, entry: EntryId) -> TreeState:
    """Return `state` with `entry` made visible."""
    place = next(n for n, row in enumerate(state.rows) if row.entry.id == entry)
    closed = {
        row.entry.id
        for n, row in enumerate(state.rows[: place + 1])
        if row.entry.id in state.closed and n < place < branch_end(state.rows, n)
    }
    return TreeState(state.rows, state.shown | {entry}, state.closed - closed)


def matches(state: TreeState, sought: str) -> list[EntryId]:
    """Return the entries whose beginning or label contains `sought`, in drawing order."""
    wanted = sought.casefold()
    return [
        row.entry.id
        for row in state.rows
        if wanted in preview_of(row.entry, _SEARCHED_CELLS).what.casefold()
        or wanted in (row.label or "").casefold()
    ]
