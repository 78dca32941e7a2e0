"""Read every row of a damaged database file that is still readable, page by page.

The file is never read from its root page, because inner pages may be damaged. Each page is read as
a separate table, through SQLite, which decrypts and verifies encrypted pages. The columns of a row
identify its table; entries and contents are verified by their hashes. The salvage works on a copy
and never writes to the store.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

import apsw

from perdure.stores.access.sqlite_connection import Connection, Row
from perdure.stores.chain import HASH_BYTES, SALT_BYTES
from perdure.stores.key import StoreKey
from perdure.stores.sqlite.payload.cipher import unlock
from perdure.stores.sqlite.schema import PAGE_BYTES

AT_ONCE = 100
"""Number of pages that are read per transaction."""

_TABLE = "(a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,z)"
_INDEX = "(a,b,c,d,PRIMARY KEY(a,b,c,d))WITHOUT ROWID"
_SLOTS = """
SELECT rowid, name FROM sqlite_schema
WHERE type = 'table' AND rootpage > 0 AND length(sql) BETWEEN 90 AND 600
"""
_UNREADABLE = (apsw.Error, UnicodeDecodeError)
_MOST_CELLS = PAGE_BYTES // 6
"""Upper limit of rows on a page: the smallest row and its pointer take 6 bytes."""
_SEARCH_SETTINGS = frozenset({"secure-delete", "version"})
"""Names of FTS5 settings: their rows look like rows of an index of names, but are left out."""

_SLOT_COLUMNS = ", ".join(f"column_{number:02d}" for number in range(12))
_CHUNK_BYTES = 2**20
_FILLING_BYTES = 2**28
_MAGIC = b"SQLite format 3\0"
_PAGE_SIZES = frozenset(2**power for power in range(9, 17))


class Salvage:
    """The readable rows of a damaged file, by table.

    The ``migrations`` define the columns of the rows.
    Shape: a row that is in the file twice is included twice.
    """

    def __init__(self) -> None:
        self.names: list[Row] = []
        self.streams: list[Row] = []
        self.births: list[Row] = []
        self.entries: list[Row] = []
        self.commits: list[Row] = []
        self.aliases: list[Row] = []
        self.contents: list[Row] = []
        self.unreadable_pages = 0
        self.missing_bytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether no row was read.

        If no row of an encrypted store was read, the key is wrong or all pages are damaged.
        """
        found = (self.names, self.streams, self.births, self.entries, self.commits, self.contents)
        return not any(found)

    def take(self, rowid: int, row: Row) -> None:
        """Add a row, if it belongs to one of perdure's tables."""
        for is_one, width, kept in (
            (_is_entry, 14, self.entries),
            (_is_content, 6, self.contents),
            (_is_stream, 22, self.streams),
            (_is_birth, 8, self.births),
            (_is_commit, 5, self.commits),
            (_is_name, 2, self.names),
        ):
            if is_one(row):
                kept.append((rowid, *row[1:width]))
                return


def salvage_file(path: Path, key: StoreKey | None, folder: Path) -> Salvage:
    """Read all readable rows of the store at `path` from a copy in `folder`. The call blocks."""
    copy = folder / "damaged.db"
    copy_store(path, copy)
    _play_log(copy, key)
    missing_bytes = 0
    if key is None:
        missing_bytes = _missing_bytes(copy)
        _give_new_first_page(copy)
    else:
        _give_encrypted_first_page(copy, key)
    for name in ("-wal", "-shm", "-journal"):
        copy.with_name(copy.name + name).unlink(missing_ok=True)
    found = Salvage()
    found.missing_bytes = missing_bytes
    with closing(_connection(copy, key)) as db:
        _look_through(db, found)
    return found


def copy_store(path: Path, copy: Path) -> None:
    """Copy a database and its log, byte by byte.

    The call uses SQLite's file layer, because any other way to read the file would release this
    process's locks on the database.
    """
    for name in ("-wal", "-journal"):
        log = path.with_name(path.name + name)
        if log.exists():
            shutil.copyfile(log, copy.with_name(copy.name + name))
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    file = apsw.VFSFile("", str(path.resolve()), flags)
    try:
        size = file.xFileSize()
        with copy.open("xb") as target:
            for offset in range(0, size, _CHUNK_BYTES):
                target.write(file.xRead(min(_CHUNK_BYTES, size - offset), offset))
    finally:
        file.xClose()


def _connection(path: Path, key: StoreKey | None) -> Connection:
    flags = apsw.SQLITE_OPEN_READWRITE
    db = cast("Connection", apsw.Connection(str(path), flags=flags))
    db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    unlock(db, key)
    return db


def _play_log(copy: Path, key: StoreKey | None) -> None:
    """Replay the write-ahead log into the copy, as far as SQLite can."""
    db = _connection(copy, key)
    try:
        with suppress(apsw.Error):  # unreplayable commits are lost; the database itself is not
            db.pragma("wal_checkpoint", "TRUNCATE")
            db.pragma("journal_mode", "DELETE")
    finally:
        with suppress(apsw.Error):  # it tries again to replay the log
            db.close()


