"""The exact schema that a store must have; a received file may contain more objects.

A trigger of a received file would run on perdure's writes. A view or a generated column would run
on perdure's reads. An extra table could keep data that an erasure removed. So every connection
first restricts what the schema of the file can do (``harden``). Before a connection reads anything
else, it compares a digest of the file's schema with the digest that is expected for the schema
version. Only if the digests differ, the schemas are compared in detail to name the difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from functools import cache, lru_cache
from pathlib import Path
from typing import cast

import apsw

from perdure.errors import StoreSchemaForeign
from perdure.stores.access.sqlite_connection import Connection, Row, transaction
from perdure.stores.sqlite.migrate import UNRELEASED, migrate, migrations, version_of

PAGE_BYTES = 4_096
"""Page size of a store.

Measured: larger pages save 4 % of the file, but double the bytes that a small commit writes.
"""

DIGESTS = {
    11: "70e1eeaf0cd1b1efab4e0592c92247ae",
    12: "01a4a8c8ec62a43963731ce0db68c00e",
    13: "de960c167c0b47d89729ce1e71c956bb",
    14: "3ed4143f3b3e41828d9c50abf123cd83",
}
"""Maps a version to its schema's digest. A missing digest is computed by migrating in memory."""

SCHEMA_STEPS = 200_000
"""Maximum number of SQLite instructions to read the schema; perdure's takes 2,000."""

NAMED = 3
"""Maximum number of objects named in an error."""

_OBJECTS = """
SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), rootpage > 0,
    CAST(sql AS BLOB), rootpage
FROM sqlite_schema LIMIT 200
"""


def create_schema(db: Connection) -> None:
    """Create the newest schema in the empty database `db`."""
    db.pragma("page_size", PAGE_BYTES)
    db.pragma("auto_vacuum", "INCREMENTAL")
    migrate(db)


def check_schema(db: Connection, path: Path) -> int:
    """Return the schema version of `db`; reject objects that perdure's migrations do not create.

    Raises: StoreSchemaForeign, which names the first object that differs. Raises apsw.Error if the
    file cannot be read.
    """
    version, objects = _read(db, path)
    roots = [row[5] for row in objects if row[5]]
    if len(set(roots)) < len(roots):
        raise StoreSchemaForeign(str(path), "two of its tables or indexes share a page")
    found = frozenset(row[:5] for row in objects)
    if (objects or version) and digest_of(found) != DIGESTS.get(version):
        digest_of.cache_clear()  # a foreign schema can be large
        _check_each(found, version, path)
    return version


@lru_cache(maxsize=1)  # each connection of a process reads the same schema
def digest_of(objects: frozenset[Row]) -> str:
    """Return a digest of a schema, independent of the order of its rows."""
    digest = hashlib.blake2b(digest_size=16)
    for row in sorted(repr(row) for row in objects):
        digest.update(row.encode() + b"\0")
    return digest.hexdigest()


def objects_of(db: Connection) -> frozenset[Row]:
    """Return the schema of `db` in the form `digest_of` expects."""
    return frozenset(row[:5] for row in db.execute(_OBJECTS))


def _read(db: Connection, path: Path) -> tuple[int, list[Row]]:
    """Read the version and the schema in one snapshot.

    Raises: StoreSchemaForeign if the schema is not one of perdure's, for example because it has
    thousands of objects.
    """
    db.set_progress_handler(lambda: True, SCHEMA_STEPS)
    try:
        with transaction(db, "BEGIN", is_kept=False):
            version, objects = version_of(db), db.execute(_OBJECTS).fetchall()
            _check_pages(db, path)
    except apsw.InterruptError as error:
        raise StoreSchemaForeign(str(path), "its schema holds thousands of objects") from error
    finally:
        db.set_progress_handler(None, 0)
    if version < 0:
        raise StoreSchemaForeign(str(path), f"its schema has the version {version}")
    return version, objects


def _check_pages(db: Connection, path: Path) -> None:
    if db.pragma("page_size") != PAGE_BYTES:
        reason = f"its page size is {db.pragma('page_size')}, not {PAGE_BYTES}"
        raise StoreSchemaForeign(str(path), reason)
    if db.pragma("encoding") != "UTF-8":
        raise StoreSchemaForeign(str(path), f"its encoding is {db.pragma('encoding')}, not UTF-8")


def _check_each(found: frozenset[Row], version: int, path: Path) -> None:
    """Compare the schema with the objects that the migrations create; name the differences.

    Raises: StoreSchemaForeign.
    """
    if version == UNRELEASED:
        raise StoreSchemaForeign(str(path), f"its schema (version {version}) is not perdure's")
    made = made_by(version)
    if found == made:
        return
    differences = list(_differences(found, made))
    more = len(differences) - NAMED
    reason = ", ".join(differences[:NAMED]) + (f" and {more} more" if more > 0 else "")
    raise StoreSchemaForeign(str(path), f"its schema (version {version}) {reason}")


def _differences(found: frozenset[Row], made: frozenset[Row]) -> Iterator[str]:
    names = {row[1] for row in made}
    gone = {row[1]: row for row in made - found}
    for row in sorted(found - made, key=lambda row: (row[0] == b"table", repr(row))):
        gone.pop(row[1], None)
        on = f" on {_text(row[2])!r}" if row[2] != row[1] else ""
        what = "holds another" if row[1] in names else "holds"
        yield f"{what} {_text(row[0])} {_text(row[1])!r}{on}"
    for row in gone.values():
        yield f"lacks the {_text(row[0])} {_text(row[1])!r}"


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")[:100]


@cache
def made_by(version: int) -> frozenset[Row]:
    """Return the objects that the migrations up to `version` create."""
    with closing(cast("Connection", apsw.Connection(":memory:"))) as db:
        for number, sql in migrations().items():
            if number <= version:
                db.execute(sql)
        return objects_of(db)
