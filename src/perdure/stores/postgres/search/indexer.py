"""The index of the words of all entries of a namespace, and how it follows the log.

``search_mark`` says up to which position the log is indexed. It moves with the index in one
transaction, and only up to where nothing can appear any more, whatever commits are under way
(``perdure.settle``). A search moves it first, in steps, and reads what then is behind it.

Texts come in as they are (loose); some hundred of them become a part (``session.search.parts``).
Whoever takes an entry out of the log takes it out of here too, in the same transaction
(``parts.forget``), or its words stay: the other texts of its part are loose until the next search.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import LiteralString, NamedTuple

import msgspec

from perdure.errors import SearchIndexDamaged
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.search.parts import sizes
from perdure.session.search.parts.builder import Text
from perdure.session.search.parts.codes import MOST_WORDS
from perdure.session.search.parts.pages import DAMAGE, FILTER, role_key
from perdure.session.search.searchable import KINDS
from perdure.session.search.words import VERSION, terms
from perdure.stores.postgres.database import Connected, Database, Statement, run_statements
from perdure.stores.postgres.rows import ENTRY_COLUMNS, Row, entry_of
from perdure.stores.postgres.search.parts import (
    add_part,
    adding_loose,
    clearing,
    loose_count,
    take_loose,
)
from perdure.stores.protocol import OnProgress
from perdure.stores.scan import Found, found_entry, found_title

NO_END = 2**62
"""Behind every position and every moment."""

_MARK: LiteralString = "SELECT version, upto, parts FROM perdure.search_mark WHERE namespace = %s"

# OFFSET 0 keeps the mark a value, for which the indexes are asked: put in where it is used, it is a
# query that may leak, and row-level security lets none of those ask an index.
BEHIND: LiteralString = """
SELECT (SELECT count(*) FROM (
    SELECT FROM perdure.entry AS e WHERE e.namespace = %s AND e.n > m.upto AND e.kind = ANY(%s)
        AND e.n <= current_setting('perdure.horizon')::bigint
    LIMIT %s
) AS entries) + (SELECT count(*) FROM (
    SELECT FROM perdure.birth AS b WHERE b.namespace = %s AND b.n > m.upto
        AND b.n <= current_setting('perdure.horizon')::bigint
    LIMIT %s
) AS births), current_setting('perdure.horizon')::bigint, (
    SELECT count(*) FROM perdure.search AS t WHERE t.namespace = %s AND t.part = 0
)
FROM (SELECT coalesce((
    SELECT upto FROM perdure.search_mark WHERE namespace = %s AND version = %s
), 0) AS upto OFFSET 0) AS m
"""

_COUNT: LiteralString = """
SELECT count(*) FROM perdure.entry WHERE namespace = %s AND n > %s AND n <= %s
"""

_SETTLE: LiteralString = "SELECT perdure.settle(0)"

# While a part is made the server waits for this program, which on a busy machine takes its time.
_SOON: LiteralString = """
SELECT set_config('synchronous_commit', 'off', true),
    set_config('idle_in_transaction_session_timeout', '60000', true)
