"""Read every row of a namespace that the server can still read, despite other damage.

A stream is queried as a whole, then row by row if the server fails at one of its rows.
``stores.maintenance.repair`` interprets the rows. The salvage runs on a thread with its own
connection, which reads one snapshot and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import LiteralString

import msgspec
import psycopg
from psycopg import Connection

from perdure.session.ids import EntryId, StreamId, entry_id, stream_id
from perdure.session.info import StreamHeader
from perdure.stores.maintenance.repair import SalvagedNamespace, SalvagedStream
from perdure.stores.postgres.database import Database, Statement
from perdure.stores.postgres.faults import is_lost, meaning_of
from perdure.stores.postgres.rows import ENTRY_COLUMNS, Row, entry_of
from perdure.stores.protocol import EMPTY, Problem
from perdure.stores.verification import StoredCommit, StoredEntry

_IDS: LiteralString = """
SELECT id FROM perdure.stream WHERE namespace = %s
UNION SELECT stream FROM perdure.birth WHERE namespace = %s
UNION SELECT stream FROM perdure.entry WHERE namespace = %s ORDER BY 1
"""

_STREAM: LiteralString = """
SELECT head, leaf, tip, epoch, is_erased FROM perdure.stream WHERE namespace = %s AND id = %s
"""

_BIRTH: LiteralString = """
SELECT header, genesis FROM perdure.birth WHERE namespace = %s AND stream = %s
"""

_ROWS: LiteralString = f"""
SELECT {ENTRY_COLUMNS}, e.salt, e.digest, e.commit_at, e.commit_epoch, e.chain
FROM perdure.entry AS e WHERE e.namespace = %s AND e.stream = %s
"""  # noqa: S608 - put together from constants

_ALL: LiteralString = _ROWS + " ORDER BY e.seq"

_ONE: LiteralString = _ROWS + " AND e.seq = %s"

_SEQS: LiteralString = """
SELECT seq FROM perdure.entry WHERE namespace = %s AND stream = %s ORDER BY seq
"""

_ALIASES: LiteralString = """
SELECT name, seq FROM perdure.alias WHERE namespace = %s AND stream = %s
"""

_header = msgspec.json.Decoder(StreamHeader)


def salvage_namespace(database: Database) -> SalvagedNamespace:
    """Implement ``MaintenanceService.salvage_namespace``.

    The call blocks. Raises: StoreUnavailable.
    """
    try:
        with database.connect_blocking() as db:
            return _Salvage(db, database.namespace).run()
    except psycopg.Error as error:
        raise meaning_of(error, database.address) from error


class _Salvage:
    """Reads the rows of a namespace over one connection, in one snapshot."""

    def __init__(self, db: Connection[Row], namespace: str) -> None:
        self._db = db
        self._namespace = namespace
        self._losses: list[Problem] = []

    def run(self) -> SalvagedNamespace:
        ids = self._rows(Statement(_IDS, (self._namespace,) * 3)) or ()
        streams = [self._remains(StreamId(row[0])) for row in ids]
        return SalvagedNamespace(streams, self._losses)

    def _rows(self, statement: Statement) -> Sequence[Row] | None:
        """Return the rows; None if the server cannot read one of them."""
        try:
            with self._db.transaction():  # a savepoint: a failure affects nothing else
                return self._db.execute(*statement, binary=True).fetchall()
        except (psycopg.DatabaseError, UnicodeDecodeError) as error:
            if is_lost(error):
                raise
            return None

    def _some(self, stream: StreamId, sql: LiteralString, what: str) -> Sequence[Row]:
        rows = self._rows(Statement(sql, (self._namespace, stream)))
        if rows is None:
            self._losses.append(Problem(stream, None, f"its {what} cannot be read"))
        return rows or ()

    def _remains(self, stream: StreamId) -> SalvagedStream:
        standing = next(iter(self._some(stream, _STREAM, "standing")), None)
        birth = next(iter(self._some(stream, _BIRTH, "header")), None)
        head = EMPTY if standing is None else standing[0]
        rows = {row[1]: row for row in self._entries(stream, head)}
        return SalvagedStream(
            id=stream,
            header=None if birth is None else _header_in(stream, birth[0]),
            genesis=None if birth is None else birth[1],
            head=head,
            tree=() if standing is None else _tree(stream, standing[1], standing[2]),
            epoch=0 if standing is None else standing[3],
            is_erased=standing is not None and standing[4],
            rows={
                seq: StoredEntry(entry_of(row[:9]), row[9], row[10]) for seq, row in rows.items()
            },
            commits=tuple(_commits(rows.values())),
            aliases=tuple(self._aliases(stream)),
        )

    def _entries(self, stream: StreamId, head: int) -> Iterator[Row]:
        """Yield the readable rows in order of seq."""
        rows = self._rows(Statement(_ALL, (self._namespace, stream)))
        if rows is not None:
            yield from rows
            return
        known = self._rows(Statement(_SEQS, (self._namespace, stream)))
        seqs = range(head + 1) if known is None else [row[0] for row in known]
        for seq in seqs:
            yield from self._rows(Statement(_ONE, (self._namespace, stream, seq))) or ()

    def _aliases(self, stream: StreamId) -> Iterator[tuple[str, int]]:
        for name, seq in self._some(stream, _ALIASES, "aliases"):
            yield bytes(name).decode(errors="replace"), seq


def _header_in(stream: StreamId, content: bytes) -> StreamHeader | None:
    try:
        header = _header.decode(content)
        return header if stream_id(header.id) == stream else None
    except (msgspec.MsgspecError, ValueError):
        return None


def _tree(stream: StreamId, leaf: str | None, tip: int | None) -> tuple[EntryId, ...]:
    found = [] if leaf is None else [EntryId(leaf)]
    return (*found, *(() if tip is None else (entry_id(stream, tip),)))


def _commits(rows: Iterable[Row]) -> Iterator[StoredCommit]:
    """Yield the commits: each commit ends at an entry that is marked as the last one.

    A commit whose last entry is missing is joined to the next commit, and the hashes are
    recomputed.
    """
    first = 0
    for row in rows:
        seq, at, epoch, chain = row[1], *row[11:14]
        if chain is not None:
            yield StoredCommit(first, seq - first + 1, at or 0, epoch or 0, chain)
            first = seq + 1
