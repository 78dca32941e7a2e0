"""Functions that read one session: its log, tree, branches, windows, notes, foreign ids.

The index locates all entries; only returned entries are read from the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from perdure.errors import EntryNotFound, SessionNotFound
from perdure.session.entries import Entry
from perdure.session.fold import (
    BranchState,
    ContextWindow,
    Placed,
    first_kept_by,
    is_active_compaction,
    undone_among,
)
from perdure.session.ids import EntryId, entry_id, place_of, seqs_between
from perdure.session.notes import CompactionUndone
from perdure.stores.jsonl.contents import entries_of
from perdure.stores.jsonl.index import Log, Tail
from perdure.stores.prefixes import only_entry


def entries(
    log: Log, after: int, limit: int | None, *, kind: str | None, before: int | None
) -> list[Entry]:
    """Return the entries after seq `after`, oldest first.

    With `before`, return only entries before seq `before`, newest first.
    """
    seqs = seqs_between(len(log.rows), after, before)
    fitting = (seq for seq in seqs if kind in (None, log.rows[seq].kind))
    return entries_of(log, list(islice(fitting, limit)))


def seq_of(log: Log, reference: str) -> int | None:
    """Return the seq of the entry with the id `reference`; None if the session lacks it."""
    stream, seq = place_of(reference) or (None, 0)
    return seq if stream == log.header.id and seq <= log.head else None


def tree_seq(log: Log, reference: str) -> int | None:
    """Return the seq of the tree entry with the id `reference`; None if the session lacks it."""
    seq = seq_of(log, reference)
    return None if seq is None or log.rows[seq].lane != "tree" else seq


def entry(log: Log, reference: EntryId) -> Entry:
    """Return the entry with the id `reference`.

    Raises: EntryNotFound.
    """
    seq = seq_of(log, reference)
    if seq is None:
        raise EntryNotFound(reference, log.header.id)
    return entries_of(log, (seq,))[0]


def branch(
    log: Log, leaf: EntryId | None, *, limit: int | None = None, kind: str | None = None
) -> list[Entry]:
    """Return the tree entries from the root to `leaf`, or only those of `kind`, oldest first.

    With `limit`, return only the newest `limit` entries of the result.

    Raises: EntryNotFound.
    """
    found: list[int] = []
    for seq in upwards(log, _leaf(log, leaf)):
        if limit is not None and len(found) >= limit:
            break
        if kind is None or log.rows[seq].kind == kind:
            found.append(seq)
    return entries_of(log, reversed(found))


def recent(tail: Tail, leaf: EntryId, limit: int, kind: str | None = None) -> list[Entry] | None:
    """Return the newest `limit` entries of the branch to `leaf`; None if `tail` has too few."""
    found: list[int] = []
    seq = tree_seq(tail, leaf)
    while seq is not None and seq >= tail.base and len(found) < limit:
        if kind is None or tail.rows[seq].kind == kind:
            found.append(seq)
        seq = tail.rows[seq].parent
    return entries_of(tail, reversed(found)) if len(found) == limit else None


def upwards(log: Log, leaf: int | None) -> Iterator[int]:
    """Yield the seqs of the tree entries from `leaf` back to its root."""
    while leaf is not None:
        yield leaf
        leaf = log.rows[leaf].parent


def _leaf(log: Log, leaf: EntryId | None) -> int | None:
    if leaf is None:
        return None
    seq = tree_seq(log, leaf)
    if seq is None:
        raise EntryNotFound(leaf, log.header.id)
    return seq


def visible_ids(log: Log, references: Sequence[EntryId]) -> frozenset[EntryId]:
    """Return the `references` that are in the session."""
    return frozenset(each for each in references if seq_of(log, each) is not None)


def around(log: Log, leaf: EntryId, references: Sequence[EntryId], reach: int) -> list[Placed]:
    """Return the `references` on the branch to `leaf`, each with up to `reach` neighbors per side.

    The call walks the index of the branch, and reads only the returned bodies.
    """
    sought = {seq for each in references if (seq := tree_seq(log, each)) is not None}
    path = list(upwards(log, _leaf(log, leaf)))
    on = [place for place, seq in enumerate(path) if seq in sought]
    near = sorted({n for each in on for n in range(each - reach, each + reach + 1)}, reverse=True)
    seqs = [path[place] for place in near if 0 <= place < len(path)]
    depths = (log.rows[seq].depth for seq in seqs)
    return [Placed(*each) for each in zip(depths, entries_of(log, seqs), strict=True)]


def tree(log: Log, limit: int | None = None) -> list[Entry]:
    """Return the newest `limit` tree entries."""
    seqs = range(len(log.rows) - 1, -1, -1)
    newest = list(islice((seq for seq in seqs if log.rows[seq].lane == "tree"), limit))
    return entries_of(log, reversed(newest))


def notes(log: Log, kinds: Sequence[str]) -> list[Entry]:
    """Return the side entries with these `kinds`."""
    wanted = frozenset(kinds)
    rows = enumerate(log.rows)
    return entries_of(log, [n for n, row in rows if row.lane == "side" and row.kind in wanted])


def window(log: Log, leaf: EntryId | None, limit: int | None = None) -> ContextWindow:
    """Return the context window (``fold.window_of``) of `leaf`; with `limit`, only its end.

    Raises: EntryNotFound.
    """
    at = _leaf(log, leaf)
    if at is None:
        return ContextWindow(None, (), BranchState(), 0)
    undone = _undone(log)
    compaction, taken_back = _active_compaction(log, at, undone)
    start = 0 if compaction is None else _start(log, compaction)
    size = log.rows[at].depth + 1 - start
    shown = list(islice(upwards(log, at), size if limit is None else min(size, limit)))
    entries = tuple(entries_of(log, reversed(shown)))
    row = log.rows[at]
    return ContextWindow(
        leaf=leaf,
        entries=entries,
        state=BranchState(compaction, _one(log, row.model), _one(log, row.thinking)),
        hidden=start,
        undone=undone_among(entries, undone) | taken_back,
        earlier=size - len(entries),
    )


def _one(log: Log, seq: int | None) -> Entry | None:
    return None if seq is None else entries_of(log, (seq,))[0]


def _undone(log: Log) -> frozenset[EntryId]:
    return frozenset(
        row.about for row in log.rows if row.kind == CompactionUndone.kind and row.about is not None
    )


def _active_compaction(
    log: Log, leaf: int, undone: frozenset[EntryId]
) -> tuple[Entry | None, frozenset[EntryId]]:
    """Return the active compaction, and the newer compactions, which are not active."""
    newest = log.rows[leaf].compaction
    passed: list[Entry] = []
    while newest is not None:
        entry = entries_of(log, (newest,))[0]
        if is_active_compaction(entry, undone):
            return entry, undone_among(passed, undone)
        passed.append(entry)
        parent = log.rows[newest].parent
        newest = None if parent is None else log.rows[parent].compaction
    return None, undone_among(passed, undone)


def _start(log: Log, compaction: Entry) -> int:
    """Return the depth of the first entry that `compaction` keeps.

    If `compaction` keeps no entry of its branch, return the depth of the compaction.
    """
    kept, row = first_kept_by(compaction), log.rows[compaction.seq]
    seq = None if kept is None else tree_seq(log, kept)
    if seq is not None and seq in upwards(log, row.parent):
        return log.rows[seq].depth
    return row.depth


def resolve(log: Log, reference: str) -> EntryId:
    """Implement ``LogReader.resolve``.

    Raises: EntryNotFound.
    """
    stream = log.header.id
    seq = seq_of(log, reference)
    if seq is not None:
        return entry_id(stream, seq)
    known = dict(log.aliases)
    if reference not in known:
        raise EntryNotFound(reference, stream)
    return known[reference]


def find_entry(log: Log, prefix: str) -> EntryId:
    """Implement ``LogReader.find_entry``.

    Raises: EntryNotFound, AmbiguousId.
    """
    stream = log.header.id
    for reference in (prefix, f"{stream}/{prefix}"):
        seq = seq_of(log, reference)
        if seq is not None:
            return entry_id(stream, seq)
    known = dict(log.aliases)
    if prefix in known:  # a record of another program can have an empty id
        return known[prefix]
    near = {name: id_ for name, id_ in known.items() if prefix and name.startswith(prefix)}
    return only_entry(prefix, near, stream)


def entries_named(logs: Iterable[Log], alias: str) -> list[EntryId]:
    """Implement ``NamespaceReader.entries_named``."""
    named = (dict(log.aliases).get(alias) for log in logs)
    return [entry for entry in named if entry is not None]


def notes_of_all(logs: Iterable[Log], kinds: Sequence[str]) -> list[Entry]:
    """Implement ``NamespaceReader.notes_of_all``."""
    found: list[Entry] = []
    for log in logs:
        with suppress(SessionNotFound):  # erased meanwhile
            found += notes(log, kinds)
    return found
