"""Advisory file locks: while a process holds a lock, other processes fail or wait."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from perdure.errors import StoreUnavailable
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S, holder_of
from perdure.stores.regular_files import is_at, open_regular

LOOK_S = 0.01
"""Interval between attempts of a process that waits for a lock."""


@contextmanager
def alone_at(place: Path) -> Generator[None]:
    """Lock `place` exclusively during the block; the lock ends if the process is killed.

    The lock file is created next to `place`; the folder must exist.
    Raises: BlockingIOError while another process holds the lock; OSError if the lock file cannot be
    created.
    """
    lock = place.with_name(f"{place.name}.lock")
    while True:
        with os.fdopen(open_regular(lock, os.O_WRONLY | os.O_CREAT), "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise
            except OSError:  # no locks there, as on some network disks
                lock.unlink(missing_ok=True)
                raise
            if not is_at(file.fileno(), lock):
                continue  # its holder removed it after this process opened it: try again
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
            return


@contextmanager
def in_turn(folder: Path) -> Generator[None]:
    """Lock `folder` during the block; wait while another process holds it.

    `hold` defines how long the call waits and which errors it raises.
    """
    with _open_folder(folder) as descriptor:
        hold(descriptor, folder)
        yield


@contextmanager
def alone_in(folder: Path) -> Generator[None]:
    """Lock `folder` exclusively during the block, without writing to it.

    If the folder cannot be locked, as on some network disks, every caller enters the block without
    waiting.
    Raises: BlockingIOError while another process holds the lock.
    """
    with _open_folder(folder) as descriptor:
        if not _is_locked(descriptor):
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        yield


def hold(file: int, place: Path) -> None:
    """Lock `file`, opened at `place`, until `file` is closed; wait while another process holds it.

    If the file cannot be locked, as on some network disks, the call returns at once without a lock.
    Raises: StoreUnavailable, which names the holder, after `LOCK_TIMEOUT_S`.
    """
    until = time.monotonic() + LOCK_TIMEOUT_S
    while not _is_locked(file):
        if time.monotonic() >= until:
            told = f"{holder_of(place)} holds its lock; continue or end that process"
            raise StoreUnavailable(str(place), f"{told}, then try again")
        time.sleep(LOOK_S)


def _is_locked(file: int) -> bool:
    """Try to lock `file`; return False if another process holds it.

    Returns True if locks do not work on this disk.
    """
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
