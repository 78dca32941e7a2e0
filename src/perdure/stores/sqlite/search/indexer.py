"""The index of the words of a namespace, and how it follows the log.

``search_mark`` says up to where the log is indexed. It moves with the index in one transaction, so
whoever is killed, or indexes at the same time, leaves the index as whole as it was. Nothing is
indexed while a turn is appended. A search first moves the mark, in steps: what a step adds is read
and made outside of any transaction that others would wait for (`next_step`, `made`), and put in if
the mark still stands where it stood (`put_in`). What then is behind the mark is read by the search.

Texts come in as they are (loose); some hundred of them become a part (``session.search.parts``).
Whoever takes an entry out of the log first takes it out of here (`forget`), or its words stay: the
other texts of its part are loose until the next search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import apsw
import msgspec

from perdure.errors import SearchIndexDamaged
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.search.parts import sizes
from perdure.session.search.parts.builder import Part, Text, make_part
from perdure.session.search.parts.codes import MOST_WORDS
from perdure.session.search.parts.pages import DAMAGE, FILTER, role_key, tool_key
from perdure.session.search.searchable import (
    KINDS,
    Searchable,
    searchable_of,
    searchable_title,
)
from perdure.session.search.words import VERSION, terms
from perdure.stores.sqlite.log.spans import AFTER, END
from perdure.stores.sqlite.rows import Cursor, Row, Tables
from perdure.stores.sqlite.search.parts import (
    add_loose,
    add_part,
    clear_tables,
    forget_texts,
    loose_count,
    loose_texts,
    remove_loose,
)

_COLUMNS = "e.n, s.namespace, e.stream, e.seq, e.run, e.ref, e.at, e.kind, e.v, e.body"

_IS_FOUND = "s.namespace = ?1 AND e.kind IN ({kinds}) AND s.kind = 'session' "

# Behind a position, up to another.
_ENTRIES = f"""
SELECT {_COLUMNS} FROM span AS a
CROSS JOIN entry AS e ON e.n > max(a.first - 1, ?2) AND e.n < min({END}, ?3 + 1)
CROSS JOIN stream AS s ON s.no = e.stream
WHERE {AFTER} AND a.first <= ?3 AND {_IS_FOUND}
"""  # noqa: S608 - put together from constants

_ENTRIES_OF = f"""
SELECT {_COLUMNS} FROM entry AS e CROSS JOIN stream AS s ON s.no = e.stream
WHERE e.stream = ?2 AND e.seq BETWEEN ?3 AND ?4 AND {_IS_FOUND}
"""  # noqa: S608 - put together from constants

_ENTRY_AT = f"""
SELECT {_COLUMNS} FROM entry AS e CROSS JOIN stream AS s ON s.no = e.stream
WHERE e.n = ?2 AND {_IS_FOUND}
"""  # noqa: S608 - put together from constants

_TITLES = """
SELECT s.no, s.namespace, s.id, s.created_at, b.header
FROM stream AS s CROSS JOIN birth AS b ON b.stream = s.no
WHERE s.namespace = ? AND s.no > ? AND s.no <= ? AND s.kind = 'session' ORDER BY s.no
"""

# The position behind which nothing is, and the newest stream of the namespace.
_NEWEST = """
SELECT (SELECT coalesce(max(n), 0) FROM entry),
    (SELECT coalesce(max(no), 0) FROM stream WHERE namespace = ?)
"""

_BEHIND = f"""
SELECT coalesce(sum(min({END}, ?3 + 1) - max(a.first, ?2 + 1)), 0) FROM span AS a
WHERE {AFTER} AND a.first <= ?3
"""  # noqa: S608 - put together from constants

_STREAM_FAR = "SELECT no FROM stream WHERE namespace = ? AND no > ? ORDER BY no LIMIT 1 OFFSET ?"

_STREAMS_BEHIND = "SELECT count(*) FROM stream WHERE namespace = ? AND no > ?"

_IS_MISSING = """
NOT EXISTS (
    SELECT 1 FROM search_text AS t JOIN search_part AS p ON p.no = t.id >> 13
    WHERE t.n = e.n AND p.namespace = ?1
)
AND NOT EXISTS (SELECT 1 FROM search_loose AS t WHERE t.namespace = ?1 AND t.n = e.n)
"""

_HAS_TITLE = """
SELECT EXISTS (
    SELECT 1 FROM search_text AS t JOIN search_part AS p ON p.no = t.id >> 13
    WHERE t.n = ?2 AND p.namespace = ?1
)
    OR EXISTS (SELECT 1 FROM search_loose WHERE namespace = ?1 AND n = ?2)
