"""Work that only one process may do at a place at a time: the others are refused, or wait."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from perdure.stores.regular import open_regular


@contextmanager
def alone_at(place: Path) -> Generator[None]:
    """Be the only one who works at `place` while the block lasts; a kill lets go of it.

    A lock lies beside it meanwhile, in a folder that has to be there.
    Raises: BlockingIOError while another works at it; OSError where the lock cannot be made.
    """
    lock = place.with_name(f"{place.name}.lock")
    while True:
        with os.fdopen(open_regular(lock, os.O_WRONLY | os.O_CREAT), "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise
            except OSError:  # nothing can be locked there, as on some network disks
                lock.unlink(missing_ok=True)
                raise
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

    As `hold` says.
    """
    with _opened(folder) as descriptor:
        hold(descriptor)
        yield


@contextmanager
def alone_in(folder: Path) -> Generator[None]:
    """Be the only one who works in `folder` while the block lasts; nothing is written there.

    As `hold` says. Raises: BlockingIOError while another works in it.
    """
    with _opened(folder) as descriptor:
        hold(descriptor, is_waiting=False)
        yield


def hold(file: int, *, is_waiting: bool = True) -> None:
    """Keep others from holding the open `file`, or folder, until it is closed.

    Where it cannot be locked, as on some network disks, nobody waits, and nobody is refused.
    Raises: BlockingIOError while another holds it, unless this is `is_waiting` for it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX if is_waiting else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            raise


@contextmanager
def _opened(folder: Path) -> Generator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_at(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
