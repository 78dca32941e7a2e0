"""Work that only one process may do at a place at a time: the others are refused, or wait."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO


@contextmanager
def alone_at(place: Path) -> Generator[None]:
    """Be the only one who works at `place` while the block lasts; a kill lets go of it.

    A lock lies beside it meanwhile, in a folder that has to be there.
    Raises: BlockingIOError while another works at it; OSError where the lock cannot be made.
    """
    lock = place.with_name(f"{place.name}.lock")
    while True:
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(file, lock):
                continue  # who had it removed it after it was opened here: it keeps nobody out
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
            return


@contextmanager
def in_turn(folder: Path) -> Generator[None]:
    """Do the block while nobody else is in one for `folder`; who comes second waits.

    Where a folder cannot be locked, as on some network disks, nobody waits.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_at(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
