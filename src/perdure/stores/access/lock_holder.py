"""Find which process holds a file lock, if the operating system provides this information.

A lock file contains the name of the process that locked it last; the file's modification time is
the time of locking. The current holders are read from ``/proc/locks`` if it exists.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from perdure.secrets.mask import mask_secrets
from perdure.session.printable import safe
from perdure.stores.regular_files import open_to_read

LOCK_TIMEOUT_S = 30.0
"""Default for the maximum wait for a lock that another process holds."""

_PROC = Path("/proc")
_MARK_BYTES = 160
_PROGRAM_LETTERS = 60


def mark(file: int) -> None:
    """Write this process's name into the lock file (descriptor `file`) that it has just locked."""
    with suppress(OSError):  # the disk is full: the lock works without a name
        os.pwrite(file, _mark_of(os.getpid()), 0)


def holder_of(path: Path) -> str:
    """Describe the process that holds the lock file `path`: its program, and since when."""
    pids = _pids(path, None)
    marked, host, program = _read_lock_mark(path)
    if marked is not None and (not pids or marked in pids):
        where = "" if host == socket.gethostname() else f" on {host}"
        return f"process {marked}{where} ({program}), since {_modified_at(path)},"
    return _process_names(pids)


def holder_of_byte(path: Path, byte: int) -> str | None:
    """Describe the process with an exclusive lock on `byte` of the file, without opening it.

    Returns None if no process holds the lock, or if the operating system does not provide this
    information.
    """
    pids = _pids(path, byte)
    return _process_names(pids) if pids else None


def others_with(*paths: Path) -> str:
    """Describe the other processes with a lock on one of `paths`, without opening them."""
    pids = {pid for path in paths for pid in _pids(path, None)} - {os.getpid()}
    return _process_names(sorted(pids)) if pids else "another program"


def _process_names(pids: list[int]) -> str:
    if not pids:
        return "another process, which cannot be named here,"
    named = " and ".join(f"{pid} ({_program_of(pid)})" for pid in pids)
    return f"{'process' if len(pids) == 1 else 'processes'} {named}"


def _pids(path: Path, byte: int | None) -> list[int]:
    """Return the ids of the local processes that lock the file, or only its byte `byte`.

    Each id occurs once, although ``/proc/locks`` can list a lock twice if other locks change
    meanwhile.
    """
    try:
        found = path.stat()
        lines = (_PROC / "locks").read_text().splitlines()
    except OSError:
        return []
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    place = f"{device}:{found.st_ino}"
    pids: set[int] = set()
    for line in lines:  # "1: FLOCK ADVISORY WRITE 4711 fe:00:2146692 0 EOF"
        fields = line.split()
        is_here = len(fields) == 8 and fields[5] == place
        if is_here and (byte is None or _covers(fields, byte)):
            pids.add(int(fields[4]))
    return sorted(pids)


def _covers(fields: list[str], byte: int) -> bool:
    """Return whether the ``/proc/locks`` line with `fields` is a write lock that covers `byte`."""
    first, last = fields[6], fields[7]
    return fields[3] == "WRITE" and int(first) <= byte and (last == "EOF" or byte <= int(last))


@lru_cache(maxsize=1)
def _mark_of(pid: int) -> bytes:
    name = Path(sys.argv[0]).name or "python"
    text = f"{pid} {socket.gethostname()} {name}"
    return text.encode(errors="replace")[: _MARK_BYTES - 1].ljust(_MARK_BYTES - 1) + b"\n"


def _read_lock_mark(path: Path) -> tuple[int | None, str, str]:
    """Return the id, the machine and the program of the process that the lock file names."""
    try:
        with open_to_read(path) as file:
            words = file.read(_MARK_BYTES).decode(errors="replace").split(maxsplit=2)
        pid, host, program = words
        return int(pid), host, _display_text(program)
    except (OSError, ValueError):
        return None, "", ""


def _modified_at(path: Path) -> str:
    try:
        changed = path.stat().st_mtime
    except OSError:
        return "an unknown time"
    return f"{datetime.fromtimestamp(changed, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _program_of(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "its program is not known"
    return _display_text(" ".join([Path(words[0]).name, *words[1:]]))


def _display_text(text: str) -> str:
    text = mask_secrets(safe(text.strip()))
    return text if len(text) <= _PROGRAM_LETTERS else f"{text[:_PROGRAM_LETTERS]}…"
