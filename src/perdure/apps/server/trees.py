"""The tree of a session as flat rows; the client indents and folds them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from perdure.apps.server.values import CompactionView, Tree, TreeRow, time_of
from perdure.apps.server.views import view_of
from perdure.apps.terminal.previews import preview_of
from perdure.client.session import Session
from perdure.session.codec import readable, role_of
from perdure.session.entries import Entry
from perdure.session.fold import undone_of
from perdure.session.ids import EntryId
from perdure.session.kinds import MESSAGE, Compaction
from perdure.session.notes import CompactionUndone
from perdure.session.tree import branch_to

_TEXT = 200
"""Maximum number of characters of an entry's text."""

_AT_ONCE = 200
"""Number of rows after which other tasks of the event loop can run."""

_FIRST = 256
"""Number of entries that `tree_since` reads first; it reads more if they do not suffice."""


async def read_tree(session: Session, last: int) -> Tree:
    """Return the newest `last` entries of all branches."""
    entries = await session.tree_entries(last + 1)
    labels, pins = await session.labels(), await session.pins()
    shown = entries[-last:]
    branch = _branch_of(shown, session.leaf)
    rows: list[TreeRow] = []
    for n, entry in enumerate(shown):
        rows.append(_row(entry, labels, pins, branch))
        if n % _AT_ONCE == 0:
            await asyncio.sleep(0)  # others are served meanwhile
    return Tree(leaf=session.leaf, items=rows, has_more=len(entries) > last)


async def tree_since(session: Session, shown: Sequence[Entry]) -> list[Entry]:
    """Return the newest entries of all branches, back to the parents of the `shown` messages.

    The result includes all siblings of the `shown` messages, because siblings are newer than their
    common parent. For the newest messages of a long session, this function reads only few entries.
    """
    parents = {entry.parent_id for entry in shown}
    last = _FIRST
    while None not in parents:
        found = (await session.tree_entries(last))[-last:]  # without older ones of the branch
        if len(found) < last or parents <= {entry.id for entry in found}:
            return found
        last *= 4
    return await session.tree_entries()


async def compactions_after(
    session: Session, tree: Sequence[Entry], shown: Sequence[Entry]
) -> list[CompactionView]:
    """Return the compactions of the active branch that follow one of the `shown` messages.

    `tree` contains the entries that `tree_since` returned.
    """
    if not any(entry.kind == Compaction.kind for entry in tree):
        return []
    by_id = {entry.id: entry for entry in tree}
    messages = {entry.id for entry in shown}
    branch = _branch_of(tree, session.leaf)
    notes = [entry async for entry in session.entries(kind=CompactionUndone.kind)]
    undone = undone_of(notes)
    found: list[CompactionView] = []
    for entry in tree:
        body = readable(entry)
        if entry.id not in branch or not isinstance(body, Compaction):
            continue
        after = by_id.get(entry.parent_id) if entry.parent_id else None
        while after is not None and after.kind != MESSAGE:
            after = by_id.get(after.parent_id) if after.parent_id else None
        if after is not None and after.id in messages:
            found.append(_compaction(entry, body, after.id, is_undone=entry.id in undone))
    return found


def _compaction(
    entry: Entry, body: Compaction, after: EntryId, *, is_undone: bool
) -> CompactionView:
    return view_of(
        CompactionView,
        body,
        id=entry.id,
        after=after,
        at=time_of(entry.at),
        summary=body.own_summary or body.summary,
        is_undone=is_undone,
    )


def _branch_of(entries: Sequence[Entry], leaf: EntryId | None) -> frozenset[str]:
    """Return the ids of the `entries` that are on the path to `leaf`."""
    by_id = {entry.id: entry for entry in entries}
    return frozenset(entry.id for entry in branch_to(leaf, by_id))


def _row(
    entry: Entry,
    labels: Mapping[EntryId, str],
    pins: frozenset[EntryId],
    branch: frozenset[str],
) -> TreeRow:
    return view_of(
        TreeRow,
        entry,
        role=role_of(entry) or None,
        at=time_of(entry.at),
        text=preview_of(entry, _TEXT).what,
        label=labels.get(entry.id),
        is_pinned=entry.id in pins,
        is_on_branch=entry.id in branch,
    )
