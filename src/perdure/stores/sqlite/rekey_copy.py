"""The copy that a rekey writes beside a store: held by its writer, removed once the writer is dead.

The copy may be plain where the store is encrypted. So a rekey locks its copy while it writes, and
opening the store removes a copy that no process has locked.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from perdure.stores.regular import open_regular

BESIDE = ("-wal", "-shm", "-journal")
"""How the names of the files end that SQLite keeps beside a database."""

_COPY = "-rekey"


def unfinished_copy(path: Path) -> Path:
    """Where a rekey of the store at `path` writes its copy."""
    return path.with_name(path.name + _COPY)


def remove_with_logs(path: Path) -> None:
    """Remove a database and what SQLite keeps beside it."""
    for name in ("", *BESIDE):
        path.with_name(path.name + name).unlink(missing_ok=True)


@contextmanager
def copy_held(path: Path) -> Generator[Path]:
    """Make the empty copy of the store at `path`; nobody removes it while the block lasts.

    Raises: OSError.
    """
    copy = unfinished_copy(path)
    while True:
        remove_with_logs(copy)
        file = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(file, copy):
                continue  # who opens the store removed it before it was locked
            yield copy
            return
        finally:
            os.close(file)


def remove_dead_copy(path: Path) -> None:
    """Remove the copy that a killed rekey of the store at `path` left, if there is one.

    One that a rekey is writing stays, and so does one that this user may not remove.
    """
    copy = unfinished_copy(path)
    with suppress(OSError):
        file = open_regular(copy, os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, copy):
                remove_with_logs(copy)
        finally:
            os.close(file)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.lstat())
    except FileNotFoundError:
        return False
