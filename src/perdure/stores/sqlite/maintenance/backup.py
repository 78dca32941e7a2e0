"""Copy a database file as of one moment, while other processes write to it.

One statement reads the whole file inside one read transaction, which blocks no process: new writes
go to the write-ahead log. The copy is encrypted with the store's own key, and contains no leases.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw

from perdure.errors import EntryNotFound, StoreCorrupt, StoreUnavailable
from perdure.session.ids import entry_place
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
    refusal,
)
from perdure.stores.sqlite.maintenance import segments
from perdure.stores.sqlite.maintenance.file_swap import (
    PROGRESS_STEPS,
    Report,
    addressing_connection,
    new_file,
)
from perdure.stores.sqlite.maintenance.segments import Moment
from perdure.stores.sqlite.payload.cipher import copy_into
from perdure.stores.sqlite.rows import Connection, Tables
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
        try:
            stream, seq = entry_place(entry)
        except ValueError as error:
            raise EntryNotFound(entry, "the backup") from error
        return segments.moment_of(self._tables, namespace, stream, seq)

    def standings_at(self, namespace: str, moment: Moment) -> list[SegmentState]:
        """Return the states of all streams of a namespace at the given `moment`."""
        return segments.standings_at(self._tables, namespace, moment)

    def problems(self, told: Report | None = None) -> Iterator[tuple[str, Problem]]:
        """Yield every fault, with the namespace of the fault.

        Reports the progress in each namespace to `told`.
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
    db: Connection | None = None
    try:
        db = addressing_connection(site)
        # Closing a store's last connection locks it for a moment.
        db.set_busy_handler(Patience(b"", site.wait))
        check_version(site, db)
        _copy(db, site, target, report)
    except apsw.Error as error:
        raise refusal(error, site, db.system_errno if db else 0) from error
    except OSError as error:
        raise StoreUnavailable(str(target), error.strerror or type(error).__name__) from error
    finally:
        if db is not None:
            db.close()


def _copy(db: Connection, site: Site, target: Path, report: Report) -> None:
    new_file(target)
    total = db.pragma("page_count") * db.pragma("page_size")

    def tell() -> bool:
        report(min(target.stat().st_size, total), total)
        return False

    db.set_progress_handler(tell, PROGRESS_STEPS)
    try:
        copy_into(db, target, site.key)
    finally:
        db.set_progress_handler(None, 0)
    content = Content(target, site.key)
    try:
        content.free_leases()
    finally:
        content.close()
    sync_file(target)
    report(total, total)


def check_sound(path: Path, key: StoreKey | None) -> None:
    """Verify the file `path`, which no process has open. The call blocks.

    Raises: StoreCorrupt with the first fault.
    """
    content = Content(path, key)
    try:
        for namespace, problem in content.problems():
            place = "/".join(str(p) for p in (problem.stream, problem.seq) if p is not None)
            reason = f"in the namespace {namespace}, {place or 'the store'}: {problem.problem}"
            raise StoreCorrupt(str(path), reason)
    except apsw.Error as error:
        raise StoreCorrupt(str(path), str(error)) from error
    finally:
        content.close()
