"""Copy a database file as of one moment, while other processes write to it.

One statement reads the whole file inside one read transaction. The read transaction blocks no
process, because new writes go to the write-ahead log. The copy is encrypted with the store's own
key, and contains no leases.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import apsw

from perdure.errors import EntryNotFound, StoreCorrupt, StoreUnavailable
from perdure.session.ids import place_of
from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.fsync import sync_file
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.segments import SegmentState
from perdure.stores.protocol import Problem
from perdure.stores.sqlite.connections import (
    Patience,
    Site,
    bare_connection,
    check_version,
    locate_site,
    opened,
    refusal,
)
from perdure.stores.sqlite.maintenance import segments
from perdure.stores.sqlite.maintenance.file_swap import (
    Report,
    addressing_connection,
    bytes_reported,
    new_file,
)
from perdure.stores.sqlite.maintenance.segments import Moment
from perdure.stores.sqlite.payload.cipher import copy_into
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.verify import verification

# A higher epoch: leases of the copied store are not valid in the copy.
_FREE = "UPDATE stream SET owner = NULL, until = 0, epoch = epoch + 1 WHERE owner IS NOT NULL"


class Content:
    """The content of a database file that no other process has open.

    The caller closes the `Content`.
    Raises: KeyWrong, KeyMissing, StoreNotEncrypted, StoreCorrupt, NotAStore.
    """

    def __init__(self, path: Path, key: StoreKey | None) -> None:
        self._path = path
        self._site = Site(path, (0, 0), is_writable=True, key=key)
        self._db = bare_connection(self._site, os.urandom(16))
        try:
            self._version = check_version(self._site, self._db)
        except apsw.Error as error:
            self._db.close()
            raise refusal(error, self._site) from error
        self._tables = Tables(self._db)

    @property
    def schema(self) -> int:
        """The version of the file's schema."""
        return self._version

    def free_leases(self) -> None:
        """Release all leases."""
        self._db.execute(_FREE)

    def namespaces(self) -> Sequence[str]:
        """The names of the file's namespaces."""
        return segments.namespaces(self._tables)

    def entries(self) -> int:
        """Return the number of the file's entries."""
        return int(self._tables.value("SELECT count(*) FROM entry"))

    def standings(self) -> Iterator[tuple[str, SegmentState]]:
        """Yield the state of every stream with its namespace."""
        for namespace in self.namespaces():
            for standing in segments.segment_states(self._tables, namespace):
                yield namespace, standing

    def moment_at(self, at: int) -> Moment:
        """Return the position of the last entry that was committed at the time `at` or before."""
        return segments.moment_at(self._tables, at)

    def moment_of(self, namespace: str, entry: str) -> Moment:
        """Return the end of the commit that contains `entry`. Raises: EntryNotFound."""
        place = place_of(entry)
        if place is None:
            raise EntryNotFound(entry, "the backup")
        return segments.moment_of(self._tables, namespace, *place)

    def standings_at(self, namespace: str, moment: Moment) -> list[SegmentState]:
        """Return the states of all streams of a namespace at the given `moment`."""
        return segments.standings_at(self._tables, namespace, moment)

    def problems(self, told: Report | None = None) -> Iterator[tuple[str, Problem]]:
        """Yield every fault, with the namespace of the fault.

        The call reports the progress in each namespace to `told`.
        """
        for namespace in self.namespaces():
            for problem in verification(self._tables, namespace, told).problems:
                yield namespace, problem

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def snapshot(path: Path, key: StoreKey | None, target: Path, report: Report) -> None:
    """Copy the current state of the store at `path` into the new file `target`.

    Durable: the copy is on the disk when the call returns. The call blocks.
    Raises: StoreCorrupt if the store is damaged, StoreFull if the disk is full, and the errors of
    ``SqliteStore.open``.
    """
    site = locate_site(path.resolve(), key=key)
    try:
        with opened(site, lambda: addressing_connection(site)) as db:
            # Closing a store's last connection locks it for a moment.
            db.set_busy_handler(Patience(b"", site.wait))
            check_version(site, db)
            _copy(db, site, target, report)
    except OSError as error:
        raise StoreUnavailable(str(target), error.strerror or type(error).__name__) from error


def _copy(db: Connection, site: Site, target: Path, report: Report) -> None:
    new_file(target)
    with bytes_reported(db, target, report):
        copy_into(db, target, site.key)
        with closing(Content(target, site.key)) as content:
            content.free_leases()
        sync_file(target)


def check_sound(path: Path, key: StoreKey | None) -> None:
    """Verify the file `path`, which no process has open. The call blocks.

    Raises: StoreCorrupt with the first fault.
    """
    with closing(Content(path, key)) as content:
        try:
            for namespace, problem in content.problems():
                place = "/".join(str(p) for p in (problem.stream, problem.seq) if p is not None)
                reason = f"in the namespace {namespace}, {place or 'the store'}: {problem.problem}"
                raise StoreCorrupt(str(path), reason)
        except apsw.Error as error:
            raise StoreCorrupt(str(path), str(error)) from error
