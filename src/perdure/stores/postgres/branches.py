"""Read the branches of a stream, and the entries that it sees, by SQL functions of the schema.

A branch is stored as a chain of runs, which are sequences of consecutive entries (see
``migrations/0013_log.sql``). A run of consecutive entries is one range of the primary key. So
reading the end of a branch takes one round trip, with two look-ups for each run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import LiteralString

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
from perdure.session.ids import MOST_SEQ, EntryId, StreamId, entry_id
from perdure.session.notes import CompactionUndone
from perdure.stores.postgres.database import Database, Statement, Transaction
from perdure.stores.postgres.rows import (
    ENTRY_COLUMNS,
    NODE_COLUMNS,
    Node,
    Row,
    State,
    entry_of,
    is_text,
    node_of,
    place_of,
)
from perdure.stores.protocol import FLOW_KINDS

_FREQUENT = frozenset({"model_called", "model_finished", "tool_started", "tool_finished"})
"""Kinds that the index entry_note omits."""

_IS_RARE: LiteralString = """
    AND e.kind NOT IN ('model_called', 'model_finished', 'tool_started', 'tool_finished')"""

_HEAD: LiteralString = "SELECT head FROM perdure.stream WHERE namespace = %s AND id = %s"

# The nodes at the given places that the stream sees. It sees all of its own, since none is beyond
# its head, and its leaf. OFFSET 0: otherwise the planner may ask for each entry whether it is seen.
_NODES_SEEN: LiteralString = f"""
SELECT {NODE_COLUMNS}
FROM unnest(%s::text[], %s::bigint[]) AS p (stream, seq)
CROSS JOIN LATERAL (
    SELECT * FROM perdure.entry AS e
    WHERE e.namespace = %s AND e.stream = p.stream AND e.seq = p.seq AND e.run IS NOT NULL
    OFFSET 0
) AS e
WHERE e.stream = %s
    OR e.stream || '/' || e.seq = (
        SELECT s.leaf FROM perdure.stream AS s WHERE s.namespace = %s AND s.id = %s
    )
    OR perdure.sees(%s, %s, %s, e.stream, e.seq)
"""  # noqa: S608 - put together from constants

_ENTRY_SEEN: LiteralString = f"""
SELECT {ENTRY_COLUMNS} FROM perdure.entry AS e
WHERE e.namespace = %s AND e.stream = %s AND e.seq = %s
    AND (e.stream = %s OR perdure.sees(%s, %s, 9223372036854775807, e.stream, e.seq))
"""  # noqa: S608 - put together from constants

_STATE_OF: LiteralString = """
SELECT compaction, model, thinking, before FROM perdure.state
WHERE namespace = %s AND stream = %s AND seq = %s
"""

_BRANCH: LiteralString = "SELECT * FROM perdure.branch(%s, %s, %s, %s, %s, %s::bigint)"

# Does not check visibility; `ask_nodes` in the same round trip does.
_BRANCH_TO: LiteralString = """
SELECT b.* FROM perdure.entry AS e CROSS JOIN LATERAL perdure.branch(
    %s, e.stream, e.seq, greatest(e.depth + 1 - %s::bigint, 0), %s, %s::bigint
) AS b
WHERE e.namespace = %s AND e.stream = %s AND e.seq = %s AND e.run IS NOT NULL
"""

# From the first entry that a compaction keeps, if that is on its branch, else from itself.
_WINDOW: LiteralString = """
SELECT b.*, f.floor FROM (
    SELECT coalesce((
        SELECT k.depth FROM perdure.entry AS k
        WHERE k.namespace = %s AND k.stream = %s AND k.seq = %s AND k.run IS NOT NULL
            AND k.depth < c.depth AND perdure.is_on_branch(%s, k.stream, k.seq, c.stream, c.seq)
    ), c.depth) AS floor
    FROM perdure.entry AS c WHERE c.namespace = %s AND c.stream = %s AND c.seq = %s
) AS f CROSS JOIN LATERAL perdure.branch(%s, %s, %s, greatest(f.floor, %s), NULL, NULL) AS b
"""

# An entry and the location of its branch state, as columns, since row-level security keeps a
# function like `split_part` from being a condition of an index. OFFSET 0 keeps them columns.
_WITH_STATE: LiteralString = """(
    SELECT l.namespace, l.stream, l.seq, l.depth,
        coalesce(split_part(l.state_far, '/', 1), l.stream) AS state_of,
        coalesce(split_part(l.state_far, '/', 2)::bigint, l.state) AS state_seq
    FROM perdure.entry AS l
    WHERE l.namespace = %s AND l.stream = %s AND l.seq = %s AND l.run IS NOT NULL OFFSET 0
) AS l"""

# The entries inherited by the branch to an entry.
_INHERITED: LiteralString = f"""
SELECT {ENTRY_COLUMNS}, w.which
FROM {_WITH_STATE}
JOIN perdure.state AS s
    ON s.namespace = l.namespace AND s.stream = l.state_of AND s.seq = l.state_seq
