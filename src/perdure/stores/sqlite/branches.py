"""Read the entries that a stream sees, and its branches.

A branch is stored as a chain of runs, which are sequences of consecutive entries (see
``migrations/0012_log.sql``). A run of consecutive entries is one range of the index on (stream,
seq). So the cost of reading the end of a branch depends on the number of entries and runs that are
read, not on the length of the branch. The first run of a fork continues in the log of its origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import apsw

from perdure.session.entries import Entry
from perdure.session.fold import (
    BranchState,
    ContextWindow,
    Placed,
    first_kept_by,
    is_active_compaction,
    undone_among,
)
from perdure.session.ids import EntryId
from perdure.session.notes import CompactionUndone
from perdure.stores.sqlite.rows import ENTRY_COLUMNS, Node, Tables

_PARENT_OF_RUN = """
SELECT p.n, p.stream, p.seq, p.run, p.depth, p.messages, p.state
FROM entry AS f JOIN entry AS p ON p.stream = f.stream AND p.seq = f.ref
WHERE f.stream = ? AND f.seq = ?
"""

_REF_OF_RUN = "SELECT ref FROM entry WHERE stream = ? AND seq = ?"

_RUN = f"""
SELECT {ENTRY_COLUMNS} FROM entry
WHERE stream = ? AND seq BETWEEN ? AND ? AND run IS NOT NULL
ORDER BY seq DESC LIMIT ?
"""  # noqa: S608 - put together from constants

_RUN_OF_KIND = _RUN.replace("run IS NOT NULL", "run IS NOT NULL AND kind = ?")

_RUN_AFTER = f"""
SELECT {ENTRY_COLUMNS} FROM entry
WHERE stream = ? AND seq > ? AND seq <= ? AND run IS NOT NULL
ORDER BY seq LIMIT ?
"""  # noqa: S608 - put together from constants

_TREE = f"""
SELECT {ENTRY_COLUMNS} FROM entry WHERE stream = ? AND seq <= ? AND run IS NOT NULL
ORDER BY seq DESC LIMIT ?
"""  # noqa: S608 - put together from constants

# `kind > 31` lets SQLite use the index entry_note, which holds no other kinds.
_NOTES = f"""
SELECT {ENTRY_COLUMNS} FROM entry
WHERE stream = ? AND kind = ? AND kind > 31 AND seq <= ? AND run IS NULL AND salt IS NOT NULL
ORDER BY seq
"""  # noqa: S608 - put together from constants

_FREQUENT_NOTES = _NOTES.replace(" AND kind > 31", "")

STATE = "SELECT compaction, model, thinking, before FROM state WHERE no = ?"

_FORK = "SELECT origin, origin_head, origin_leaf, is_path FROM birth WHERE stream = ?"

_LAST_FREQUENT_KIND = 31


class Fork(NamedTuple):
    """The fork point of a stream: the origin's number, the last shared seq, the leaf's position."""

    origin: int
    head: int
    leaf: int | None
    is_path: bool


# ---------------------------------------------------------------- runs


def runs(tables: Tables, leaf: Node) -> Iterator[Node]:
    """Yield the last entry of each run on the branch to `leaf`, the last run first.

    A run is a sequence of consecutive tree entries of one stream.
    """
    last: Node | None = leaf
    while last is not None:
        yield last
        above = _before_run(tables, last)
        if not 0 <= last.run <= last.seq:
            raise apsw.CorruptError(f"the run of the entry at position {last.n} is none")
        if above is not None and above.depth >= last.depth:
            raise apsw.CorruptError(f"the branch above position {last.n} runs in a circle")
        last = above


def _before_run(tables: Tables, last: Node) -> Node | None:
    row = tables.row(_PARENT_OF_RUN, last.stream, last.run)
    if row is not None:
        return Node(*row)
    reference = tables.value(_REF_OF_RUN, last.stream, last.run)
    if reference is None:
        return None
    place = tables.place(last.stream, str(reference))
    above = None if place is None else tables.node_of(*place)
    if above is None:
        raise apsw.CorruptError(f"the parent of the entry at position {last.n} is gone")
    return above


def is_on_branch(tables: Tables, sought: Node, leaf: Node) -> bool:
    """Whether `sought` is `leaf` or comes before `leaf` on its branch."""
    for last in runs(tables, leaf):
        if (last.stream, last.run) == (sought.stream, sought.run):
            return sought.seq <= last.seq
        if last.depth <= sought.depth:
            return False
    return False


def branch(
    tables: Tables, leaf: Node, limit: int | None = None, kind: str | None = None
) -> list[Entry]:
    """Return the entries from the root to `leaf`: all, or only the newest `limit` of one `kind`."""
    number = None if kind is None else tables.kind_number(kind)
    if kind is not None and number is None:
        return []
    found: list[Entry] = []
    for last in runs(tables, leaf):
        left = -1 if limit is None else limit - len(found)
        stream = tables.stream_id(last.stream)
        if number is None:
            rows = tables.rows(_RUN, last.stream, last.run, last.seq, left)
        else:
            rows = tables.rows(_RUN_OF_KIND, last.stream, last.run, last.seq, number, left)
        found += [tables.entry(stream, row) for row in rows]
        if limit is not None and len(found) >= limit:
            break  # before the previous run is looked up
    found.reverse()
    return found


def around(tables: Tables, leaf: Node, nodes: Iterable[Node], reach: int) -> list[Placed]:
    """Return the `nodes` on the branch to `leaf`, each with up to `reach` entries on either side.

    The neighbors of a node come only from its run, a sequence of consecutive tree entries.
    """
    by_run: dict[tuple[int, int], list[Node]] = {}
    for node in sorted(set(nodes), key=lambda each: each.seq):
        by_run.setdefault((node.stream, node.run), []).append(node)
    floor = min((each[0].depth for each in by_run.values()), default=leaf.depth + 1)
    found: list[Placed] = []
    for last in runs(tables, leaf):
        if last.depth < floor:
            break
        near = [n for n in by_run.get((last.stream, last.run), ()) if n.seq <= last.seq]
        found += _around_in_run(tables, last, near, reach)
    return sorted(found, key=lambda each: each.depth)


def _around_in_run(tables: Tables, last: Node, nodes: list[Node], reach: int) -> Iterator[Placed]:
    stream = tables.stream_id(last.stream)
    seq, depth = last.run - 1, -1
    for node in nodes:
        if node.seq > seq:
            before = list(tables.rows(_RUN, last.stream, seq + 1, node.seq, reach + 1))
            for place, row in enumerate(reversed(before), node.depth + 1 - len(before)):
                yield Placed(place, tables.entry(stream, row))
            seq, depth = node.seq, node.depth
        more = node.depth + reach - depth
        for row in tables.rows(_RUN_AFTER, last.stream, seq, last.seq, more) if more > 0 else ():
            seq, depth = row[0], depth + 1
            yield Placed(depth, tables.entry(stream, row))


# ---------------------------------------------------------------- visible entries


def fork_of(tables: Tables, stream: int) -> Fork | None:
    """Return the fork point of a stream; None if it is not a fork."""
    row = tables.row(_FORK, stream)
    if row is None or row[0] is None:
        return None
    return Fork(row[0], row[1], row[2], bool(row[3]))


def lineage(tables: Tables, stream: int, head: int) -> Iterator[tuple[int, int, Fork | None]]:
    """Yield the stream with its head, then each origin with the last seq that the origin shares."""
    upto = head
    while True:
        fork = fork_of(tables, stream)
        yield stream, upto, fork
        if fork is None:
            return
        if fork.origin >= stream:  # numbers of sessions only grow
            raise apsw.CorruptError(f"session number {stream} is forked from itself or a later one")
        stream, upto = fork.origin, fork.head


def is_seen(tables: Tables, stream: int, head: int, place: tuple[int, int]) -> bool:
    """Whether the stream up to seq `head` sees the entry at `place` (stream number and seq)."""
    return _is_seen_by(tables, lineage(tables, stream, head), place)


def _is_seen_by(
    tables: Tables, kin: Iterable[tuple[int, int, Fork | None]], place: tuple[int, int]
) -> bool:
    sought, seq = place
    for near, upto, fork in kin:
        if sought == near:
            return seq <= upto
        if fork is not None and fork.is_path:
            node = tables.node_of(sought, seq)
            if node is None:
                continue
            return fork.leaf is not None and is_on_branch(tables, node, tables.node_at(fork.leaf))
    return False


def visible_ids(
    tables: Tables, stream: int, head: int, references: Iterable[EntryId]
) -> frozenset[EntryId]:
    """Return the `references` that the stream sees."""
    kin = list(lineage(tables, stream, head))
    places = ((reference, tables.place(stream, reference)) for reference in references)
    return frozenset(name for name, place in places if place and _is_seen_by(tables, kin, place))


def entry_seen(tables: Tables, stream: int, head: int, reference: str) -> Entry | None:
    """Return the tree or side entry with the id `reference`, if the stream sees it."""
    place = tables.place(stream, reference)
    if place is None or not is_seen(tables, stream, head, place):
        return None
    return tables.entry_of(*place)


def node_seen(tables: Tables, stream: int, head: int, reference: str) -> Node | None:
    """Return the node of the tree entry with the id `reference`, if the stream sees it."""
    place = tables.place(stream, reference)
    if place is None or not is_seen(tables, stream, head, place):
        return None
    return tables.node_of(*place)


def tree(tables: Tables, stream: int, head: int, limit: int | None = None) -> list[Entry]:
    """Return the newest `limit` tree entries that `stream` sees, in log order.

    If the stream is a fork, the entries of its origins come first.
    """
    newest: list[Entry] = []
    for near, upto, fork in lineage(tables, stream, head):
        name = tables.stream_id(near)
        left = -1 if limit is None else limit - len(newest)
        newest += [tables.entry(name, row) for row in tables.rows(_TREE, near, upto, left)]
        if limit is not None and len(newest) >= limit:
            break
        if fork is not None and fork.is_path:
            if fork.leaf is not None:
                left = None if limit is None else limit - len(newest)
                newest += reversed(branch(tables, tables.node_at(fork.leaf), left))
            break
    newest.reverse()
    return newest


def notes(tables: Tables, stream: int, head: int, kinds: Sequence[str]) -> list[Entry]:
    """Return the side entries of `kinds` that `stream` sees, in log order.

    If the stream is a fork, the entries of its origins come first.
    """
    numbers = [number for kind in dict.fromkeys(kinds) if (number := tables.kind_number(kind))]
    if not numbers:
        return []
    parts: list[list[Entry]] = []
    for near, upto, _ in lineage(tables, stream, head):
        rows = [
            row for number in numbers for row in tables.rows(_notes_of(number), near, number, upto)
        ]
        if not rows:
            continue
        name = tables.stream_id(near)
        found = [tables.entry(name, row) for row in rows]
        if len(numbers) > 1:
            found.sort(key=lambda entry: entry.seq)
        parts.append(found)
    return [entry for part in reversed(parts) for entry in part]


def _notes_of(kind: int) -> str:
    return _NOTES if kind > _LAST_FREQUENT_KIND else _FREQUENT_NOTES


def with_note_index(sql: str, kind: int) -> str:
    """Return `sql`, extended so that it uses the index of side entries if that is possible.

    `sql` ends in a condition on ``entry AS e``. SQLite uses a partial index only if the query's
    condition implies the index's condition.
    """
    return f"{sql} AND e.kind > {_LAST_FREQUENT_KIND}" if kind > _LAST_FREQUENT_KIND else sql


# ---------------------------------------------------------------- context


def window(tables: Tables, stream: int, head: int, leaf: Node, limit: int | None) -> ContextWindow:
    """Return the context window (``fold.window_of``) of `leaf`, without reading hidden entries.

    If `limit` is given, return only the newest `limit` entries of the window (``fold.end_of``).
    """
    undone = frozenset(
        note.about
        for note in notes(tables, stream, head, (CompactionUndone.kind,))
        if note.about is not None
    )
    (compaction, model, thinking), taken_back = _branch_state(tables, leaf, undone)
    start = 0 if compaction is None else _depth_of_first_kept(tables, compaction)
    size = leaf.depth + 1 - start
    shown = branch(tables, leaf, limit=size if limit is None else min(size, limit))
    if not shown:
        raise apsw.CorruptError(f"the depth of the entry at position {leaf.n} is none")
    return ContextWindow(
        leaf=shown[-1].id,
        entries=tuple(shown),
        state=BranchState(
            compaction=None if compaction is None else tables.entry_at(compaction),
            model_change=None if model is None else tables.entry_at(model),
            thinking_change=None if thinking is None else tables.entry_at(thinking),
        ),
        hidden=start,
        undone=undone_among(shown, undone) | taken_back,
        earlier=size - len(shown),
    )


def _branch_state(
    tables: Tables, leaf: Node, undone: frozenset[EntryId]
) -> tuple[tuple[int | None, int | None, int | None], frozenset[EntryId]]:
    """Return the positions of the active compaction, the model change and the thinking change.

    The second result contains the later compactions, which hide no entries because they are not
    active.
    """
    if leaf.state is None:
        return (None, None, None), frozenset()
    passed: list[EntryId] = []
    compaction, model, thinking, before = _state(tables, leaf.state)
    while compaction is not None:
        newest = tables.entry_at(compaction)
        if is_active_compaction(newest, undone):
            break
        passed.append(newest.id)
        if before is None:
            return (None, model, thinking), frozenset(passed)
        known, (compaction, _, _, before) = before, _state(tables, before)
        if before is not None and before >= known:  # each state is derived from an earlier one
            raise apsw.CorruptError(f"the inherited state {known} is made of itself")
    return (compaction, model, thinking), frozenset(passed)


def _state(tables: Tables, number: int) -> tuple[int | None, int | None, int | None, int | None]:
    row = tables.row(STATE, number)
    if row is None:
        raise apsw.CorruptError(f"the inherited state {number} is gone")
    return row[0], row[1], row[2], row[3]


def _depth_of_first_kept(tables: Tables, compaction: int) -> int:
    node = tables.node_at(compaction)
    kept = first_kept_by(tables.entry_at(compaction))
    place = None if kept is None else tables.place(node.stream, kept)
    sought = None if place is None else tables.node_of(*place)
    if sought is not None and is_on_branch(tables, sought, node):
        return sought.depth
    return node.depth
