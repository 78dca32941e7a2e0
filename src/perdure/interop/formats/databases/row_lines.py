"""Convert the rows of a database to lines: each row becomes one JSON object.

A session in a database is read as a file with one line per row, and these lines are stored as the
copy of the file. The lines contain all data of the rows, and readers process files and databases in
the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from perdure.bounds.limits import require_within
from perdure.codecs.fields import Fields, name_in, object_in, text_in
from perdure.codecs.lines import read_line
from perdure.interop.formats.sources.content import Held
from perdure.interop.formats.sources.database import Database, Row

_encode = msgspec.json.Encoder().encode

Lines = Iterator[bytes]
"""The lines into which the rows of one session are converted, without LF."""


class DatabaseFormat(msgspec.Struct, frozen=True):
    """How a program stores its sessions in a database.

    `tables` are the tables and columns by which perdure recognizes the database. `file_names` are
    the possible names of the database file. `ids` yields the ids of the sessions, and `lines`
    yields the rows of one session as lines.
    """

    tables: Mapping[str, Sequence[str]]
    file_names: Sequence[str]
    ids: Callable[[Database], Iterator[str]]
    lines: Callable[[Database, str], Lines]


def row_line(format: str, table: str, row: Row) -> bytes:
    """Return the line that represents `row` of `table` in a database of `format`."""
    return _encode({"program": format, "table": table, "row": row})


def table_of(fields: Fields, format: str) -> str | None:
    """Return the name of the table if the line is a row of a `format` database; otherwise None."""
    if fields.get("program") != format or object_in(fields, "row") is None:
        return None
    return name_in(fields, "table")


def json_in(row: Fields, column: str) -> object:
    """Parse the text of `column` as JSON; return None if it is not JSON."""
    text = text_in(row, column)
    reading = None if text is None else read_line(text.encode())
    return reading.value if reading is not None and reading.is_json else None


def session_content(database: Database, format: DatabaseFormat, id: str) -> Held:
    """Return the rows of the session `id` as lines of a source file in memory.

    Raises: FormatError if the rows cannot be read. Raises LimitExceeded if there are too many rows.
    """
    name = f"{database.name} {id}"
    lines: list[bytes] = []
    size = 0
    for line in format.lines(database, id):
        size += len(line) + 1
        require_within("import_file_bytes", size, name)
        lines += (line, b"\n")
    return Held(b"".join(lines), name)