CROSS JOIN LATERAL (
    SELECT which, split_part(id, '/', 1) AS of, split_part(id, '/', 2)::bigint AS seq
    FROM (VALUES
        ('compaction', s.compaction), ('model', s.model), ('thinking', s.thinking)
    ) AS v (which, id) OFFSET 0
) AS w
JOIN perdure.entry AS e ON e.namespace = l.namespace AND e.stream = w.of AND e.seq = w.seq
"""  # noqa: S608 - put together from constants

_ALL_IF_NONE_HIDDEN: LiteralString = f"""
SELECT b.*
FROM {_WITH_STATE}
LEFT JOIN perdure.state AS s
    ON s.namespace = l.namespace AND s.stream = l.state_of AND s.seq = l.state_seq
CROSS JOIN LATERAL perdure.branch(
    %s, l.stream, l.seq, greatest(l.depth + 1 - %s::bigint, 0), NULL,
    CASE WHEN s.compaction IS NULL THEN NULL::bigint ELSE 0 END
) AS b
"""  # noqa: S608 - put together from constants

_SEEN: LiteralString = """
SELECT p.id FROM perdure.stream AS s
CROSS JOIN unnest(%s::text[], %s::text[], %s::bigint[]) AS p (id, stream, seq)
WHERE s.namespace = %s AND s.id = %s AND perdure.sees(%s, s.id, s.head, p.stream, p.seq)
"""

# Each entry once, even if the places are close to each other.
_AROUND: LiteralString = f"""
WITH p AS (
    SELECT e.stream, e.seq, e.depth
    FROM unnest(%s::text[], %s::bigint[]) AS p (stream, seq)
    JOIN perdure.entry AS e
        ON e.namespace = %s AND e.stream = p.stream AND e.seq = p.seq AND e.run IS NOT NULL
)
SELECT DISTINCT ON (x.depth) x.* FROM p
JOIN (
    SELECT r.* FROM perdure.entry AS l CROSS JOIN LATERAL perdure.runs(
        %s, l.stream, l.seq, coalesce((SELECT min(p.depth) FROM p), 9223372036854775807)
    ) AS r WHERE l.namespace = %s AND l.stream = %s AND l.seq = %s AND l.run IS NOT NULL
) AS r ON r.run_stream = p.stream AND p.seq BETWEEN r.run_first AND r.run_last
CROSS JOIN LATERAL (
    (SELECT {ENTRY_COLUMNS}, e.depth FROM perdure.entry AS e
     WHERE e.namespace = %s AND e.stream = p.stream AND e.seq BETWEEN r.run_first AND p.seq
         AND e.run IS NOT NULL
     ORDER BY e.seq DESC LIMIT %s::bigint + 1)
    UNION ALL
    (SELECT {ENTRY_COLUMNS}, e.depth FROM perdure.entry AS e
     WHERE e.namespace = %s AND e.stream = p.stream AND e.seq > p.seq AND e.seq <= r.run_last
         AND e.run IS NOT NULL
     ORDER BY e.seq LIMIT %s::bigint)
) AS x ORDER BY x.depth
"""  # noqa: S608 - put together from constants

# The stream and its origins in turn, each with its newest tree entries: the server walks no further
# than the limit needs. A fork of a path shares only the branch to its leaf, and ends the walk.
_TREE: LiteralString = f"""
WITH RECURSIVE kin (stream, upto, leaf, is_path, origin, origin_head) AS (
    SELECT s.id, s.head, b.origin_leaf, coalesce(b.is_path, false), b.origin, b.origin_head
    FROM perdure.stream AS s
    JOIN perdure.birth AS b ON b.namespace = s.namespace AND b.stream = s.id
    WHERE s.namespace = %s AND s.id = %s
    UNION ALL
    SELECT b.stream, k.origin_head, b.origin_leaf, coalesce(b.is_path, false), b.origin,
        b.origin_head
    FROM kin AS k CROSS JOIN LATERAL (
        SELECT * FROM perdure.birth AS b
        WHERE b.namespace = %s AND b.stream = k.origin AND NOT k.is_path OFFSET 0
    ) AS b
)
SELECT f.* FROM kin AS k CROSS JOIN LATERAL (
    (SELECT {ENTRY_COLUMNS} FROM perdure.entry AS e
     WHERE e.namespace = %s AND e.stream = k.stream AND e.seq <= k.upto AND e.run IS NOT NULL
     ORDER BY e.seq DESC LIMIT %s::bigint)
    UNION ALL
    (SELECT b.* FROM perdure.branch(
        %s, split_part(k.leaf, '/', 1), split_part(k.leaf, '/', 2)::bigint, 0, NULL,
        CASE WHEN k.is_path AND k.leaf IS NOT NULL THEN %s::bigint ELSE 0 END
     ) AS b)
) AS f LIMIT %s::bigint
"""  # noqa: S608 - put together from constants

# LATERAL and OFFSET 0: otherwise the server expects many forks, and reads the whole table once.
_NOTES: LiteralString = f"""
SELECT {ENTRY_COLUMNS}, l.kin
FROM perdure.stream AS s CROSS JOIN LATERAL perdure.lineage(%s, s.id, s.head) AS l
CROSS JOIN LATERAL (
    SELECT * FROM perdure.entry AS e
    WHERE e.namespace = %s AND e.stream = l.kin_stream AND e.seq <= l.kin_upto
        AND e.kind = ANY(%s) AND e.run IS NULL AND e.salt IS NOT NULL {_IS_RARE}
    OFFSET 0
) AS e
WHERE s.namespace = %s AND s.id = %s ORDER BY l.kin DESC, e.seq
"""  # noqa: S608 - put together from constants

_NOTES_OF_ALL: LiteralString = f"""
SELECT {ENTRY_COLUMNS} FROM perdure.stream AS s
JOIN perdure.entry AS e ON e.namespace = s.namespace AND e.stream = s.id
    AND e.kind = ANY(%s) AND e.run IS NULL AND e.salt IS NOT NULL {_IS_RARE}
