"""The tree of a session as flat rows, which a client indents and folds itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.apps.server.values import Tree, TreeRow, time_of
from perdure.apps.terminal.previews import preview_of
from perdure.client.session import Session
from perdure.session.codec import role_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId

_TEXT = 200
"""Characters of what an entry says."""


class TreeReader:
    """Reads the tree of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def tree(self, last: int) -> Tree:
        """Return the newest `last` entries of all branches."""
        session = self._session
        entries = await session.tree_entries(last + 1)
        labels, pins = await session.labels(), await session.pins()
        shown = entries[-last:]
        branch = _branch_of(shown, session.leaf)
        rows = [_row(entry, labels, pins, branch) for entry in shown]
        return Tree(leaf=session.leaf, items=rows, has_more=len(entries) > last)


def _branch_of(entries: Sequence[Entry], leaf: EntryId | None) -> frozenset[str]:
    """Return the ids of those of `entries` that are on the path to `leaf`."""
    parents: dict[str, EntryId | None] = {entry.id: entry.parent_id for entry in entries}
    found: set[str] = set()
    at = leaf
    while at is not None and at in parents:
        found.add(at)
        at = parents[at]
    return frozenset(found)


def _row(
    entry: Entry,
    labels: Mapping[EntryId, str],
    pins: frozenset[EntryId],
    branch: frozenset[str],
) -> TreeRow:
    return TreeRow(
        id=entry.id,
        seq=entry.seq,
        parent_id=entry.parent_id,
        kind=entry.kind,
        role=role_of(entry) or None,
        at=time_of(entry.at),
        text=preview_of(entry, _TEXT).what,
        label=labels.get(entry.id),
        is_pinned=entry.id in pins,
        is_on_branch=entry.id in branch,
    )
