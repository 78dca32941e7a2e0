"""The index of the words of all entries, and how it follows the log.

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
from perdure.session.search.parts import batching
from perdure.session.search.parts.building import Part, Text, built
from perdure.session.search.parts.codes import MOST_WORDS
from perdure.session.search.parts.pages import DAMAGE, FILTER, role_key, tool_key
from perdure.session.search.searchable import (
    KINDS,
    Searchable,
    searchable_of,
    searchable_title,
)
from perdure.session.search.words import VERSION, terms
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

_ENTRIES = """
SELECT e.n, s.namespace, e.stream, e.seq, e.run, e.ref, e.at, e.kind, e.v, e.body
FROM entry AS e CROSS JOIN stream AS s ON s.no = e.stream
WHERE e.n > ? AND e.n <= ? AND e.kind IN ({kinds}) AND s.kind = 'session'
"""

_TITLES = """
SELECT s.no, s.namespace, s.id, s.created_at, b.header
FROM stream AS s JOIN birth AS b ON b.stream = s.no
WHERE s.no > ? AND s.no <= ? AND s.kind = 'session' ORDER BY s.no
"""

_NEWEST = """
SELECT (SELECT coalesce(max(n), 0) FROM entry), (SELECT coalesce(max(no), 0) FROM stream)
"""

_IS_MISSING = """
NOT EXISTS (SELECT 1 FROM search_text AS t WHERE t.n = e.n)
AND NOT EXISTS (SELECT 1 FROM search_loose AS t WHERE t.n = e.n)
"""

_TITLES_IN_INDEX = """
SELECT n FROM search_text WHERE n < 0 UNION ALL SELECT n FROM search_loose WHERE n < 0
"""

NO_END = 2**62
"""Behind every position and every number."""

_MARK = "SELECT version, entry, stream, parts, forgotten FROM search_mark"
_SET_MARK = "UPDATE search_mark SET version = ?, entry = ?, stream = ?, parts = ?"
_HAS_FORGOTTEN = "UPDATE search_mark SET forgotten = forgotten + 1"

_TEXTS = "SELECT (SELECT count(*) FROM search_text) + (SELECT count(*) FROM search_loose)"

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
        return batching.is_due(self.behind, self.loose)


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


def mark_of(tables: Tables) -> Mark:
    """The mark; that of an empty index when it was built by rules of another version."""
    mark = _kept_mark(tables)
    return mark if mark.version == VERSION else Mark(VERSION, 0, 0, 0, mark.forgotten)


def _kept_mark(tables: Tables) -> Mark:
    row = tables.row(_MARK)
    if row is None:
        raise apsw.CorruptError("the search index has no mark")
    return Mark(*row)


def progress(tables: Tables) -> Progress:
    """How far the index is behind the log, of all namespaces."""
    mark, (entry, stream) = mark_of(tables), _newest(tables)
    behind = entry - mark.entry + stream - mark.stream
    return Progress(behind, entry, stream, loose_count(tables)[0])


def texts(tables: Tables, _namespace: str) -> int:
    """How many texts are indexed, of all namespaces."""
    return int(tables.value(_TEXTS))


def _newest(tables: Tables) -> tuple[int, int]:
    entry, stream = tables.row(_NEWEST) or (0, 0)
    return entry, stream


# ---------------------------------------------------------------- a step


def next_step(tables: Tables, upto: Progress) -> Step:
    """What stands next behind the mark; once that is at `upto`, loose texts that make a part.

    Raises: SearchIndexDamaged.
    """
    before = mark_of(tables)
    is_there = before.entry >= upto.entry and before.stream >= upto.stream
    if is_there and _kept_mark(tables).version == VERSION:
        return _step_of_loose(tables, before)
    newest, newest_stream = _newest(tables)
    stream = max(before.stream, min(newest_stream, before.stream + batching.BATCH_ROWS))
    batch = [text_of(each) for each in titles(tables, before.stream, stream)]
    more, entry = _batch(tables, before.entry, newest, sum(len(text.words) for text in batch))
    return Step(before, [*batch, *more], entry, stream, is_of_loose=False, is_last=False)


def _step_of_loose(tables: Tables, before: Mark) -> Step:
    count, words = loose_count(tables)
    found: list[Text] = []
    if batching.is_enough(count, min(words, MOST_WORDS)):
        try:
            found = loose_texts(tables, batching.BATCH_ROWS)
        except DAMAGE as error:
            raise damaged(tables) from error
    is_last = len(found) == count or not found
    return Step(before, found, before.entry, before.stream, is_of_loose=True, is_last=is_last)


def made(step: Step) -> Step:
    """`step` with its part, if its texts make one. Takes some tenths of a second."""
    if not batching.is_enough(len(step.texts), sum(len(text.words) for text in step.texts)):
        return step
    return step._replace(part=built(step.texts))


def put_in(tables: Tables, step: Step) -> bool:
    """Do `step`, on the writer's thread; whether that was the last one.

    Raises: SearchIndexDamaged.
    """
    try:
        if mark_of(tables) != step.before:  # somebody else was first; what is next is read anew
            return False
        if _kept_mark(tables).version != VERSION:
            clear_tables(tables)
        parts = step.before.parts
        if step.is_of_loose:
            remove_loose(tables, (text.position for text in step.texts))
        if step.part is not None:
            parts += 1
            add_part(tables, parts, step.part)
        else:
            add_loose(tables, step.texts)
        tables.run(_SET_MARK, (VERSION, step.entry, step.stream, parts))
    except apsw.ConstraintError as error:
        raise damaged(tables) from error
    return step.is_last


def _batch(tables: Tables, after: int, newest: int, size: int) -> tuple[list[Text], int]:
    """The next texts, `MOST_WORDS` at most with the `size` words there are, and their end."""
    rows = _rows(tables, "ORDER BY e.n LIMIT ?", after, newest, batching.BATCH_ROWS)
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
        if count == batching.BATCH_ROWS or read > batching.BATCH_BYTES:
            return batch, last
    return batch, max(after, newest)


def clear(tables: Tables) -> None:
    """Empty the index, also a damaged one: the next search builds it anew."""
    clear_tables(tables)
    tables.run(_HAS_FORGOTTEN)
    tables.run(_SET_MARK, (VERSION, 0, 0, 0))


def forget(tables: Tables, documents: Iterable[Document]) -> None:
    """Take `documents` out of the index, with every byte of their words.

    They are to be read before the log loses them, with `entries_of` and `titles`. An index by other
    rules is emptied, and so is a damaged one, since it will be made anew.
    """
    rows = [each.row for each in documents]
    if _kept_mark(tables).version != VERSION or not forget_texts(tables, rows):
        clear(tables)
    elif rows:
        tables.run(_HAS_FORGOTTEN)


# ---------------------------------------------------------------- documents


def entries(tables: Tables, after: int, upto: int = NO_END) -> Iterator[Document]:
    """The entries at the positions behind `after` that can be found."""
    return _documents(tables, _rows(tables, "", after, upto))


def entries_of(tables: Tables, stream: int, first: int, last: int) -> Iterator[Document]:
    """Those of the stream number `stream`, from seq `first` to seq `last`."""
    rest = "AND e.stream = ? AND e.seq BETWEEN ? AND ?"
    return _documents(tables, _rows(tables, rest, 0, NO_END, stream, first, last).fetchall())


def missing(tables: Tables, upto: int) -> Iterator[Document]:
    """The entries up to the position `upto` that can be found, and are not in the index."""
    rest = f"AND {_IS_MISSING} ORDER BY e.n"
    return _documents(tables, _rows(tables, rest, 0, upto).fetchall())


def missing_titles(tables: Tables, upto: int) -> Iterator[Document]:
    """The titles of streams up to the number `upto` that are not in the index."""
    kept = {row[0] for row in tables.rows(_TITLES_IN_INDEX)}
    return (title for title in titles(tables, 0, upto) if title.row not in kept)


def document_at(tables: Tables, row: int) -> Document | None:
    """What is indexed as `row`; None when the log has no such thing."""
    if row < 0:
        return next(iter(list(titles(tables, -row - 1, -row))), None)
    return next(iter(list(entries(tables, row - 1, row))), None)


def _rows(tables: Tables, rest: str, *values: int) -> Cursor:
    kinds = [number for kind in KINDS if (number := tables.kind_number(kind)) is not None]
    return tables.db.execute(_ENTRIES.format(kinds=", ".join(map(str, kinds))) + rest, values)


def _documents(tables: Tables, rows: Iterable[Row]) -> Iterator[Document]:
    return (found for row in rows if (found := _of_entry(tables, row)) is not None)


def _of_entry(tables: Tables, row: Row) -> Document | None:
    stream = tables.stream_id(row[2])
    entry = tables.entry(stream, row[3:])
    what = searchable_of(entry)
    if what is None:
        return None
    return Document(row[0], row[1], row[2], stream, entry.at, entry, what)


def titles(tables: Tables, after: int, upto: int = NO_END) -> Iterator[Document]:
    """The titles that streams with numbers behind `after` were created with."""
    for number, namespace, stream, at, header in tables.rows(_TITLES, after, upto):
        try:
            what = searchable_title(_header.decode(header))
        except msgspec.MsgspecError as error:
            raise apsw.CorruptError(f"the header of session {stream} is damaged") from error
        if what is not None:
            yield Document(-number, namespace, number, StreamId(stream), at, None, what)


# ---------------------------------------------------------------- what stands for the filters


def text_of(document: Document) -> Text:
    """`document` as it is indexed."""
    filters = [
        namespace_key(document.namespace),
        stream_key(document.stream),
        role_key(document.what.role),
        *map(tool_key, document.what.tools),
    ]
    return Text(document.row, document.at, terms(document.what.text), filters)


def namespace_key(number: int) -> str:
    """What stands for a namespace."""
    return f"{FILTER}n{number}"


def stream_key(number: int) -> str:
    """What stands for a stream."""
    return f"{FILTER}s{number}"


def damaged(tables: Tables) -> SearchIndexDamaged:
    """The index does not hold together; the log beside it goes on being written."""
    return SearchIndexDamaged(tables.value("SELECT file FROM pragma_database_list LIMIT 1"))