WHERE s.namespace = %s ORDER BY e.stream, e.seq
"""  # noqa: S608 - put together from constants

_NOTES_OF_FLOWS: LiteralString = f"""
SELECT {ENTRY_COLUMNS} FROM perdure.entry AS e
WHERE e.kind = ANY(%s) AND e.run IS NULL AND e.salt IS NOT NULL
    AND e.kind IN ('flow_started', 'flow_imported', 'flow_completed')
    AND e.namespace = %s ORDER BY e.stream, e.seq
"""  # noqa: S608 - put together from constants

_FREQUENT_NOTES = _NOTES.replace(_IS_RARE, "")
_FREQUENT_NOTES_OF_ALL = _NOTES_OF_ALL.replace(_IS_RARE, "")
_NOTES_OF_SOME = _NOTES_OF_ALL.replace("WHERE s", "WHERE s.id = ANY(%s) AND s")
_FREQUENT_NOTES_OF_SOME = _FREQUENT_NOTES_OF_ALL.replace("WHERE s", "WHERE s.id = ANY(%s) AND s")


# ---------------------------------------------------------------- statements


def ask_nodes(namespace: str, stream: StreamId, references: Iterable[EntryId]) -> Statement:
    """Query the nodes (places on a branch) of those `references` that `stream` sees."""
    places = [place for reference in references if (place := place_of(reference)) is not None]
    streams, seqs = [place[0] for place in places], [place[1] for place in places]
    own = (namespace, stream)
    values = (streams, seqs, namespace, stream, *own, *own, MOST_SEQ)
    return Statement(_NODES_SEEN, values)


def ask_state(namespace: str, state: EntryId | None) -> Statement:
    """Query the row of branch state that a node references."""
    stream, seq = _place(state)
    return Statement(_STATE_OF, (namespace, stream, seq))


def ask_notes(namespace: str, stream: StreamId, kinds: Sequence[str]) -> Statement:
    """Query the visible side entries of `kinds`, each with its distance in forks from `stream`."""
    sql = _FREQUENT_NOTES if _FREQUENT.intersection(kinds) else _NOTES
    return Statement(sql, (namespace, namespace, list(kinds), namespace, stream))


def ask_notes_of_all(
    namespace: str, kinds: Sequence[str], streams: Sequence[StreamId] | None = None
) -> Statement:
    """Query the side entries of `kinds` in the own logs of `streams`, or of all streams."""
    if streams is not None:
        frequent = _FREQUENT.intersection(kinds)
        some = _FREQUENT_NOTES_OF_SOME if frequent else _NOTES_OF_SOME
        return Statement(some, (list(kinds), list(streams), namespace))
    if set(kinds).issubset(FLOW_KINDS):
        return Statement(_NOTES_OF_FLOWS, (list(kinds), namespace))
    sql = _FREQUENT_NOTES_OF_ALL if _FREQUENT.intersection(kinds) else _NOTES_OF_ALL
    return Statement(sql, (list(kinds), namespace))


def _place(reference: EntryId | None) -> tuple[str, int]:
    """Return the stream and seq of an id; for None, a place where no entry exists."""
    return (place_of(reference) if reference is not None else None) or ("", -1)


# ---------------------------------------------------------------- visible entries


async def ask_stream(
    db: Database | Transaction, stream: StreamId, *statements: Statement
) -> tuple[int, list[list[Row]]]:
    """Return the head of `stream`, and the rows of each of `statements`, in one round trip.

    Raises: SessionNotFound.
    """
    check_name(db, stream)
    head, *answers = await db.ask(Statement(_HEAD, (db.namespace, stream)), *statements)
    if not head:
        raise SessionNotFound(stream)
    return head[0][0], answers


def check_name(db: Database | Transaction, stream: StreamId) -> None:
    """Raise SessionNotFound if no stream can have the id `stream`."""
    if not is_text(stream):
        if isinstance(db, Database):
            db.check_usable()
        raise SessionNotFound(stream)


async def entry_seen(db: Database, stream: StreamId, reference: str) -> tuple[int, Entry | None]:
    """Return the stream's head and, if the stream sees it, the entry with the id `reference`.

    Raises: SessionNotFound.
    """
    ns, (sought, seq) = db.namespace, place_of(reference) or ("", -1)
    values = (ns, sought, seq, stream, ns, stream)
    head, (found,) = await ask_stream(db, stream, Statement(_ENTRY_SEEN, values))
    return head, entry_of(found[0]) if found else None


async def visible_ids(
    db: Database, stream: StreamId, entries: Sequence[EntryId]
) -> frozenset[EntryId]:
    """Return the `entries` that the stream sees."""
    places = {each: place for each in entries if (place := place_of(each)) is not None}
    streams, seqs = [place[0] for place in places.values()], [p[1] for p in places.values()]
    values = (list(places), streams, seqs, db.namespace, stream, db.namespace)
    _, (rows,) = await ask_stream(db, stream, Statement(_SEEN, values))
    return frozenset(EntryId(row[0]) for row in rows)


async def around(
    db: Database, stream: StreamId, leaf: EntryId, entries: Sequence[EntryId], reach: int
) -> list[Placed]:
    """Return the `entries` on the branch to `leaf`, each with up to `reach` neighbors per side."""
    ns, places = db.namespace, [place for each in entries if (place := place_of(each))]
    streams, seqs = [place[0] for place in places], [place[1] for place in places]
    values = (streams, seqs, ns, ns, ns, *_place(leaf), ns, reach, ns, reach)
    asked = ask_nodes(ns, stream, [leaf]), Statement(_AROUND, values)
    _, (nodes, rows) = await ask_stream(db, stream, *asked)
    if not nodes:
        raise EntryNotFound(leaf, stream)
    return [Placed(row[9], entry_of(row[:9])) for row in rows]


async def tree(
    db: Database | Transaction, stream: StreamId, limit: int | None = None
) -> list[Entry]:
    """Return the newest `limit` tree entries that `stream` sees, in log order, origins first.

    The call runs one statement, even if the entries are from many forks. Raises: SessionNotFound.
    """
    ns = db.namespace
    values = (ns, stream, ns, ns, limit, ns, limit, limit)
    _, (rows,) = await ask_stream(db, stream, Statement(_TREE, values))
    return [entry_of(row) for row in reversed(rows)]


async def notes_of_all(
    db: Database, kinds: Sequence[str], streams: Sequence[StreamId] | None = None
) -> list[Entry]:
    """Return the side entries of `kinds` in the own logs of `streams`, or of all streams."""
    db.check_usable()
    named = [kind for kind in kinds if is_text(kind)]
    among = None if streams is None else list(filter(is_text, streams))
    (rows,) = await db.ask(ask_notes_of_all(db.namespace, named, among))
    return [entry_of(row) for row in rows]


async def notes(db: Database | Transaction, stream: StreamId, kinds: Sequence[str]) -> list[Entry]:
    """Return the side entries of `kinds` that `stream` sees, in order, a fork's origins first."""
    asked = ask_notes(db.namespace, stream, list(filter(is_text, kinds)))
    _, (rows,) = await ask_stream(db, stream, asked)
    return [entry_of(row[:9]) for row in rows]


