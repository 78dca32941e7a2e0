"""Unique names of processes, used to recognize the leases of dead processes.

A name identifies a process by host, process namespace, pid and start time. If a process is on
another machine, or a part of its name is missing, its state is unknown. The lease of a process
whose state is unknown can be taken over only after the lease has expired.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_NAME = re.compile(r"(?:.*, )?pid (?P<pid>\d+) on (?P<host>\S+) \((?P<space>\d+)\.(?P<start>\d+)\)")
_PROC = Path("/proc")
_CHOSEN = int.from_bytes(os.urandom(6), "big")


def this_process() -> str:
    """Return the name of this process, such as ``pid 4711 on host (4026531836.815123)``.

    Shape: if the system does not report start times, the brackets contain a random number.
    """
    return _name_of(os.getpid())


@lru_cache(maxsize=1)
def _name_of(own: int) -> str:
    """Return the name of this process, whose pid is `own`; later calls return the same name."""
    host = socket.gethostname()
    space, start = _process_space(), None
    with suppress(OSError):
        start = _start_of(own)
    if space is None or start is None:
        return f"pid {own} on {host} (0.{_CHOSEN})"
    return f"pid {own} on {host} ({space}.{start})"


def named_process(owner: str | None) -> str:
    """Return a name of this process that begins with `owner`; no other process gets this name."""
    return this_process() if owner is None else f"{owner}, {this_process()}"


def is_gone(name: str) -> bool:
    """Return True if the process `name` is certainly dead; False if its state is unknown."""
    found = _NAME.fullmatch(name)
    if found is None or found["host"] != socket.gethostname():
        return False
    if found["space"] != _process_space():
        return False
    pid = int(found["pid"])
    try:
        start = _start_of(pid)
    except OSError:  # for example, this process has too many files open
        return False
    return start != found["start"] if start is not None else not exists(pid)


def exists(pid: int) -> bool:
    """Return whether a process on this machine has the pid `pid`, also if ``/proc`` hides it."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it belongs to another user
        return True
    return True


def _process_space() -> str | None:
    """Return the number of this process's pid namespace."""
    try:
        link = os.readlink(_PROC / "self" / "ns" / "pid")  # noqa: PTH115 - the link is no path
    except OSError:
        return None
    found = re.search(r"\d+", link)
    return found[0] if found else None


def _start_of(pid: int) -> str | None:
    """Return the start time of the process `pid` in kernel ticks; None if it is not in ``/proc``.

    The start time of a process that has ended and was not reaped is "".
    Raises: OSError if the system does not say whether the process exists.
    """
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets: any bytes, also brackets and spaces.
    fields = stat.rpartition(b")")[2].decode("ascii").split()
    is_dead = fields[0] in ("Z", "X")
    return "" if is_dead else fields[19]