def _missing_bytes(copy: Path) -> int:
    """Return the number of missing bytes of the file, according to its first page."""
    with copy.open("rb") as file:
        head = file.read(100)
    # SQLite's own rule: the number of pages counts if it was written with the newest change.
    if len(head) < 100 or not head.startswith(_MAGIC) or head[24:28] != head[92:96]:
        return 0
    return max(0, int.from_bytes(head[28:32], "big") * _page_bytes(head) - copy.stat().st_size)


def _page_bytes(head: bytes) -> int:
    page = int.from_bytes(head[16:18], "big") if head.startswith(_MAGIC) else PAGE_BYTES
    page = 65_536 if page == 1 else page
    return page if page in _PAGE_SIZES else PAGE_BYTES


def _give_new_first_page(copy: Path) -> None:
    """Replace the first page of the unencrypted copy with that of a database without tables.

    The other pages can be read without their original first page.
    """
    size = copy.stat().st_size
    with copy.open("r+b") as file:
        page = _page_bytes(file.read(100))
        pages = -(-size // page)
        file.seek(0)
        file.write(_first_page(copy.parent, page, pages))
        file.truncate(pages * page)


def _first_page(folder: Path, page_bytes: int, pages: int) -> bytes:
    """Return the first page of a database with `pages` pages and no tables."""
    empty = folder / "empty.db"
    empty.unlink(missing_ok=True)
    db = cast("Connection", apsw.Connection(str(empty)))
    db.pragma("page_size", page_bytes)
    db.execute("CREATE TABLE t (x); DROP TABLE t")
    db.close()
    page = bytearray(empty.read_bytes()[:page_bytes])
    page[28:32] = pages.to_bytes(4, "big")
    page[32:40] = bytes(8)  # no free pages
    page[92:96] = page[24:28]  # the page count is up to date
    return bytes(page)


def _give_encrypted_first_page(copy: Path, key: StoreKey) -> None:
    """Write the first page of a new database with the same key to an encrypted copy.

    SQLite accepts the first page of another database, because each page is encrypted separately.
    The new first page states at least the page count of the copy, and contains two tables, whose
    schema rows `_slots` returns.
    """
    other = copy.parent / "other.db"
    other.unlink(missing_ok=True)
    left_bytes = copy.stat().st_size
    db = cast("Connection", apsw.Connection(str(other)))
    unlock(db, key)
    db.pragma("page_size", PAGE_BYTES)
    db.pragma("journal_mode", "OFF")
    db.pragma("synchronous", "OFF")
    for name in ("one", "another"):
        db.execute(f"CREATE TABLE {name} ({_SLOT_COLUMNS})")
    db.execute("CREATE TABLE filling (content)")
    while left_bytes > 0:
        some_bytes = min(left_bytes, _FILLING_BYTES)
        db.execute("INSERT INTO filling VALUES (zeroblob(?))", (some_bytes,))
        left_bytes -= some_bytes
    db.close()
    with other.open("rb") as source, copy.open("r+b") as target:
        target.write(source.read(PAGE_BYTES))
        target.truncate(-(-copy.stat().st_size // PAGE_BYTES) * PAGE_BYTES)
    other.unlink()


# ---------------------------------------------------------------- page by page


def _look_through(db: Connection, found: Salvage) -> None:
    slots = _slots(db)
    if slots:  # each page is a commit to the copy, which is removed afterwards
        db.pragma("journal_mode", "OFF")
        db.pragma("synchronous", "OFF")
    pages = int(db.pragma("page_count"))  # of the file, whatever its first page states
    at_once = 1 if slots else AT_ONCE  # a page that cannot be decrypted ends the reads
    for first in range(2, pages + 1, at_once):
        _look_at(db, range(first, min(first + at_once, pages + 1)), slots, found)


def _slots(db: Connection) -> list[Row]:
    """Return schema rows that can be rewritten, in case the schema could not be emptied.

    Because the rows are small, changing them allocates and frees no page, even in a damaged file.
    """
    db.pragma("writable_schema", "ON")
    with suppress(*_UNREADABLE):
        return list(db.execute(_SLOTS))
    return []


def _look_at(db: Connection, pages: Sequence[int], slots: list[Row], found: Salvage) -> None:
    """Read `pages`, each as a table and as an index.

    If there are `slots`, their schema rows are rewritten, and the change is committed to the copy.
    Without the commit to the copy, SQLite could read no row after a page that cannot be decrypted.
    If there are no `slots`, schema rows are added and finally rolled back.
    """
    free = iter(slots)
    db.pragma("writable_schema", "ON")
    db.execute("BEGIN")
    try:
        names = [
            (_pretend(db, page, _TABLE, free), _pretend(db, page, _INDEX, free)) for page in pages
        ]
        if slots:
            db.execute("COMMIT")
        db.pragma("writable_schema", "RESET")
        db.pragma("writable_schema", "ON")  # other schema rows may be invalid
        for table, index in names:
            is_table = _take_table(db, table, found)
            found.unreadable_pages += not (_take_index(db, index, found) or is_table)
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
        db.pragma("writable_schema", "RESET")


def _pretend(db: Connection, page: int, columns: str, free: Iterator[Row]) -> str:
    """Declare `page` as a table in the schema; return its name."""
    slot = next(free, None)
    if slot is None:
        name = f"p{page}{columns[-1]}"
        values = (name, name, page, f'CREATE TABLE "{name}"{columns}')
        db.execute("INSERT INTO sqlite_schema VALUES ('table', ?, ?, ?, ?)", values)
    else:
        name = str(slot[1])
        values = (page, f'CREATE TABLE "{name}"{columns}', slot[0])
        db.execute("UPDATE sqlite_schema SET rootpage = ?, sql = ? WHERE rowid = ?", values)
    return name


def _take_table(db: Connection, name: str, found: Salvage) -> bool:
    """Read the rows of a table leaf page; return False for any other page."""
    is_one = False
    for row in _rows(db, "rowid, *", name):
        is_one = True
        found.take(row[0], row[1:])
    return is_one


def _take_index(db: Connection, name: str, found: Salvage) -> bool:
    is_one = False
    for row in _rows(db, "a, b, c, d", name):
        is_one = True
        if _is_alias(row):
            found.aliases.append(row[:3])
        elif _is_index_of_names(row):
            found.names.append((row[1], row[0]))
    return is_one


def _rows(db: Connection, columns: str, name: str) -> Iterator[Row]:
    """Yield the readable rows of the page that is declared as the table `name`.

    If a row is unreadable, the rows after it are read one by one, by their position on the page.
    """
    select = f'SELECT {columns} FROM "{name}"'  # noqa: S608 - a name out of the schema
    count = 0
    try:
        for row in db.execute(select):
            count += 1
            yield row
    except _UNREADABLE:
        for place in range(count, _cells(db, name)):
            with suppress(*_UNREADABLE):
                yield from db.execute(f"{select} LIMIT 1 OFFSET ?", (place,))


def _cells(db: Connection, name: str) -> int:
    """Return the number of rows on the page `name` if it is a leaf page, else 0.

    The rows below an inner page are read when the leaf pages that contain these rows are read.
    """
    counting = f'SELECT count(*) FROM "{name}"'  # noqa: S608 - a name out of the schema
    try:
        count = int(db.execute(counting).fetchall()[0][0])
    except apsw.Error:
        return 0
    return count if count <= _MOST_CELLS else 0


# ---------------------------------------------------------------- kinds of rows


def _has(row: Row, *types: type | tuple[type, ...]) -> bool:
    """Whether the columns, except the first, have exactly the `types`."""
    count = len(types)
    has_all = all(isinstance(value, kind) for value, kind in zip(row[1:], types, strict=False))
    return has_all and all(value is None for value in row[count + 1 :]) and row[0] is None


_Or = (int, type(None))


def _is_entry(row: Row) -> bool:
    whole = (int, int, int, int, int, _Or, (int, str, type(None)), _Or, _Or, _Or)
    sealed = ((bytes, type(None)), bytes, bytes)
    if not _has(row, *whole, *sealed):
        return False
    salt, digest = row[11], row[12]
    return len(digest) == HASH_BYTES and (salt is None or len(salt) == SALT_BYTES)


def _is_content(row: Row) -> bool:
    if not _has(row, int, str, int, bytes, _Or):
        return False
    return str(row[2]).startswith("sha256-")


def _is_stream(row: Row) -> bool:
    text = (str, type(None))
    return _has(
        row,
        *(int, str, str, str, text, int, int, _Or, _Or, bytes, int, text, int, _Or, int),
        *(text, text, text, str, int, int),
    )


def _is_birth(row: Row) -> bool:
    return _has(row, bytes, bytes, int, _Or, _Or, _Or, _Or) and len(row[2]) == HASH_BYTES


def _is_commit(row: Row) -> bool:
    return _has(row, int, int, int, bytes) and len(row[4]) == HASH_BYTES


def _is_name(row: Row) -> bool:
    return _has(row, str)


def _is_index_of_names(row: Row) -> bool:
    if row[0] in _SEARCH_SETTINGS:
        return False
    return isinstance(row[0], str) and isinstance(row[1], int) and row[2] is row[3] is None


def _is_alias(row: Row) -> bool:
    stream, name, seq, rest = cast("tuple[Any, Any, Any, Any]", row)
    is_shaped = isinstance(stream, int) and isinstance(name, str) and isinstance(seq, int)
    return is_shaped and rest is None and not name.startswith("sha256-")