# ---------------------------------------------------------------- branches


async def branch(
    db: Database,
    stream: StreamId,
    leaf: EntryId | None,
    *,
    limit: int | None = None,
    kind: str | None = None,
) -> list[Entry]:
    """Return entries from the root to `leaf`; if given, only of `kind`, only the newest `limit`."""
    if leaf is None:
        await ask_stream(db, stream)
        return []
    if kind is not None and not is_text(kind):
        kind = ""  # no entry has it
    ns, reach = db.namespace, MOST_SEQ if limit is None or kind is not None else limit
    values = (ns, reach, kind, limit, ns, *_place(leaf))
    asked = ask_nodes(ns, stream, [leaf]), Statement(_BRANCH_TO, values)
    _, (nodes, rows) = await ask_stream(db, stream, *asked)
    if not nodes:
        raise EntryNotFound(leaf, stream)
    return [entry_of(row) for row in reversed(rows)]


async def context_window(
    db: Database, stream: StreamId, leaf: EntryId | None, limit: int | None = None
) -> ContextWindow:
    """Return the context window (``fold.window_of``) of `leaf`, without reading hidden entries.

    With `limit`, return only the newest `limit` entries of the window (``fold.end_of``). The read
    takes one round trip without a compaction, two with an active compaction, and more after an
    undone compaction.
    """
    if leaf is None:
        await ask_stream(db, stream)
        return ContextWindow(None, (), BranchState(), 0)
    ns, at, reach = db.namespace, _place(leaf), MOST_SEQ if limit is None else limit
    _, (nodes, taken_back, named, rows) = await ask_stream(
        db,
        stream,
        ask_nodes(ns, stream, [leaf]),
        ask_notes(ns, stream, (CompactionUndone.kind,)),
        Statement(_INHERITED, (ns, *at)),
        Statement(_ALL_IF_NONE_HIDDEN, (ns, *at, ns, reach)),
    )
    if not nodes:
        raise EntryNotFound(leaf, stream)
    node = node_of(nodes[0])
    undone = frozenset(row[4] or entry_id(row[0], row[3]) for row in taken_back if _is_about(row))
    by_kind = {row[9]: entry_of(row[:9]) for row in named}
    state = BranchState(by_kind.get("compaction"), by_kind.get("model"), by_kind.get("thinking"))
    passed: frozenset[EntryId] = frozenset()
    if state.compaction is not None and not is_active_compaction(state.compaction, undone):
        state, passed = await _branch_state(db, node, undone)
        rows = []
    size, rows = await _window_rows(db, node, state, rows, reach)
    shown = tuple(entry_of(row[:9]) for row in reversed(rows))
    return ContextWindow(
        leaf=shown[-1].id,
        entries=shown,
        state=state,
        hidden=node.depth + 1 - size,
        undone=undone_among(shown, undone) | passed,
        earlier=size - len(shown),
    )


