"""Lock the copy that a rekey writes next to a store, and remove the copy if it is orphaned.

If a rekey removes the encryption, its copy is unencrypted while the store is still encrypted. So a
rekey locks the copy while it writes the copy. Opening the store removes a copy that no process has
locked. If the copy is unencrypted, a separate process removes the copy as soon as its writer is
dead.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from perdure.stores.regular_files import is_at, open_regular

BESIDE = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps beside a database."""

_COPY = "-rekey"

_GUARD = """
import sys
from pathlib import Path
from perdure.stores.sqlite.rekey_copy import remove_left_copy
sys.stdin.buffer.read()
remove_left_copy(Path(sys.argv[1]))
"""
"""A program that waits until the writer closes the pipe or dies, then removes the leftovers."""

_TRIES = 100
_TRY_S = 0.01


def unfinished_copy(path: Path) -> Path:
    """Return the path where a rekey of the store at `path` writes its copy."""
    return path.with_name(path.name + _COPY)


def remove_with_logs(path: Path) -> None:
    """Remove a database and SQLite's side files."""
    for name in ("", *BESIDE):
        path.with_name(path.name + name).unlink(missing_ok=True)


@contextmanager
def guard_copy(path: Path) -> Generator[None]:
    """Ensure that the copy of the store at `path` is removed if this process is killed.

    If the removing process cannot be started, the copy remains until the store is opened.
    """
    guard: subprocess.Popen[bytes] | None = None
    if sys.executable:
        with suppress(OSError):
            guard = subprocess.Popen(  # noqa: S603 - this Python, and words of our own
                # -P: import nothing from the current folder
                [sys.executable, "-P", "-c", _GUARD, str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
    try:
        yield
    finally:
        if guard is not None:
            guard.communicate()


@contextmanager
def copy_held(path: Path) -> Generator[Path]:
    """Create the empty copy of the store at `path`, locked against removal during the block.

    Raises: OSError.
    """
    copy = unfinished_copy(path)
    while True:
        remove_with_logs(copy)
        file = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not is_at(file, copy):
                continue  # another process opened the store and removed it before it was locked
            yield copy
            return
        finally:
            os.close(file)


def remove_dead_copy(path: Path) -> None:
    """Remove the copy left by a killed rekey of the store at `path`, if any.

    The call skips the copy of a running rekey, and a copy that this user has no permission to
    remove.
    """
    copy = unfinished_copy(path)
    with suppress(OSError):
        file = open_regular(copy, os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(file, copy):
                remove_with_logs(copy)
        finally:
            os.close(file)


def remove_left_copy(path: Path) -> None:
    """Remove the copy of a writer that is just ending and may still hold the copy's lock briefly.

    The call gives up after a second if another rekey of the store at `path` writes the copy.
    """
    for _ in range(_TRIES):
        remove_dead_copy(path)
        if not unfinished_copy(path).exists():
            return
        time.sleep(_TRY_S)
