"""Repair a damaged store: keep all readable data and report the losses.

A new store is written next to the damaged one, checked, and renamed in one step. The damaged file
is preserved, together with its log and a report. After a kill at any moment, the store is either
unchanged or repaired, and the next repair removes leftovers.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw
import msgspec

from perdure.errors import (
    KeyMissing,
    KeyWrong,
    NotAStore,
    PerdureError,
    StoreCorrupt,
    StoreExists,
    StoreFull,
    StoreInUse,
    StoreNotEncrypted,
    StoreReadOnly,
    StoreTooNew,
    StoreTooOld,
    StoreUnavailable,
)
from perdure.session.clock import RandomSource
from perdure.stores.access.sqlite_connection import Connection, hardened, transaction
from perdure.stores.fsync import sync_file
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.file_lock import alone_at
from perdure.stores.maintenance.protocol import RepairReport
from perdure.stores.maintenance.repair import NamespaceRepair, RepairedStream, in_order, parents_in
from perdure.stores.protocol import OnProgress, Problem
from perdure.stores.sqlite.append import keep_blobs, namespace_number
from perdure.stores.sqlite.connections import Patience, Site, connection, locate_site, open_site
from perdure.stores.sqlite.database import is_attached
from perdure.stores.sqlite.faults import NO_VALUES, in_use
from perdure.stores.sqlite.files.creation import create_store
from perdure.stores.sqlite.files.leftovers import REPAIRING, unfinished_repair
from perdure.stores.sqlite.maintenance.backup import Content
from perdure.stores.sqlite.maintenance.file_swap import (
    ALONE_LIMIT_S,
    ALONE_PAUSE_S,
    exchange,
    free_name,
    new_file,
    put_where_nothing_is,
)
from perdure.stores.sqlite.maintenance.salvage import copy_store, salvage_file
from perdure.stores.sqlite.maintenance.segments import receive
from perdure.stores.sqlite.maintenance.stream_rebuild import (
    SalvagedDatabase,
    entries_of,
    remains_in,
)
from perdure.stores.sqlite.payload.cipher import unlock
from perdure.stores.sqlite.rows import Tables
from perdure.stores.verification import Steps, is_content_lost

REPORT_NAME = "report.json"


def repair(
    path: Path,
    key: StoreKey | None,
    random: RandomSource,
    *,
    at: int,
    to: Path | None = None,
    told: OnProgress | None = None,
) -> RepairReport:
    """Repair the store at `path`, in place or into the new file `to`. The call blocks.

    `at` is the time of the notes that the repair appends to streams. A store without a fault stays
    unchanged. The call reports the progress of each step to `told`: check, salvage, final check.
    Durable: the repaired store is on the disk when the call returns. Memory: the repair needs as
    much memory as the size of the store's content.
    Raises: StoreExists if the new file `to` exists, and StoreInUse if the store is in use. The call
    raises NotAStore, KeyMissing, KeyWrong, StoreTooNew or StoreTooOld if the store cannot be
    repaired.
    """
    path = path.resolve()
    if not path.is_file():
        raise NotAStore(str(path), "no such file")
    if is_attached(path):
        raise StoreInUse(str(path))
    if to is not None and to.exists():
        raise StoreExists(str(to))
    work = unfinished_repair(path if to is None else to)  # beside its target
    with _hold_store(path, key), _folder(work):
        if not _problems(path, key, work, told):
            return RepairReport(str(path), is_damaged=False)
        new = work / "store.db"
        done = _rebuilt(path, key, new, random, at=at, told=told)
        missed = _check(new, key, told)
        done = msgspec.structs.replace(done, losses=(*done.losses, *missed))
        if to is not None:
            put_where_nothing_is(new, to)
            return msgspec.structs.replace(done, store=str(to))
        aside = free_name(path, "damaged")
        aside.mkdir(mode=0o700)
        done = msgspec.structs.replace(done, aside=str(aside))
        _write_report(aside / REPORT_NAME, done)
        exchange(new, path, aside, site=None)
        return done


@contextmanager
def _folder(work: Path) -> Generator[None]:
    """Create the empty folder `work` for exclusive use; remove it at the end.

    Raises: StoreInUse while another repair uses the folder; StoreFull, StoreReadOnly.
    """
    try:
        if not work.parent.is_dir():
            work.parent.mkdir(parents=True, exist_ok=True)
        with alone_at(work):
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(mode=0o700)
            try:
                yield
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except BlockingIOError as error:
        raise StoreInUse(str(work).removesuffix(REPAIRING)) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(str(work)) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise StoreReadOnly(str(work)) from error
        raise StoreUnavailable(str(work), error.strerror or type(error).__name__) from error


@contextmanager
def _hold_store(path: Path, key: StoreKey | None) -> Generator[None]:
    """Lock the store against writes, if SQLite can still open it.

    The lock changes nothing in the store, because SQLite does not replay the write-ahead log.
    """
    db = _open_damaged(path, key)
    try:
        if db is not None:
            _lock(db, path)
        yield
    finally:
        if db is not None:
            with suppress(apsw.Error):  # its file may have lost its name
                db.close(force=True)


def _open_damaged(path: Path, key: StoreKey | None) -> Connection | None:
    """Open a read-only connection; None if the file is too damaged."""
    try:
        site = locate_site(path, key=key)
    except (KeyMissing, StoreNotEncrypted, StoreTooNew, StoreTooOld):
        raise
    except (KeyWrong, NotAStore):
        if key is None:
            raise
        return None  # its first page may be damaged: `_rebuilt` checks the key
    except PerdureError:
        return None
    db = hardened(str(site.path), apsw.SQLITE_OPEN_READWRITE)
    unlock(db, key)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return db


def _lock(db: Connection, path: Path) -> None:
    db.set_busy_handler(Patience(b"", ALONE_LIMIT_S, ALONE_PAUSE_S))
    try:
        db.pragma("locking_mode", "EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
    except apsw.BusyError as error:
        raise in_use(path) from error
    except apsw.Error:
        return  # too damaged to lock, so too damaged to write to


def _problems(path: Path, key: StoreKey | None, work: Path, told: OnProgress | None) -> bool:
    """Return whether the store has a fault.

    The result is also True if a copy of the store cannot be opened.
    """
    copy = work / "looked-at.db"
    copy_store(path, copy)
    try:
        open_site(copy, seed=lambda: os.urandom(16), key=key)
        with closing(Content(copy, key)) as content:
            return any(True for _ in content.problems(told))
    except (KeyMissing, StoreNotEncrypted):
        raise
    except (PerdureError, apsw.Error, UnicodeDecodeError):
        return True


# ---------------------------------------------------------------- the new store


def _rebuilt(
    path: Path,
    key: StoreKey | None,
    new: Path,
    random: RandomSource,
    *,
    at: int,
    told: OnProgress | None,
) -> RepairReport:
    found = salvage_file(path, key, new.parent)
    if key is not None and found.is_empty:
        locate_site(path, key=key)  # rejects a file that is not a store
        raise KeyWrong(str(path))
    seed = random(16)
    create_store(new, lambda: seed, key)
    site = open_site(new, seed=lambda: seed, key=key)
    with closing(connection(site, seed)) as db:
        tables = Tables(db)
        kinds = {row[0]: row[1] for row in tables.rows("SELECT no, name FROM kind")}
        left = remains_in(found, kinds)
        mended = _repair_streams(left, random, at)
        losses = [*_cut_off(found.missing_bytes), *left.losses]
        kept = _keep(tables, left, mended, losses, told)
        entries = int(tables.value("SELECT count(*) FROM entry"))
    _close_log(site)
    return RepairReport(
        store=str(path),
        is_damaged=True,
        streams=len(kept),
        entries=entries,
        losses=(*losses, *(loss for each in kept for loss in each.losses)),
        changed=tuple(str(each.sealed.header.id) for each in kept if not each.is_same),
    )


def _cut_off(missing_bytes: int) -> Iterator[Problem]:
    """Yield a problem if the file's end is missing, because lost pages leave no other trace."""
    if missing_bytes:
        text = f"the file was cut off: its last {missing_bytes:,} bytes are gone"
        yield Problem(None, None, text)


