"""Compute the final state of a bundle, and extract a branch from it.

The functions of this module are pure. Every export that is not a plain copy (for example a single
branch, or another leaf) is first built as a bundle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perdure.interop.formats.items import without_source
from perdure.interop.formats.native import Bundle, move_entry
from perdure.session.codec import ENTRY_NOTES, new_side, readable
from perdure.session.entries import Entry
from perdure.session.fold import labels_of, undone_of
from perdure.session.ids import EntryId, entry_id
from perdure.session.info import trim_title
from perdure.session.kinds import ModelChange
from perdure.session.notes import (
    AgentBound,
    LeafMoved,
    SessionInfoChanged,
    SessionStarted,
    WorkspaceChanged,
)
from perdure.session.tree import branch_to

_ABOUT_SESSION = (
    SessionInfoChanged.kind,
    SessionStarted.kind,
    AgentBound.kind,
    WorkspaceChanged.kind,
)


class FinalState(msgspec.Struct, frozen=True):
    """The state of a session after all of its entries.

    Shape: `labels` and `undone` refer to entries of the bundle. `system_prompt` is the last system
    prompt of the session's agent.
    """

    leaf: EntryId | None
    title: str | None
    cwd: str | None
    labels: Mapping[EntryId, str]
    undone: frozenset[EntryId]
    system_prompt: str | None


def leaf_of(entries: Iterable[Entry]) -> EntryId | None:
    """Return the leaf (the current end of the conversation); `entries` are the complete log."""
    leaf: EntryId | None = None
    for entry in entries:
        if entry.lane == "tree":
            leaf = entry.id
        elif entry.kind == LeafMoved.kind and isinstance(moved := readable(entry), LeafMoved):
            leaf = moved.target
    return leaf


def standing_of(bundle: Bundle) -> FinalState:
    """Return the final state of the session in `bundle`."""
    title, cwd, prompt = trim_title(bundle.header.title), bundle.header.cwd, None
    for entry in bundle.entries:
        if entry.kind not in _ABOUT_SESSION:
            continue
        match readable(entry):
            case SessionInfoChanged() as change:
                title = title if change.title is msgspec.UNSET else trim_title(change.title)
                cwd = cwd if change.cwd is msgspec.UNSET else change.cwd
            case SessionStarted(system_prompt=text) | AgentBound(system_prompt=text):
                prompt = text or prompt
            case WorkspaceChanged(system_prompt=str(text)):
                prompt = text
            case _:
                pass
    return FinalState(
        leaf=leaf_of(bundle.entries),
        title=title,
        cwd=cwd,
        labels=labels_of(bundle.entries),
        undone=undone_of(bundle.entries),
        system_prompt=prompt,
    )


def branch_of(bundle: Bundle, leaf: EntryId | None) -> list[Entry]:
    """Return the entries from the root to `leaf` in `bundle`."""
    by_id = {entry.id: entry for entry in bundle.entries if entry.lane == "tree"}
    return branch_to(leaf, by_id)


def moved_to(bundle: Bundle, leaf: EntryId | None) -> Bundle:
    """Return `bundle` with its leaf moved to `leaf`; an entry `leaf_moved` is added if needed."""
    if leaf_of(bundle.entries) == leaf:
        return bundle
    new = new_side(LeafMoved(leaf))
    seq = len(bundle.entries)
    at = bundle.entries[-1].at if bundle.entries else bundle.header.created_at
    entry = Entry(bundle.header.id, seq, "side", None, None, at, new.kind, new.v, new.body)
    return msgspec.structs.replace(bundle, entries=(*bundle.entries, entry))


def models_in_force(tree: Iterable[Entry]) -> dict[EntryId, str]:
    """Map each entry to the model last selected on its branch, if any."""
    found: dict[EntryId, str] = {}
    for entry in tree:
        change = readable(entry) if entry.kind == ModelChange.kind else None
        if isinstance(change, ModelChange):
            found[entry.id] = change.model
        elif entry.parent_id is not None and entry.parent_id in found:
            found[entry.id] = found[entry.parent_id]
    return found


def cut_to(bundle: Bundle, leaf: EntryId | None) -> Bundle:
    """Return only the branch to `leaf`, with its labels but without records of calls and turns.

    Shape: the entries are renumbered. The stored copies of imported files are removed.
    """
    tree = branch_of(bundle, leaf)
    kept = _in_log_order(bundle, {entry.id for entry in tree})
    ids = {entry.id: entry_id(bundle.header.id, seq) for seq, entry in enumerate(kept)}
    entries = tuple(
        move_entry(entry, bundle.header.id, seq, ids, without_source(entry.body))
        for seq, entry in enumerate(kept)
    )
    aliases = {alias: ids[entry] for alias, entry in bundle.aliases.items() if entry in ids}
    stored = {new: bundle.stored_ids.get(old, old) for old, new in ids.items()}
    cut = Bundle(bundle.header, entries, aliases, bundle.blobs, stored)
    return moved_to(cut, None if leaf is None else ids.get(leaf))


def _in_log_order(bundle: Bundle, tree: set[EntryId]) -> Sequence[Entry]:
    return [
        entry
        for entry in bundle.entries
        if entry.id in tree
        or entry.kind in _ABOUT_SESSION
        or (entry.kind in ENTRY_NOTES and entry.about in tree)
    ]
