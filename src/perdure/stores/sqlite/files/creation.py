"""Create a store completely under another name, so that no process sees a partial store.

A store gets its final name only when it is complete. So a file of 0 bytes with the name of a store
is always a damaged store, never a new one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import cast

import apsw

from perdure.errors import StoreCorrupt, StoreFull, StoreReadOnly, StoreUnavailable
from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.fsync import make_folders, sync_file, sync_folder
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.file_lock import in_turn
from perdure.stores.sqlite.connections import Site, identity_of, prepare
from perdure.stores.sqlite.schema import create_schema

_ENDS = ("", "-wal", "-shm", "-journal")
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)


def create_store(path: Path, seed: Callable[[], bytes], key: StoreKey | None) -> None:
    """Create an empty store at `path`, readable by its owner only, unless one exists.

    Durable: the store is on the disk when the call returns.
    Raises: StoreCorrupt if a write-ahead log without its store exists. Raises StoreReadOnly,
    StoreFull or StoreUnavailable.
    """
    path = Path(os.path.realpath(path))
    try:
        make_folders(path.parent)
        with in_turn(path.parent):
            if not path.exists():
                _check_no_log(path)
                _create(path, seed, key)
    except PermissionError as error:
        raise StoreReadOnly(str(path)) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreFull(str(path)) from error
        if not os.access(path.parent, os.W_OK):
            raise StoreReadOnly(str(path)) from error
        raise StoreUnavailable(str(path), str(error)) from error


def _check_no_log(path: Path) -> None:
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size > 0:
        reason = f"its file is gone, and its write-ahead log {log.name} is there"
        told = "put the file back, or move the log away to begin a new store"
        raise StoreCorrupt(str(path), f"{reason}: {told}")


def _create(path: Path, seed: Callable[[], bytes], key: StoreKey | None) -> None:
    _remove_drafts(path)
    draft = path.with_name(f"{path.name}-new-{os.getpid()}")
    try:
        file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
        with os.fdopen(file, "wb") as opened:
            if key is None:
                opened.write(_empty_database())
        prepare(Site(draft, identity_of(draft), is_writable=True, key=key), seed(), is_draft=True)
        sync_file(draft)
        _name(draft, path)
        sync_folder(path.parent)
    finally:
        for end in _ENDS:
            draft.with_name(draft.name + end).unlink(missing_ok=True)


def _remove_drafts(path: Path) -> None:
    """Remove the drafts of the store at `path` that killed processes left."""
    prefix = f"{path.name}-new-"
    with os.scandir(path.parent) as files:
        names = [each.name for each in files if each.name.startswith(prefix)]
    for name in names:
        process, dash, end = name.removeprefix(prefix).partition("-")
        if process.isdecimal() and dash + end in _ENDS:
            path.with_name(name).unlink(missing_ok=True)


@cache  # creating the schema takes 2.5 ms of CPU, writing its pages takes 0.2 ms
def _empty_database() -> bytes:
    """Return the pages of a database with the newest schema and without rows."""
    with closing(apsw.Connection(":memory:")) as db:
        create_schema(cast("Connection", db))
        return db.serialize("main")


def _name(draft: Path, path: Path) -> None:
    """Hard-link `draft` to `path`; fail if it exists."""
    with suppress(FileExistsError):
        try:
            os.link(draft, path)
        except OSError as error:
            if error.errno not in _NO_LINKS or path.exists():
                raise
            draft.rename(path)