def _repair_streams(
    left: SalvagedDatabase, random: RandomSource, at: int
) -> dict[str, list[RepairedStream]]:
    named = set(parents_in(entries_of(left)))
    found: dict[str, list[RepairedStream]] = {}
    for namespace, own in left.streams.items():
        forks = {each.header.fork.leaf for each in own if each.header and each.header.fork}
        mending = NamespaceRepair({*named, *(leaf for leaf in forks if leaf)}, random, at)
        found[namespace] = [mending.repair_stream(each) for each in in_order(own)]
    return found


def _keep(
    tables: Tables,
    left: SalvagedDatabase,
    mended: dict[str, list[RepairedStream]],
    losses: list[Problem],
    told: OnProgress | None,
) -> list[RepairedStream]:
    """Write the streams and contents; return the streams written."""
    kept: list[RepairedStream] = []
    steps = Steps(told, sum(len(own) for own in mended.values()), every=1)
    for namespace, own in mended.items():
        for each in own:
            steps.add()
            try:
                with _transaction(tables):
                    receive(tables, namespace, each.sealed, ())
            except (PerdureError, apsw.Error, *NO_VALUES) as error:
                stream = each.sealed.header.id
                losses.append(Problem(stream, None, f"it could not be saved ({error})"))
            else:
                kept.append(each)
    for namespace, contents in left.contents.items():
        with _transaction(tables):
            keep_blobs(tables, namespace_number(tables, namespace), contents)
    steps.end()
    return kept


@contextmanager
def _transaction(tables: Tables) -> Generator[None]:
    try:
        with transaction(tables.db):
            yield
    except BaseException:
        tables.forget()
        raise


def _close_log(site: Site) -> None:
    """Merge the write-ahead log, so that the new store is a single file."""
    Content(site.path, site.key).close()
    for name in ("-wal", "-shm"):
        if site.path.with_name(site.path.name + name).exists():
            raise StoreUnavailable(str(site.path), "its write-ahead log could not be closed")


def _check(new: Path, key: StoreKey | None, told: OnProgress | None) -> list[Problem]:
    """Check the new store; return the entries whose content is missing. Raises: StoreCorrupt."""
    missed: list[Problem] = []
    with closing(Content(new, key)) as content:
        for _, problem in content.problems(told):
            if is_content_lost(problem):
                missed.append(problem)
                continue
            place = "/".join(str(p) for p in (problem.stream, problem.seq) if p is not None)
            reason = f"the repaired store is not whole: {place}: {problem.problem}"
            raise StoreCorrupt(str(new), reason)
    return missed


def _write_report(path: Path, done: RepairReport) -> None:
    new_file(path)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(done)) + b"\n")
    sync_file(path)
