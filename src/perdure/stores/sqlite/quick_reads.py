"""Reads of a plain store file for shell completion, which must not open the store.

Shell completion runs at each key press. Opening a store needs threads, an event loop and keys, and
costs three times the CPU time of this module. This module creates no file, waits for no lock and
repairs nothing. If anything about the file is unusual, the caller must open the store instead.
`SqliteStore`, the class of an open store, also inherits its read methods from `FileReader`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

import apsw

from perdure.errors import PerdureError
from perdure.stores.access.sqlite_connection import Connection, hardened
from perdure.stores.sqlite import reads
from perdure.stores.sqlite.log import lists
from perdure.stores.sqlite.migrate import APPLICATION_ID, latest_version
from perdure.stores.sqlite.rows import Tables, namespace_no
from perdure.stores.sqlite.schema import check_schema

if TYPE_CHECKING:
    from types import CoroutineType

    from perdure.stores.marks import Marks

_READ_ONLY = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI

P = ParamSpec("P")
T = TypeVar("T")


class Handle(Protocol):
    """An object that runs read functions."""

    async def read(
        self, read: Callable[Concatenate[Tables, str, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `read` with the tables and the namespace."""
        ...


H = TypeVar("H", bound=Handle)


def reading(
    read: Callable[Concatenate[Tables, str, P], T],
) -> Callable[Concatenate[FileReader[Any], P], CoroutineType[Any, Any, T]]:
    """Return a method of `FileReader` that passes `read` to ``self.handle.read``."""

    async def method(self: FileReader[Handle], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.handle.read(read, *args, **kwargs)

    return method  # pyrefly: ignore[bad-return] # every `async def` returns one


class FileReader(Generic[H]):
    """Read methods of a store that need no key and no clock."""

    def __init__(self, handle: H) -> None:
        self.handle = handle

    state = reading(reads.state)
    entries = reading(reads.entries)
    tail = reading(reads.tail)
    entry = reading(reads.entry)
    visible_ids = reading(reads.visible_ids)
    branch = reading(reads.branch)
    newest = reading(reads.newest)
    context_window = reading(reads.context_window)
    around = reading(reads.around)
    tree = reading(reads.tree)
    notes = reading(reads.notes)
    open_questions = reading(reads.open_questions)
    partial = reading(reads.partial)
    resolve = reading(reads.resolve)
    resolved = reading(reads.resolved)
    find_entry = reading(reads.find_entry)
    aliases = reading(reads.aliases)
    find = reading(reads.find)
    entries_named = reading(reads.entries_named)
    sessions = reading(lists.sessions)
    idle_sessions = reading(reads.idle_sessions)
    open_of_all = reading(reads.open_of_all)
    notes_of_all = reading(reads.notes_of_all)
    feed = reading(reads.feed)
    position = reading(reads.position)
    blob = reading(reads.blob)


class QuickReads(FileReader["QuickReads"]):
    """The `LogReader` of one namespace in one read transaction; no method waits."""

    def __init__(self, tables: Tables, namespace: str, marks: Marks | None = None) -> None:
        super().__init__(self)
        self.tables = tables
        self.namespace = namespace
        self.marks = marks

    async def read(
        self, read: Callable[Concatenate[Tables, str, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `read` in the calling thread."""
        return read(self.tables, self.namespace, *args, **kwargs)


def read_quickly(
    path: Path, namespace: str, look: Callable[[QuickReads], Coroutine[Any, None, T]]
) -> T | None:
    """Return the result of `look`, which can await only methods of its `QuickReads`.

    Returns None if the file is missing, encrypted, locked, damaged or of another version. Also
    returns None if an erasure is unfinished, if the namespace is missing, or if `look` raised an
    error of perdure. After None, the caller has to open the store for the answer.
    """
    address = _read_only_address(path)
    if address is None:
        return None
    try:
        with closing(hardened(address, _READ_ONLY)) as db:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            tables = _readable_tables(db, path, namespace)
            return None if tables is None else _result(look(QuickReads(tables, namespace)))
    except (apsw.Error, PerdureError):
        return None


def _read_only_address(path: Path) -> str | None:
    """Return a URI with which SQLite reads the file and writes nothing.

    None means that SQLite cannot read the file at the moment without writing.
    """
    if not path.is_file():
        return None
    file = path.resolve()  # SQLite writes the logs beside the file, not beside a link to it
    has_log, has_index, has_journal = (
        file.with_name(file.name + end).exists() for end in ("-wal", "-shm", "-journal")
    )
    if has_journal or (has_log and not has_index):
        return None  # maintenance writes the file now; or a killed process left it unfinished
    # Without a log and a journal no process writes the file: a store that is open has a log, and
    # maintenance that has the file alone writes a journal first.
    return file.as_uri() + ("?readonly_shm=1" if has_log else "?immutable=1")


def _readable_tables(db: Connection, path: Path, namespace: str) -> Tables | None:
    """Begin a read transaction; None if the store has to be opened."""
    if db.pragma("application_id") != APPLICATION_ID or check_schema(db, path) != latest_version():
        return None
    tables = Tables(db)
    tables.run("BEGIN")
    if namespace_no(tables, namespace) is None:
        return None
    if reads.has_open_erasures(tables):
        return None
    return tables


def _result(coroutine: Coroutine[Any, None, T]) -> T:
    """Run `coroutine`, which never waits, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    coroutine.close()
    raise RuntimeError("a quick read waited")
