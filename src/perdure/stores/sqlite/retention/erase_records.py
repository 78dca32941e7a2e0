"""Store and read erasures: the unfinished ones, and the certificates of all erasures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from perdure.stores.retention.backups import Backup
from perdure.stores.retention.erase import Certificate, Range
from perdure.stores.sqlite.rows import Tables

_CERTIFICATES = """
SELECT certificate FROM erasure
WHERE namespace = (SELECT no FROM namespace WHERE name = ?) AND is_removal = 0 ORDER BY no
"""

_CERTIFICATE = """
SELECT certificate FROM erasure
WHERE namespace = (SELECT no FROM namespace WHERE name = ?) AND is_removal = 0 AND id = ?
ORDER BY no DESC LIMIT 1
"""
"""The query reads the newest rows first, so an erasure that just ended is in the first row."""

_INSERT = """
INSERT INTO erasure (namespace, id, is_removal, is_done, certificate) VALUES (?, ?, ?, 0, ?)
"""

_TASK = "INSERT INTO erasing (erasure, stream, first, last, is_sweep) VALUES (?, ?, ?, ?, ?)"

_certificate = msgspec.json.Decoder(Certificate)


class Open(NamedTuple):
    """An unfinished erasure.

    After the erasure is done, another erasure can get the same `no`. An `id` is never used again.
    """

    no: int
    id: str
    namespace: int
    name: str
    is_removal: bool


def certificates_of(tables: Tables, namespace: str) -> list[Certificate]:
    """Return every certificate of the namespace, oldest first."""
    return [_certificate.decode(row[0]) for row in tables.rows(_CERTIFICATES, namespace)]


def certificate_with(tables: Tables, namespace: str, id_: str) -> Certificate:
    """Return the certificate of the stored erasure `id_` of the namespace."""
    return _certificate.decode(tables.value(_CERTIFICATE, namespace, id_))


def certificate_of(tables: Tables, erasure: Open) -> Certificate | None:
    """Return the certificate of an erasure in progress; None if another process finished it."""
    sql = "SELECT certificate FROM erasure WHERE no = ? AND id = ? AND is_done = 0"
    content = tables.value(sql, erasure.no, erasure.id)
    return None if content is None else _certificate.decode(content)


def keep(tables: Tables, erasure: int, certificate: Certificate) -> None:
    """Store the current `certificate` of the erasure."""
    content = msgspec.json.encode(certificate)
    tables.run("UPDATE erasure SET certificate = ? WHERE no = ?", (content, erasure))


def keep_new(
    tables: Tables,
    namespace: int,
    certificate: Certificate,
    tasks: Iterable[tuple[int, Sequence[Range]]],
    *,
    is_removal: bool = False,
) -> int:
    """Store an erasure and its remaining work (seq ranges per stream); return its number."""
    content = msgspec.json.encode(certificate)
    tables.run(_INSERT, (namespace, certificate.id, is_removal, content))
    number = tables.db.last_insert_rowid()
    for stream, ranges in tasks:
        for first, last in ranges:
            tables.run(_TASK, (number, stream, first, last, False))
        if is_removal:
            tables.run(_TASK, (number, stream, 0, -1, True))
    return number


def open_erasures(tables: Tables) -> list[Open]:
    """Return the unfinished erasures of all namespaces, oldest first."""
    rows = tables.rows(
        "SELECT e.no, e.id, e.namespace, n.name, e.is_removal FROM erasure AS e"
        " LEFT JOIN namespace AS n ON n.no = e.namespace WHERE e.is_done = 0 ORDER BY e.no"
    )
    return [Open(row[0], row[1], row[2], row[3] or "", bool(row[4])) for row in rows]


def remember_backup(tables: Tables, backup: Backup) -> None:
    """Record that a backup was made."""
    tables.run("INSERT OR REPLACE INTO backup VALUES (?, ?)", (backup.path, backup.at))


def backups_of(tables: Tables) -> list[Backup]:
    """Return the backups of the file, oldest first."""
    return [Backup(*row) for row in tables.rows("SELECT path, at FROM backup ORDER BY at, path")]


def names_of(tables: Tables, erasure: int) -> frozenset[str]:
    """Return the names of the contents that erased bodies referenced."""
    rows = tables.rows("SELECT digest FROM erasing_content WHERE erasure = ?", erasure)
    return frozenset(row[0] for row in rows)