"""

NO_END = 2**62
"""Behind every position and every number."""

_MARK = "SELECT version, entry, stream, parts, forgotten FROM search_mark WHERE namespace = ?"

_SET_MARK = """
INSERT INTO search_mark (namespace, version, entry, stream, parts, forgotten)
VALUES (?, ?, ?, ?, ?, 0)
ON CONFLICT (namespace) DO UPDATE SET version = excluded.version, entry = excluded.entry,
    stream = excluded.stream, parts = excluded.parts
"""

_HAS_FORGOTTEN = "UPDATE search_mark SET forgotten = forgotten + 1 WHERE namespace = ?"

_TEXTS = """
SELECT (SELECT coalesce(sum(size), 0) FROM search_part WHERE namespace = ?1)
    + (SELECT count(*) FROM search_loose WHERE namespace = ?1)
"""

_header = msgspec.json.Decoder(StreamHeader)


class Mark(NamedTuple):
    """Up to where the log is indexed: a position and the number of a stream; and by which rules.

    `parts` were built so far; `forgotten` counts how often something was taken out.
    """

    version: int
    entry: int
    stream: int
    parts: int
    forgotten: int


class Progress(NamedTuple):
    """How much of the log is not indexed yet, and up to where it goes; how many texts are loose."""

    behind: int
    entry: int
    stream: int
    loose: int

    @property
    def is_due(self) -> bool:
        """A search would read more than it should."""
        return sizes.is_due(self.behind, self.loose)


class Step(NamedTuple):
    """What is to be put into the index next, read at `before`.

    `texts` are new up to `entry` and `stream`, or, where `is_of_loose`, loose ones; `part` is what
    they make together, None where they are too few. `is_last`: then there is nothing more to do.
    """

    before: Mark
    texts: list[Text]
    entry: int
    stream: int
    is_of_loose: bool
    is_last: bool
    part: Part | None = None


class Document(NamedTuple):
    """Something that can be found, as it is indexed.

    `row` is the position of an entry; the number of a stream, negative, where it is the title the
    stream was created with (`entry` is None then).
    """

    row: int
    namespace: int
    stream: int
    stream_id: StreamId
    at: int
    entry: Entry | None
    what: Searchable


def mark_of(tables: Tables, namespace: int) -> Mark:
    """The mark; that of an empty index when it was built by rules of another version."""
    mark = kept_mark(tables, namespace)
    return mark if mark.version == VERSION else Mark(VERSION, 0, 0, 0, mark.forgotten)


def kept_mark(tables: Tables, namespace: int) -> Mark:
    """The mark as it is kept; of version 0 where nothing was indexed yet."""
    row = tables.row(_MARK, namespace)
    return Mark(0, 0, 0, 0, 0) if row is None else Mark(*row)


def progress(tables: Tables, namespace: int) -> Progress:
    """How far the index of the namespace is behind the log."""
    mark, (entry, stream) = mark_of(tables, namespace), _newest(tables, namespace)
    behind = int(tables.value(_BEHIND, namespace, mark.entry, entry))
    behind += int(tables.value(_STREAMS_BEHIND, namespace, mark.stream))
    return Progress(behind, entry, stream, loose_count(tables, namespace)[0])


def texts(tables: Tables, namespace: str) -> int:
    """How many texts of the namespace are indexed."""
    return int(tables.value(_TEXTS, number_of_namespace(tables, namespace)))


def number_of_namespace(tables: Tables, namespace: str) -> int | None:
    """The number of a namespace; None while nothing was written in it."""
    return tables.value("SELECT no FROM namespace WHERE name = ?", namespace)


def _newest(tables: Tables, namespace: int) -> tuple[int, int]:
    entry, stream = tables.row(_NEWEST, namespace) or (0, 0)
    return entry, stream


# ---------------------------------------------------------------- a step


def next_step(tables: Tables, namespace: int, upto: Progress) -> Step:
    """What stands next behind the mark; once that is at `upto`, loose texts that make a part.

    Raises: SearchIndexDamaged.
    """
    before = mark_of(tables, namespace)
    is_there = before.entry >= upto.entry and before.stream >= upto.stream
    if is_there and kept_mark(tables, namespace).version == VERSION:
        return _step_of_loose(tables, namespace, before)
    newest, newest_stream = _newest(tables, namespace)
    stream = _some_streams(tables, namespace, before.stream, newest_stream)
    batch = [text_of(each) for each in titles(tables, namespace, before.stream, stream)]
    size = sum(len(text.words) for text in batch)
    more, entry = _batch(tables, namespace, (before.entry, newest), size)
    return Step(before, [*batch, *more], entry, stream, is_of_loose=False, is_last=False)


def _some_streams(tables: Tables, namespace: int, after: int, newest: int) -> int:
    """The number of the last of the next `BATCH_ROWS` streams; `newest` where there are fewer."""
    row = tables.row(_STREAM_FAR, namespace, after, sizes.BATCH_ROWS - 1)
    return max(after, newest if row is None else int(row[0]))


def _step_of_loose(tables: Tables, namespace: int, before: Mark) -> Step:
    count, words = loose_count(tables, namespace)
    found: list[Text] = []
    if sizes.is_enough(count, min(words, MOST_WORDS)):
        try:
            found = loose_texts(tables, namespace, sizes.BATCH_ROWS)
        except DAMAGE as error:
            raise damage_error(tables) from error
    is_last = len(found) == count or not found
    return Step(before, found, before.entry, before.stream, is_of_loose=True, is_last=is_last)


def build_part(step: Step) -> Step:
    """`step` with its part, if its texts make one. Takes some tenths of a second."""
    if not sizes.is_enough(len(step.texts), sum(len(text.words) for text in step.texts)):
        return step
    return step._replace(part=make_part(step.texts))


def put_in(tables: Tables, namespace: int, step: Step) -> bool:
    """Do `step`, on the writer's thread; whether that was the last one.

    Raises: SearchIndexDamaged.
    """
    try:
        if mark_of(tables, namespace) != step.before:  # another was first: read the next anew
            return False
        if kept_mark(tables, namespace).version != VERSION:
            clear_tables(tables, namespace)
        parts = step.before.parts
        if step.is_of_loose:
            remove_loose(tables, namespace, (text.position for text in step.texts))
        if step.part is not None:
            parts += 1
            add_part(tables, namespace, step.part)
        else:
            add_loose(tables, namespace, step.texts)
        tables.run(_SET_MARK, (namespace, VERSION, step.entry, step.stream, parts))
    except apsw.ConstraintError as error:
        raise damage_error(tables) from error
    return step.is_last


def _batch(
    tables: Tables, namespace: int, between: tuple[int, int], size: int
) -> tuple[list[Text], int]:
    """The next texts, `MOST_WORDS` at most with the `size` words there are, and their end.

    `between` are the positions behind which and up to which they are.
    """
    after, newest = between
    sql = _ENTRIES + "ORDER BY a.first, e.n LIMIT ?4"
    rows = _rows(tables, sql, namespace, after, newest, sizes.BATCH_ROWS)
    batch: list[Text] = []
    read, last = 0, after
    for count, row in enumerate(rows, 1):
        document = _of_entry(tables, row)
        text = None if document is None else text_of(document)
        size += 0 if text is None else len(text.words)
        if batch and size > MOST_WORDS:
            return batch, last
        if text is not None:
            batch.append(text)
        last, read = row[0], read + len(row[-1])
        if count == sizes.BATCH_ROWS or read > sizes.BATCH_BYTES:
            return batch, last
    return batch, max(after, newest)


def clear(tables: Tables, namespace: int) -> None:
    """Empty the index, also a damaged one: the next search builds it anew."""
    clear_tables(tables, namespace)
    tables.run(_SET_MARK, (namespace, VERSION, 0, 0, 0))
    tables.run(_HAS_FORGOTTEN, (namespace,))


def forget(tables: Tables, namespace: int, documents: Iterable[Document]) -> None:
    """Take `documents` of a namespace out of its index, with every byte of their words.

    They are to be read before the log loses them, with `entries_of` and `titles`. An index by other
    rules is emptied, and so is a damaged one, since it will be made anew.
    """
    rows = [each.row for each in documents]
    if kept_mark(tables, namespace).version != VERSION or not forget_texts(tables, namespace, rows):
        clear(tables, namespace)
    elif rows:
        tables.run(_HAS_FORGOTTEN, (namespace,))


# ---------------------------------------------------------------- documents


def entries(tables: Tables, namespace: int, after: int, upto: int = NO_END) -> Iterator[Document]:
    """The entries at the positions behind `after` that can be found."""
    return _documents(tables, _rows(tables, _ENTRIES, namespace, after, upto))


def entries_of(
    tables: Tables, namespace: int, stream: int, seqs: tuple[int, int]
) -> Iterator[Document]:
    """Those of the stream number `stream`, from the first of `seqs` to the last."""
    return _documents(tables, _rows(tables, _ENTRIES_OF, namespace, stream, *seqs).fetchall())


def missing(tables: Tables, namespace: int, upto: int) -> Iterator[Document]:
    """The entries up to the position `upto` that can be found, and are not in the index."""
    sql = f"{_ENTRIES} AND {_IS_MISSING} ORDER BY a.first, e.n"
    return _documents(tables, _rows(tables, sql, namespace, 0, upto).fetchall())


def missing_titles(tables: Tables, namespace: int, upto: int) -> Iterator[Document]:
    """The titles of streams up to the number `upto` that are not in the index."""
    for title in list(titles(tables, namespace, 0, upto)):
        if not tables.value(_HAS_TITLE, namespace, title.row):
            yield title


def document_at(tables: Tables, namespace: int, row: int) -> Document | None:
    """What is indexed as `row`; None when the namespace has no such thing."""
    if row < 0:
        return next(iter(list(titles(tables, namespace, -row - 1, -row))), None)
    found = _rows(tables, _ENTRY_AT, namespace, row).fetchall()
    return next(_documents(tables, found), None)


def _rows(tables: Tables, sql: str, *values: int) -> Cursor:
    kinds = [number for kind in KINDS if (number := tables.kind_number(kind)) is not None]
    return tables.db.execute(sql.replace("{kinds}", ", ".join(map(str, kinds))), values)


def _documents(tables: Tables, rows: Iterable[Row]) -> Iterator[Document]:
    return (found for row in rows if (found := _of_entry(tables, row)) is not None)


def _of_entry(tables: Tables, row: Row) -> Document | None:
    stream = tables.stream_id(row[2])
    entry = tables.entry(stream, row[3:])
    what = searchable_of(entry)
    if what is None:
        return None
    return Document(row[0], row[1], row[2], stream, entry.at, entry, what)


def titles(tables: Tables, namespace: int, after: int, upto: int = NO_END) -> Iterator[Document]:
    """The titles that streams with numbers behind `after` were created with."""
    for number, owner, stream, at, header in tables.rows(_TITLES, namespace, after, upto):
        try:
            what = searchable_title(_header.decode(header))
        except msgspec.MsgspecError as error:
            raise apsw.CorruptError(f"the header of session {stream} is damaged") from error
        if what is not None:
            yield Document(-number, owner, number, StreamId(stream), at, None, what)


# ---------------------------------------------------------------- what stands for the filters


def text_of(document: Document) -> Text:
    """`document` as it is indexed."""
    filters = [
        stream_key(document.stream),
        role_key(document.what.role),
        *map(tool_key, document.what.tools),
    ]
    return Text(document.row, document.at, terms(document.what.text), filters)


def stream_key(number: int) -> str:
    """What stands for a stream."""
    return f"{FILTER}s{number}"


def damage_error(tables: Tables) -> SearchIndexDamaged:
    """The index does not hold together; the log beside it goes on being written."""
    return SearchIndexDamaged(tables.value("SELECT file FROM pragma_database_list LIMIT 1"))
