"""The index of the words of all entries, and how it follows the log.

``search_mark`` says up to where the log is indexed. It moves with the index in one transaction, so
whoever is killed, or indexes at the same time, leaves the index as whole as it was. Nothing is
indexed while a turn is appended: measured, it would cost 1.3 ms a turn where the log itself costs
0.2. A search first moves the mark, in transactions so small that writers do not notice, and reads
what then is behind it.

The index knows only numbers and words (`Document`); texts are read from the log. Whoever takes an
entry out of the log first takes it out of here (`forget`), or its words stay.
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
from perdure.session.search.searchable import (
    KINDS,
    Searchable,
    searchable_of,
    searchable_title,
)
from perdure.session.search.words import VERSION, spaced
from perdure.stores.sqlite.rows import Cursor, Row, Tables

SCANNED = 48
"""So few entries behind the mark are read by the search itself rather than indexed first."""

BATCH_ROWS = 128
BATCH_CHARACTERS = 256_000
"""What one transaction indexes at most: a text that is longer is indexed alone."""

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

NO_END = 2**62
"""Behind every position and every number."""

_INSERT = "INSERT INTO search (rowid, text, place) VALUES (?, ?, ?)"
_INSERT_TIME = "INSERT INTO search_time VALUES (?, ?)"
_DELETE = "INSERT INTO search (search, rowid, text, place) VALUES ('delete', ?, ?, ?)"
_DELETE_TIME = "DELETE FROM search_time WHERE n = ?"
_SET_MARK = "UPDATE search_mark SET version = ?, entry = ?, stream = ?"

_header = msgspec.json.Decoder(StreamHeader)


class Mark(NamedTuple):
    """Up to where the log is indexed: a position and the number of a stream; and by which rules."""

    version: int
    entry: int
    stream: int


class Progress(NamedTuple):
    """How much of the log is not indexed yet, and the mark that would change that."""

    behind: int
    newest: Mark

    def is_reached(self, mark: Mark) -> bool:
        """Everything that was in the log then is indexed at `mark`."""
        return mark.entry >= self.newest.entry and mark.stream >= self.newest.stream


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
    row = tables.row("SELECT version, entry, stream FROM search_mark")
    if row is None:
        raise apsw.CorruptError("the search index has no mark")
    mark = Mark(*row)
    return mark if mark.version == VERSION else Mark(VERSION, 0, 0)


def progress(tables: Tables, _namespace: str) -> Progress:
    """How far the index is behind the log, of all namespaces."""
    mark, newest = mark_of(tables), _newest(tables)
    return Progress(newest.entry - mark.entry + newest.stream - mark.stream, newest)


def texts(tables: Tables, _namespace: str) -> int:
    """How many texts are indexed, of all namespaces."""
    return int(tables.value("SELECT count(*) FROM search_time"))


def _newest(tables: Tables) -> Mark:
    return Mark(VERSION, *(tables.row(_NEWEST) or (0, 0)))


# ---------------------------------------------------------------- writing (on the writer's thread)


def index_some(tables: Tables) -> Mark:
    """Index what stands next behind the mark; where the mark is now.

    Raises: SearchIndexDamaged.
    """
    try:
        if tables.value("SELECT version FROM search_mark") != VERSION:
            clear(tables)
        mark, newest = mark_of(tables), _newest(tables)
        stream = min(newest.stream, mark.stream + BATCH_ROWS)
        _add(tables, titles(tables, mark.stream, stream))
        batch, entry = _batch(tables, mark.entry, newest.entry)
        _add(tables, batch)
        tables.run(_SET_MARK, (VERSION, entry, stream))
    except apsw.CorruptError as error:
        raise damaged(tables, error) from error
    return Mark(VERSION, entry, stream)


def _batch(tables: Tables, after: int, newest: int) -> tuple[list[Document], int]:
    """The next documents, and the position up to which there are no others."""
    rows = _rows(tables, "ORDER BY e.n LIMIT ?", after, newest, BATCH_ROWS).fetchall()
    batch: list[Document] = []
    size = 0
    for row in rows:
        document = _of_entry(tables, row)
        size += 0 if document is None else len(document.what.text)
        if batch and size > BATCH_CHARACTERS:
            return batch, row[0] - 1
        if document is not None:
            batch.append(document)
    return batch, newest if len(rows) < BATCH_ROWS else rows[-1][0]


def clear(tables: Tables) -> None:
    """Empty the index, also a damaged one: the next search builds it anew."""
    tables.run("INSERT INTO search (search) VALUES ('delete-all')")
    tables.run("DELETE FROM search_time")
    tables.run(_SET_MARK, (VERSION, 0, 0))


def forget(tables: Tables, documents: Iterable[Document]) -> None:
    """Take `documents` out of the index, with every byte of their words.

    They are to be read before the log loses them, with `entries_of` and `titles`; those behind the
    mark are not in the index yet. An index by other rules is emptied, since it will be made anew.
    """
    if tables.value("SELECT version FROM search_mark") != VERSION:
        clear(tables)
    mark = mark_of(tables)
    for each in documents:
        if each.row <= mark.entry and -each.row <= mark.stream:
            tables.run(_DELETE, (each.row, *_columns(each)))
            tables.run(_DELETE_TIME, (each.row,))


def _add(tables: Tables, documents: Iterable[Document]) -> None:
    for each in documents:
        tables.run(_INSERT, (each.row, *_columns(each)))
        tables.run(_INSERT_TIME, (each.row, each.at))


def _columns(document: Document) -> tuple[str, str]:
    return spaced(document.what.text), " ".join(places_of(document))


# ---------------------------------------------------------------- documents


def entries(tables: Tables, after: int, upto: int = NO_END) -> Iterator[Document]:
    """The entries at the positions behind `after` that can be found."""
    return _documents(tables, _rows(tables, "", after, upto))


def entries_of(tables: Tables, stream: int, first: int, last: int) -> Iterator[Document]:
    """Those of the stream number `stream`, from seq `first` to seq `last`."""
    rest = "AND e.stream = ? AND e.seq BETWEEN ? AND ?"
    return _documents(tables, _rows(tables, rest, 0, NO_END, stream, first, last).fetchall())


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


def places_of(document: Document) -> list[str]:
    """The words in the column ``place``: what the filters of a query ask for."""
    return [
        namespace_word(document.namespace),
        stream_word(document.stream),
        role_word(document.what.role),
        *map(tool_word, document.what.tools),
    ]


def namespace_word(number: int) -> str:
    """What stands for a namespace."""
    return f"n{number}"


def stream_word(number: int) -> str:
    """What stands for a stream."""
    return f"s{number}"


def role_word(role: str) -> str:
    """What stands for a role."""
    return f"r{role}"


def tool_word(tool: str) -> str:
    """What stands for the name of a tool."""
    return f"t{tool.encode(errors='surrogatepass').hex()}"


def damaged(tables: Tables, error: apsw.Error) -> SearchIndexDamaged | apsw.Error:
    """What `error` means: where only the index is damaged, the log goes on being written."""
    if getattr(error, "extendedresult", 0) != apsw.SQLITE_CORRUPT_VTAB:
        return error
    return SearchIndexDamaged(tables.value("SELECT file FROM pragma_database_list LIMIT 1"))
