"""System calls that write files: a chosen call fails or kills this process.

This module is for code that writes files itself; `faulty_vfs` is for code that writes through
SQLite.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal
from unittest import mock

Operation = Literal["write", "fsync", "link", "replace", "unlink", "mkdir"]
OPERATIONS: tuple[Operation, ...] = ("write", "fsync", "link", "replace", "unlink", "mkdir")
Plan = Callable[[Operation, tuple[Any, ...]], None]
"""Called before each operation with its arguments; the operation fails if it raises an error."""


@contextmanager
def planned(plan: Plan) -> Generator[None]:
    """Every write, fsync, link, replace, unlink and mkdir of this process calls `plan` first."""
    real: dict[Operation, Callable[..., Any]] = {name: getattr(os, name) for name in OPERATIONS}

    def wrapped(name: Operation) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            plan(name, args)
            return real[name](*args, **kwargs)

        return call

    with ExitStack() as stack:
        for name in OPERATIONS:
            stack.enter_context(mock.patch.object(os, name, wrapped(name)))
        yield


def syncs_in(synced: list[int]) -> Plan:
    """Add the inode of each synced file or folder to `synced`."""

    def plan(operation: Operation, args: tuple[Any, ...]) -> None:
        if operation == "fsync":
            synced.append(os.fstat(args[0]).st_ino)

    return plan


def killing_at(number: int, kept: float) -> Plan:
    """Kill this process, as ``kill -9`` does, at the operation with this number (from 1).

    If the operation is a write, the share `kept` of its bytes is written first.
    """
    seen = 0
    real_write = os.write

    def plan(operation: Operation, args: tuple[Any, ...]) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            if operation == "write":
                file, content = args
                real_write(file, bytes(content)[: round(kept * len(content))])
            os.kill(os.getpid(), signal.SIGKILL)

    return plan


def failing_at(number: int, error: int, operation: Operation, kept: float = 0.0) -> Plan:
    """Raise the errno `error` at the `operation` with this number (from 1).

    If the operation is a write, the share `kept` of its bytes is written first.
    """
    seen = 0
    real_write = os.write

    def plan(current: Operation, args: tuple[Any, ...]) -> None:
        nonlocal seen
        seen += current == operation
        if current == operation and seen == number:
            if operation == "write":
                file, content = args
                real_write(file, bytes(content)[: round(kept * len(content))])
            raise OSError(error, os.strerror(error))

    return plan
