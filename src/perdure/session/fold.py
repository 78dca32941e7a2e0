"""Fold entries into state: labels, current settings, compaction, context window.

`window_of` defines which context window is correct. Stores find the same window without reading the
whole branch; tests compare each window of a store with the result of `window_of`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction, ModelChange, ThinkingChange
from perdure.session.notes import CompactionUndone, Label


class BranchState(msgspec.Struct, frozen=True):
    """The newest compaction, model change and thinking change on the branch that ends at an entry.

    `compaction` is the newest compaction that was not undone. Each field is None if the branch has
    no entry of the field's kind.
    """

    compaction: Entry | None = None
    model_change: Entry | None = None
    thinking_change: Entry | None = None


class Placed(NamedTuple):
    """An entry of a branch, and how many entries of the branch come before it."""

    depth: int
    entry: Entry


class ContextWindow(msgspec.Struct, frozen=True):
    """The end of a branch, from which a context is built.

    Shape: `entries` are in the order from root to leaf. The `entries` begin with the first entry
    that the newest compaction keeps, or with the root if there is no compaction. `entries` include
    compactions, at their positions on the branch. `hidden` counts the tree entries of the branch
    before `entries`. `leaf` is the last entry of the branch. `undone` are the undone or erased
    compactions among `entries`. `pins` are the entries of the branch that always stay in the
    context. `pinned` are the pins that are not in `entries`. Stores do not fill `pins` and
    `pinned`; the caller fills them. A window read with a limit contains only the newest `entries`.
    With a limit, `earlier` counts the entries that the limit leaves out; `hidden` does not count
    them. With a limit, `undone` also contains undone or erased compactions that the limit leaves
    out, if they come after the newest compaction that is neither undone nor erased.
    """

    leaf: EntryId | None
    entries: tuple[Entry, ...]
    state: BranchState
    hidden: int
    undone: frozenset[EntryId] = frozenset()
    pinned: tuple[Entry, ...] = ()
    pins: frozenset[EntryId] = frozenset()
    earlier: int = 0


def window_of(path: Sequence[Entry], undone: frozenset[EntryId] = frozenset()) -> ContextWindow:
    """Return the context window of the branch `path` (its tree entries from root to leaf).

    An erased compaction hides nothing. If the first kept entry of a compaction is not on the branch
    before the compaction, the window begins with the compaction.
    """
    state = BranchState()
    for entry in path:
        state = state_after(state, entry, undone)
    start = _first_of_window(path, state.compaction)
    shown = tuple(path[start:])
    return ContextWindow(
        leaf=path[-1].id if path else None,
        entries=shown,
        state=state,
        hidden=start,
        undone=undone_among(shown, undone),
    )


def undone_among(shown: Iterable[Entry], undone: frozenset[EntryId]) -> frozenset[EntryId]:
    """Return the compactions in `shown` that hide nothing, because they are undone or erased."""
    return frozenset(
        entry.id
        for entry in shown
        if entry.kind == Compaction.kind and not is_active_compaction(entry, undone)
    )


def is_active_compaction(entry: Entry, undone: frozenset[EntryId]) -> bool:
    """Return whether `entry` is a compaction that hides entries: neither undone nor erased."""
    return entry.kind == Compaction.kind and entry.id not in undone and not entry.is_erased


def state_after(
    state: BranchState, entry: Entry, undone: frozenset[EntryId] = frozenset()
) -> BranchState:
    """Return the state of a branch after `entry` is added to it."""
    if is_active_compaction(entry, undone):
        return msgspec.structs.replace(state, compaction=entry)
    if entry.kind == ModelChange.kind:
        return msgspec.structs.replace(state, model_change=entry)
    if entry.kind == ThinkingChange.kind:
        return msgspec.structs.replace(state, thinking_change=entry)
    return state


def end_of(window: ContextWindow, limit: int) -> ContextWindow:
    """Return the window that a store reads with this `limit`: the newest entries of `window`."""
    if limit >= len(window.entries):
        return window
    earlier = len(window.entries) - limit
    at = position_of(window.state.compaction, window.entries)
    before_it = {entry.id for entry in window.entries[: min(earlier, at + 1)]}
    return msgspec.structs.replace(
        window,
        entries=window.entries[earlier:],
        undone=window.undone - before_it,
        earlier=window.earlier + earlier,
    )


def position_of(wanted: Entry | None, entries: Sequence[Entry]) -> int:
    """Return the position of the entry `wanted` in `entries`; -1 if it is not one of them."""
    if wanted is None:
        return -1
    return next((n for n, entry in enumerate(entries) if entry.id == wanted.id), -1)


def first_kept_by(compaction: Entry) -> EntryId | None:
    """Return the first entry that `compaction` keeps; None if it keeps nothing or is unreadable."""
    body = readable(compaction)
    return body.first_kept if isinstance(body, Compaction) else None


def _first_of_window(path: Sequence[Entry], compaction: Entry | None) -> int:
    if compaction is None:
        return 0
    first_kept = first_kept_by(compaction)
    at_compaction = next(i for i, entry in enumerate(path) if entry.id == compaction.id)
    for position in range(at_compaction):
        if path[position].id == first_kept:
            return position
    return at_compaction


def labels_of(entries: Iterable[Entry]) -> dict[EntryId, str]:
    """Return a map from each labelled entry to its newest readable label.

    `entries` are in log order.
    """
    return {entry: text for entry, (_, text) in label_notes_of(entries).items()}


def label_notes_of(entries: Iterable[Entry]) -> dict[EntryId, tuple[EntryId, str]]:
    """Map each labelled entry to its newest label and to the id of the entry that set the label."""
    labels: dict[EntryId, tuple[EntryId, str]] = {}
    for entry in entries:
        if entry.kind != Label.kind or entry.about is None:
            continue
        body = readable(entry)
        if isinstance(body, Label) and body.text:
            labels[entry.about] = entry.id, body.text
        elif isinstance(body, Label):
            labels.pop(entry.about, None)
    return labels


def undone_of(entries: Iterable[Entry]) -> frozenset[EntryId]:
    """Return the compactions that the entries in `entries` undo."""
    return frozenset(
        entry.about
        for entry in entries
        if entry.kind == CompactionUndone.kind and entry.about is not None
    )
