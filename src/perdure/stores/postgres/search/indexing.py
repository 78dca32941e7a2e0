"""The index of the words of all entries of a namespace, and how it follows the log.

``search_mark`` says up to which position the log is indexed. It moves with the index in one
transaction, and only up to where nothing can appear any more, whatever commits are under way
(``perdure.settle``). A search moves it first, in steps, and reads what then is behind it.

The index finds candidates by words, and by pairs of neighbours as hashes. Beside it each text has
its words in order (``session.search.joined``), which decide what fits and what comes first, so that
only what is shown is read from the log (``querying``). Whoever takes an entry out of
the log takes it out of here too, in the same transaction (`forgetting`), or its words stay.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b, sha256
from itertools import pairwise
from typing import LiteralString, NamedTuple
from zlib import crc32

import msgspec

from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.search.joined import joined
from perdure.session.search.searchable import KINDS
from perdure.session.search.words import VERSION, terms
from perdure.stores.postgres.database import Connected, Database, Question, asked
from perdure.stores.postgres.rows import ENTRY_COLUMNS, Numbers, Row, Texts, entry_of
from perdure.stores.scanning import Found, found_entry, found_title

SCANNED = 48
"""So few entries behind the mark are read by the search itself rather than indexed first."""

BATCH_ROWS = 256
BATCH_CHARACTERS = 1_000_000
"""What one transaction indexes at most: a text that is longer is indexed alone."""

BLOCK_TEXTS = 4_096
"""Texts indexed one after the other that share a word for their block."""

MOST_WORD_BYTES = 900_000
"""What of different words a ``tsvector`` can hold; a text with more has `LONG` in their place."""

LONG = "=l"

_PAIRS, _PAIR_COUNT = 0xF0000, 0xFFFE
"""Where the private characters of Unicode's plane 15 begin, and how many they are."""

STEPS = 8
"""A pair's hash also says at which word it begins, modulo this: of a phrase each pair has to begin
one word after the one before. Without it, texts that hold its pairs far apart were candidates too.
"""

NO_END = 2**62
"""Behind every position and every moment."""

_MARK: LiteralString = "SELECT version, upto, texts FROM perdure.search_mark WHERE namespace = %s"

_BEHIND: LiteralString = """
SELECT (SELECT count(*) FROM (
    SELECT FROM perdure.entry AS e WHERE e.namespace = %s AND e.n > m.upto AND e.kind = ANY(%s)
        AND e.n <= current_setting('perdure.horizon')::bigint
    LIMIT %s
) AS entries) + (SELECT count(*) FROM (
    SELECT FROM perdure.birth AS b WHERE b.namespace = %s AND b.n > m.upto
        AND b.n <= current_setting('perdure.horizon')::bigint
    LIMIT %s
) AS births), current_setting('perdure.horizon')::bigint
FROM (SELECT coalesce((
    SELECT upto FROM perdure.search_mark WHERE namespace = %s AND version = %s
), 0) AS upto) AS m
"""

_SETTLE: LiteralString = "SELECT perdure.settle(0)"

_SOON: LiteralString = "SELECT set_config('synchronous_commit', 'off', true)"

_BEGIN: LiteralString = """
INSERT INTO perdure.search_mark VALUES (%s, %s, 0, 0) ON CONFLICT DO NOTHING
"""

_LOCKED: LiteralString = _MARK + " FOR UPDATE"

_HORIZON: LiteralString = "SELECT current_setting('perdure.horizon')::bigint"

ENTRIES: LiteralString = f"""
SELECT {ENTRY_COLUMNS}, e.n FROM perdure.entry AS e
JOIN perdure.stream AS s ON s.namespace = e.namespace AND s.id = e.stream AND s.kind = 'session'
WHERE e.namespace = %s AND e.n > %s AND e.n <= %s AND e.kind = ANY(%s)
"""  # noqa: S608 - put together from constants

TITLES: LiteralString = """
SELECT b.header, b.n FROM perdure.birth AS b
WHERE b.namespace = %s AND b.n > %s AND b.n <= %s ORDER BY b.n LIMIT %s
"""

