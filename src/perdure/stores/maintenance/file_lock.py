"""Work that only one process may do at a place at a time: the others are refused, or wait."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from perdure.errors import StoreUnavailable
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S, holder_of
from perdure.stores.regular_files import open_regular

LOOK_S = 0.01
"""How often a process that waits for a lock looks for it."""


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
    """Do the block while no other process is in one for `folder`; the second one waits.

    As `hold` says.
    """
    with _open_folder(folder) as descriptor:
        hold(descriptor, folder)
        yield


@contextmanager
def alone_in(folder: Path) -> Generator[None]:
    """Be the only one who works in `folder` while the block lasts; nothing is written there.

    Where it cannot be locked, as on some network disks, no caller is refused.
    Raises: BlockingIOError while another works in it.
    """
    with _open_folder(folder) as descriptor:
        if not _is_locked(descriptor):
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        yield


def hold(file: int, place: Path) -> None:
    """Keep other processes from holding `place`, open as `file`, until that is closed.

    Where it cannot be locked, as on some network disks, no caller waits.
    Raises: StoreUnavailable, which names the holder, after `LOCK_TIMEOUT_S`.
    """
    until = time.monotonic() + LOCK_TIMEOUT_S
    while not _is_locked(file):
        if time.monotonic() >= until:
            told = f"{holder_of(place)} holds its lock; continue or end that process"
            raise StoreUnavailable(str(place), f"{told}, then try again")
        time.sleep(LOOK_S)


def _is_locked(file: int) -> bool:
    """Lock `file` where that is possible; False while another process has it locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno != errno.EWOULDBLOCK
    return True


@contextmanager
def _open_folder(folder: Path) -> Generator[int]:
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