"""

_BEGIN: LiteralString = """
INSERT INTO perdure.search_mark VALUES (%s, %s, 0, 0) ON CONFLICT DO NOTHING
"""

_LOCKED: LiteralString = _MARK + " FOR UPDATE"

_HORIZON: LiteralString = "SELECT current_setting('perdure.horizon')::bigint"

_FROM: LiteralString = """
FROM perdure.entry AS e
JOIN perdure.stream AS s ON s.namespace = e.namespace AND s.id = e.stream AND s.kind = 'session'
WHERE e.namespace = %s AND e.n > %s AND e.n <= %s AND e.kind = ANY(%s)
"""

ENTRIES: LiteralString = f"SELECT {ENTRY_COLUMNS}, e.n {_FROM}"

_NEXT: LiteralString = f"""
SELECT {ENTRY_COLUMNS}, e.of, e.n FROM (
    SELECT e.*, count(*) OVER () AS of,
        sum(octet_length(e.body)) OVER (ORDER BY e.n) - octet_length(e.body) AS before
    FROM (SELECT e.* {_FROM} ORDER BY e.n LIMIT %s) AS e
) AS e WHERE e.before < %s ORDER BY e.n
"""  # noqa: S608 - put together from constants

TITLES: LiteralString = """
SELECT b.header, b.n FROM perdure.birth AS b
WHERE b.namespace = %s AND b.n > %s AND b.n <= %s ORDER BY b.n LIMIT %s
"""

_MOVE: LiteralString = """
UPDATE perdure.search_mark SET version = %s, upto = %s, parts = %s WHERE namespace = %s
"""

_TEXTS: LiteralString = "SELECT count(*) FROM perdure.search WHERE namespace = %s"

_header = msgspec.json.Decoder(StreamHeader)


class Mark(NamedTuple):
    """Up to where the log is indexed, by which rules, and how many parts that made."""

    version: int
    upto: int
    parts: int


class Progress(NamedTuple):
    """How many entries and titles are not indexed, one more than `SCANNED` at most; up to where.

    `loose` texts are in the index, in no part.
    """

    behind: int
    horizon: int
    loose: int

    @property
    def is_due(self) -> bool:
        """A search would read more than it should."""
        return sizes.is_due(self.behind, self.loose)


NOTHING = Mark(VERSION, 0, 0)


def mark_in(rows: Sequence[Row]) -> Mark:
    """The mark in the answer to `ask_mark`: none, or one by other rules, is that of no index."""
    mark = Mark(*rows[0]) if rows else NOTHING
    return mark if mark.version == VERSION else NOTHING


def ask_mark(namespace: str) -> Statement:
    """The row that `mark_in` makes a mark of."""
    return Statement(_MARK, (namespace,))


async def progress(db: Database) -> Progress:
    """How far the index is behind the log."""
    ns, most = db.namespace, sizes.SCANNED + 1
    values = (ns, list(KINDS), most, ns, most, ns, ns, VERSION)
    _, rows = await db.ask(Statement(_SETTLE), Statement(BEHIND, values))
    return Progress(*rows[0])


async def index_upto(db: Database, horizon: int, told: OnProgress | None = None) -> None:
    """Index all that was there up to `horizon`, in transactions that keep nobody waiting long."""
    total = await _behind(db, horizon) if told is not None else 0
    is_over = False
    while not is_over:
        mark, is_over = await index_some(db, horizon)
        if told is not None:
            left = await _behind(db, horizon) if mark.upto < horizon else 0
            told(total - left, total)


async def _behind(db: Database, horizon: int) -> int:
    ns = db.namespace
    (marks,) = await db.ask(ask_mark(ns))
    (rows,) = await db.ask(Statement(_COUNT, (ns, mark_in(marks).upto, horizon)))
    return int(rows[0][0])


async def index_some(db: Database, horizon: int) -> tuple[Mark, bool]:
    """Index what stands next behind the mark; where the mark is now, and whether that was all.

    Others who index wait for this step, and writers do not notice. It does not wait for the disk:
    the log can tell it again.
    """
    ns = db.namespace
    async with db.connection() as connected, connected.transaction():
        begin, locked = Statement(_BEGIN, (ns, VERSION)), Statement(_LOCKED, (ns,))
        _, _, rows = await run_statements(connected, ns, [Statement(_SOON), begin, locked])
        mark = mark_in(rows)
        if Mark(*rows[0]).version != VERSION:
            await run_statements(connected, ns, clearing(ns))
        batch, upto = await _next(connected, ns, mark)
        parts = mark.parts
        if sizes.is_enough(len(batch), sum(len(text.words) for text in batch)):
            parts += 1
            await add_part(connected, ns, parts, batch)
        else:
            adding = await asyncio.to_thread(adding_loose, ns, batch)
            await run_statements(connected, ns, [adding])
        has_more = upto < horizon
        if not has_more:
            parts, has_more = await _put_together(db, connected, parts)
        move = Statement(_MOVE, (VERSION, upto, parts, ns))
        await run_statements(connected, ns, [move])
    return Mark(VERSION, upto, parts), not has_more


async def _put_together(of: Database, db: Connected, parts: int) -> tuple[int, bool]:
    """Make a part of loose texts where they are many; how many parts, whether more may be made.

    Raises: SearchIndexDamaged.
    """
    ns = of.namespace
    texts, words = await loose_count(db, ns)
    if not sizes.is_enough(texts, min(words, MOST_WORDS)):
        return parts, False
    try:
        held = await take_loose(db, ns, sizes.BATCH_ROWS)
    except DAMAGE as error:
        raise SearchIndexDamaged(of.address) from error
    await add_part(db, ns, parts + 1, held)
    return parts + 1, len(held) < texts


async def _next(db: Connected, ns: str, mark: Mark) -> tuple[list[Text], int]:
    """What stands next, in order, and the position up to which there is nothing else."""
    settled = await run_statements(db, ns, [Statement(_SETTLE), Statement(_HORIZON)])
    upto: int = settled[1][0][0]
    span = (ns, mark.upto, upto)
    entries = Statement(_NEXT, (*span, list(KINDS), sizes.BATCH_ROWS, sizes.BATCH_BYTES))
    rows, titles = await run_statements(
        db, ns, [entries, Statement(TITLES, (*span, sizes.BATCH_ROWS))]
    )
    if rows and (len(rows) == sizes.BATCH_ROWS or len(rows) < rows[-1][-2]):
        upto = rows[-1][-1]
    if len(titles) == sizes.BATCH_ROWS:
        upto = min(upto, titles[-1][-1])
    read = [*((*row[:-2], row[-1]) for row in rows), *titles]
    return await asyncio.to_thread(_batch, [row for row in read if row[-1] <= upto], upto)


def _batch(rows: Iterable[Row], upto: int) -> tuple[list[Text], int]:
    """The texts in `rows` as far as they make one part, and the position they reach."""
    batch: list[Text] = []
    size = 0
    for row in sorted(rows, key=lambda row: row[-1]):
        found = found_in(row)
        if found is None:
            continue
        text = text_of(found)
        size += len(text.words)
        if batch and size > MOST_WORDS:
            return batch, row[-1] - 1
        batch.append(text)
    return batch, upto


def found_in(row: Row) -> Found | None:
    """What can be found in a row of `ENTRIES` or `TITLES`."""
    *columns, position = row
    if len(columns) == 1:
        return found_title(position, _header.decode(columns[0]))
    return found_entry(position, entry_of(tuple(columns)))


async def clear(db: Database) -> None:
    """Empty the index: the next search builds it anew."""
    ns = db.namespace
    begin, locked = Statement(_BEGIN, (ns, VERSION)), Statement(_LOCKED, (ns,))
    await db.ask(begin, locked, *clearing(ns), Statement(_MOVE, (VERSION, 0, 0, ns)))


async def texts(db: Database) -> int:
    """How many texts are indexed."""
    (rows,) = await db.ask(Statement(_TEXTS, (db.namespace,)))
    return int(rows[0][0])


# ---------------------------------------------------------------- what stands for the filters


def text_of(found: Found) -> Text:
    """`found` as it is indexed."""
    what = found.what
    filters = [stream_key(found.stream), role_key(what.role), *map(tool_key, what.tools)]
    return Text(found.position, found.at, terms(what.text), filters)


def stream_key(stream: StreamId) -> str:
    """What stands for a stream."""
    return f"{FILTER}s{_short(stream)}"


def tool_key(tool: str) -> str:
    """What stands for the name of a tool."""
    return f"{FILTER}t{_short(tool)}"


def _short(name: str) -> str:
    """Whatever `name` holds, and however long."""
    return blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()