_ADD: LiteralString = """
INSERT INTO perdure.search (namespace, n, stream, at, words, said, length)
SELECT %s, d.n, d.stream, d.at, d.words, d.said, d.length
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::text[], %s::bigint[])
    AS d (n, stream, at, words, said, length)
"""

_MOVE: LiteralString = """
UPDATE perdure.search_mark SET version = %s, upto = %s, texts = %s WHERE namespace = %s
"""

_TIDY: LiteralString = "SELECT perdure.tidy_search()"

_CLEAR: LiteralString = "DELETE FROM perdure.search WHERE namespace = %s"

_FORGET: LiteralString = "DELETE FROM perdure.search WHERE namespace = %s AND n = ANY(%s)"

_TEXTS: LiteralString = "SELECT count(*) FROM perdure.search WHERE namespace = %s"

_header = msgspec.json.Decoder(StreamHeader)


class Mark(NamedTuple):
    """Up to where the log is indexed, by which rules, and how many texts that made."""

    version: int
    upto: int
    texts: int


class Progress(NamedTuple):
    """How many entries and titles are not indexed yet, `SCANNED` and one at most; up to where."""

    behind: int
    horizon: int


NOTHING = Mark(VERSION, 0, 0)


def mark_in(rows: Sequence[Row]) -> Mark:
    """The mark in the answer to `ask_mark`: none, or one by other rules, is that of no index."""
    mark = Mark(*rows[0]) if rows else NOTHING
    return mark if mark.version == VERSION else NOTHING


def ask_mark(namespace: str) -> Question:
    """The row that `mark_in` makes a mark of."""
    return Question(_MARK, (namespace,))


async def progress(db: Database) -> Progress:
    """How far the index is behind the log."""
    ns, most = db.namespace, SCANNED + 1
    values = (ns, list(KINDS), most, ns, most, ns, VERSION)
    _, rows = await db.ask(Question(_SETTLE), Question(_BEHIND, values))
    return Progress(*rows[0])


async def index_upto(db: Database, horizon: int) -> None:
    """Index all that was there up to `horizon`, in transactions that keep nobody waiting long.

    What they added stands in a list at first, which every search would have to go through.
    """
    while (await index_some(db)).upto < horizon:
        pass
    await db.ask(Question(_TIDY))


async def index_some(db: Database) -> Mark:
    """Index what stands next behind the mark; where the mark is now.

    Others who index wait for this step, and writers do not notice. It does not wait for the disk:
    the log can tell it again.
    """
    ns = db.namespace
    async with db.connection() as connected, connected.transaction():
        begin, locked = Question(_BEGIN, (ns, VERSION)), Question(_LOCKED, (ns,))
        _, _, rows = await asked(connected, ns, [Question(_SOON), begin, locked])
        mark = mark_in(rows)
        if Mark(*rows[0]).version != VERSION:
            await asked(connected, ns, [Question(_CLEAR, (ns,))])
        batch, upto = await _next(connected, ns, mark)
        moved = Mark(VERSION, upto, mark.texts + len(batch))
        add = [_adding(ns, batch, mark.texts)] if batch else []
        move = Question(_MOVE, (VERSION, upto, moved.texts, ns))
        await asked(connected, ns, [*add, move])
    return moved


async def _next(db: Connected, ns: str, mark: Mark) -> tuple[list[Found], int]:
    """What stands next, in order, and the position up to which there is nothing else."""
    settled = await asked(db, ns, [Question(_SETTLE), Question(_HORIZON)])
    horizon: int = settled[1][0][0]
    rest: LiteralString = " ORDER BY e.n LIMIT %s"
    entries = Question(ENTRIES + rest, (ns, mark.upto, horizon, list(KINDS), BATCH_ROWS))
    titles = Question(TITLES, (ns, mark.upto, horizon, BATCH_ROWS))
    rows = await asked(db, ns, [entries, titles])
    upto = min([horizon, *(part[-1][-1] for part in rows if len(part) == BATCH_ROWS)])
    batch: list[Found] = []
    size = 0
    for row in sorted((*rows[0], *rows[1]), key=lambda row: row[-1]):
        found = found_in(row)
        if row[-1] > upto or found is None:
            continue
        size += len(found.what.text)
        if batch and size > BATCH_CHARACTERS:
            return batch, row[-1] - 1
        batch.append(found)
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
    await db.ask(
        Question(_BEGIN, (ns, VERSION)),
        Question(_LOCKED, (ns,)),
        Question(_CLEAR, (ns,)),
        Question(_MOVE, (VERSION, 0, 0, ns)),
    )


