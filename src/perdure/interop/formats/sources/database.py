"""Read tables of another program's SQLite file, which is not trusted and never changed.

Invariant: every query has a limit for its work and for the size of a value. Views, virtual tables
and generated columns could run code, so this module does not read them. Binary values, and text
that is not valid UTF-8, are returned as base64, so every value can be written as JSON.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from perdure.bounds.limits import limits
from perdure.errors import FormatError, LimitExceeded
from perdure.stores.access.sqlite_connection import Connection, hardened
from perdure.stores.regular_files import NotRegular, status_of

MAGIC = b"SQLite format 3\x00"
"""The first bytes of an SQLite file."""

_BESIDE = ("-wal", "-shm", "-journal")
_STEPS = 20_000
_MOST_STEPS = 500_000_000
"""Limit of the SQLite instructions for one file. Reading a row needs about ten instructions."""
_TABLES = """
SELECT CAST(name AS BLOB) FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 LIMIT 200
"""
_WAIT_MS = 2_000

Row = dict[str, object]
"""Maps column names to the values of a row."""


class Database:
    """An SQLite file that is open for reading.

    Raises: FormatError if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._steps = 0
        with self._failures():
            self._db = _open(path)
        try:
            with self._failures():
                self._db.set_progress_handler(self._is_too_much, _STEPS)
                self._db.execute("BEGIN")  # all reads see the same commit
                self._columns = self._read_columns()
        except BaseException:
            self.close()
            raise

    def has(self, needed: Mapping[str, Sequence[str]]) -> bool:
        """Return whether each table in `needed` exists and has at least the given columns."""
        return all(
            set(columns) <= set(self._columns.get(table, ())) for table, columns in needed.items()
        )

    def rows(
        self,
        table: str,
        where: str = "1",
        values: Sequence[object] = (),
        order: str = "rowid",
        columns: Sequence[str] | None = None,
    ) -> Iterator[Row]:
        """Yield the rows of `table`, by default with all columns.

        `where` and `order` are SQL text from perdure's own code.
        Raises: FormatError if the rows cannot be read. Raises LimitExceeded if a value is too
        large.
        """
        columns = self._columns[table] if columns is None else columns
        wanted = ", ".join(f"typeof({name}), {_bytes_of(name)}" for name in map(_quoted, columns))
        query = f"SELECT {wanted} FROM {_quoted(table)} WHERE {where} ORDER BY {order}"  # noqa: S608 - the names are quoted, the rest is ours
        with self._failures():
            for row in self._db.execute(query, values):
                pairs = zip(columns, row[::2], row[1::2], strict=True)
                yield {name: _value(kind, value) for name, kind, value in pairs}

    def close(self) -> None:
        """Close the file."""
        self._db.close(force=True)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_columns(self) -> Mapping[str, tuple[str, ...]]:
        names = [bytes(row[0]).decode(errors="replace") for row in self._db.execute(_TABLES)]
        found: dict[str, tuple[str, ...]] = {}
        for name in names:
            columns = self._db.execute(
                "SELECT CAST(name AS BLOB), hidden FROM pragma_table_xinfo(?)", (name,)
            ).fetchall()
            if columns and not any(hidden for _, hidden in columns):
                found[name] = tuple(bytes(each).decode(errors="replace") for each, _ in columns)
        return found

    def _is_too_much(self) -> bool:
        self._steps += _STEPS
        return self._steps > _MOST_STEPS

    @contextmanager
    def _failures(self) -> Generator[None]:
        try:
            yield
        except apsw.TooBigError as error:
            raise LimitExceeded(
                f"a value in {self.name}", "import_line_bytes", limits().import_line_bytes
            ) from error
        except apsw.InterruptError as error:
            raise FormatError(self.name, "reading it takes too much") from error
        except apsw.BusyError as error:
            reason = "another program writes to it at the moment; import it again"
            raise FormatError(self.name, reason) from error
        except (apsw.Error, UnicodeError) as error:
            raise FormatError(self.name, f"SQLite cannot read it ({error})") from error
        except OSError as error:
            reason = str(error) if isinstance(error, NotRegular) else error.strerror
            raise FormatError(self.name, f"it cannot be read ({reason})") from error


def _open(path: Path) -> Connection:
    """Open the file at `path` without creating another file in its folder."""
    beside = [path.with_name(path.name + end) for end in _BESIDE]
    sizes = [status_of(each).st_size for each in beside if each.exists() or each.is_symlink()]
    # Without a log there is nothing to lock for, and nothing is created in the program's folder.
    options = "mode=ro" if any(sizes) else "mode=ro&immutable=1"
    address = f"file:{quote(str(path.absolute()))}?{options}"
    db = hardened(address, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    db.limit(apsw.SQLITE_LIMIT_LENGTH, min(limits().import_line_bytes, 1_000_000_000))
    db.pragma("busy_timeout", _WAIT_MS)
    return db


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _bytes_of(name: str) -> str:
    return f"CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END"


def _value(kind: object, value: object) -> object:
    if not isinstance(value, bytes):
        return value
    if kind == "text":
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return {"base64": b64encode(value).decode()}