def _is_about(row: Row) -> bool:
    return row[3] is not None or row[4] is not None


async def _branch_state(
    db: Database, leaf: Node, undone: frozenset[EntryId]
) -> tuple[BranchState, frozenset[EntryId]]:
    """Return the active compaction, the model change and the thinking change.

    The second result contains the later compactions, which hide no entries because they are not
    active.
    """
    state = await _state(db, leaf.state)
    compaction, before = state.compaction, state.before
    passed: list[EntryId] = []
    while compaction is not None and (compaction in undone or await _is_erased(db, compaction)):
        passed.append(compaction)
        earlier = await _state(db, before)
        compaction, before = earlier.compaction, earlier.before
    named = (compaction, state.model, state.thinking)
    if not any(named):
        return BranchState(), frozenset(passed)
    asked = [Statement(_ENTRY_AT, (db.namespace, *_place(id_))) for id_ in named]
    found = (entry_of(rows[0]) if rows else None for rows in await db.ask(*asked))
    return BranchState(*found), frozenset(passed)


async def _is_erased(db: Database, entry: EntryId) -> bool:
    (rows,) = await db.ask(Statement(_ENTRY_AT, (db.namespace, *_place(entry))))
    return bool(rows) and entry_of(rows[0]).is_erased


async def _state(db: Database, name: EntryId | None) -> State:
    if name is None:
        return State()
    (rows,) = await db.ask(ask_state(db.namespace, name))
    return State(*rows[0]) if rows else State()


_ENTRY_AT: LiteralString = f"""
SELECT {ENTRY_COLUMNS} FROM perdure.entry AS e
WHERE e.namespace = %s AND e.stream = %s AND e.seq = %s
"""  # noqa: S608 - put together from constants


async def _window_rows(
    db: Database, leaf: Node, state: BranchState, rows: list[Row], reach: int
) -> tuple[int, list[Row]]:
    """Return the size of the window, and the rows of its newest `reach` entries.

    If the caller has already read the rows for a branch without an active compaction, `rows`
    contains them.
    """
    size = leaf.depth + 1
    floor = max(size - reach, 0)
    if state.compaction is None:
        if not rows:
            values = (db.namespace, leaf.stream, leaf.seq, floor, None, None)
            (rows,) = await db.ask(Statement(_BRANCH, values))
        return size, rows
    kept = _place(first_kept_by(state.compaction))
    ns, compaction = db.namespace, (state.compaction.stream, state.compaction.seq)
    values = (ns, *kept, ns, ns, *compaction, ns, leaf.stream, leaf.seq, floor)
    (rows,) = await db.ask(Statement(_WINDOW, values))
    return size - int(rows[0][9]), rows