async def texts(db: Database) -> int:
    """How many texts are indexed."""
    (rows,) = await db.ask(Question(_TEXTS, (db.namespace,)))
    return int(rows[0][0])


def forgetting(namespace: str, positions: Sequence[int]) -> Question:
    """Takes out of the index what the entries at `positions` say; a title is at -(its birth's)."""
    return Question(_FORGET, (namespace, Numbers(positions)))


# ---------------------------------------------------------------- words


def _adding(namespace: str, batch: Sequence[Found], before: int) -> Question:
    own = namespace_word(namespace)
    words, said, lengths = Texts(), Texts(), Numbers()
    for number, each in enumerate(batch, before):
        in_order = terms(each.what.text)
        words.append(" ".join((own, *words_of(each, in_order, number))))
        said.append(joined(in_order))
        lengths.append(len(in_order))
    positions = Numbers(each.position for each in batch)
    streams, ats = Texts(each.stream for each in batch), Numbers(each.at for each in batch)
    return Question(_ADD, (namespace, positions, streams, ats, words, said, lengths))


def words_of(found: Found, said: Sequence[str], number: int) -> list[str]:
    """The different words `found`, which says `said`, is indexed by besides its namespace's.

    It is the text of that `number` in the index. Titles belong to no block: they come after all
    entries, however new.
    """
    what = found.what
    filters = [stream_word(found.stream), role_word(what.role), *map(tool_word, what.tools)]
    if found.entry is not None:
        filters.append(block_word(number // BLOCK_TEXTS))
    words = {*said, *_pairs_in(said)}
    return [*filters, *((LONG,) if _is_long(words) else words)]


def _is_long(words: Collection[str]) -> bool:
    most = sum(map(len, words)) * 4  # bytes of a character
    return most > MOST_WORD_BYTES and sum(len(word.encode()) for word in words) > MOST_WORD_BYTES


def namespace_word(namespace: str) -> str:
    """What stands for a namespace: as ``perdure.search_namespace`` makes it."""
    return "=n" + sha256(namespace.encode()).hexdigest()


def pair_words(said: Sequence[str]) -> list[list[str]]:
    """What stands for neighbours where `said` is said: of each list all, whatever the list.

    A list is for where it may begin. Without pairs a phrase of words that are everywhere would be
    looked for in every text.
    """
    hashes = _hashes(said)
    return [
        [_pair(*two, first + place) for place, two in enumerate(pairwise(hashes))]
        for first in range(STEPS)
    ]


def _pairs_in(said: Sequence[str]) -> set[str]:
    return {_pair(one, other, place) for place, (one, other) in enumerate(pairwise(_hashes(said)))}


def _hashes(said: Sequence[str]) -> list[int]:
    hashed = {word: crc32(word.encode()) for word in set(said)}
    return [hashed[word] for word in said]


def _pair(one: int, other: int, place: int) -> str:
    """A character no word has."""
    return chr(_PAIRS + (one * 40_503 + other * 30_011 + place % STEPS * 16_411) % _PAIR_COUNT)


def block_word(number: int) -> str:
    """What stands for a block of texts."""
    return f"=b{number}"


def stream_word(stream: StreamId) -> str:
    """What stands for a stream."""
    return "=s" + _short(stream)


def role_word(role: str) -> str:
    """What stands for a role."""
    return f"=r{role}"


def tool_word(tool: str) -> str:
    """What stands for the name of a tool."""
    return "=t" + _short(tool)


def _short(name: str) -> str:
    """Whatever `name` holds, and however long; should two be alike, the texts decide."""
    return blake2b(name.encode(errors="surrogatepass"), digest_size=9).hexdigest()
