"""A process that takes a lock, prints "held" and its id, and stops as if by SIGSTOP.

hold("folder", FOLDER, KIND, NAME)   the lock of that kind and name of a folder of sessions
hold("sqlite", FILE, MODE)           a transaction of that mode: IMMEDIATE or EXCLUSIVE
hold("postgres", ADDRESS, SQL)       a transaction in which SQL was run
hold("file", FILE)                   the lock of a file, or of a folder
"""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path
from typing import Any

import apsw
import psycopg

from perdure.stores.jsonl.disk.folder import Folder


def stop() -> None:
    os.write(1, f"held {os.getpid()}\n".encode())
    os.kill(os.getpid(), signal.SIGSTOP)


def hold(what: str, where: str, *how: str) -> None:
    if what == "folder":
        with Folder(Path(where), is_synced=False).hold_lock(*how):
            stop()
    elif what == "sqlite":
        db: Any = apsw.Connection(where)
        if how[0] == "EXCLUSIVE":  # as a rekey has it, in the midst of its work
            db.pragma("locking_mode", "EXCLUSIVE")
        db.execute(f"BEGIN {how[0]}")
        stop()
    elif what == "postgres":
        with psycopg.connect(where, application_name="a stopped program") as server:
            server.execute(how[0].encode())
            stop()
    else:
        file = os.open(where, os.O_RDONLY)
        fcntl.flock(file, fcntl.LOCK_EX)
        stop()
