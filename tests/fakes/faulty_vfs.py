"""A file layer for SQLite that fails, or kills its process, at a chosen write or fsync."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

import apsw

Operation = Literal["write", "sync", "truncate"]
Plan = Callable[[Operation, str, int], None]
"""Called before an operation with file name and position; SQLite gets an error that it raises."""


Witness = Callable[[str, bytes], None]
"""Gets the name of a file, and the bytes that are written to it."""


def nothing(_operation: Operation, _name: str, _offset: int) -> None:
    """Allow every operation."""


def unseen(_name: str, _data: bytes) -> None:
    """Ignore what is written."""


class _File(apsw.VFSFile):
    def __init__(self, layer: FaultyVfs, name: str, flags: list[int]) -> None:
        super().__init__(layer.below, name, flags)
        self._layer = layer
        self._name = name

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._layer.plan("write", self._name, offset)
        self._layer.witness(self._name, bytes(data))
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType] - apsw's annotation

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._layer.plan("sync", self._name, 0)
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        self._layer.plan("truncate", self._name, newsize)
        super().xTruncate(newsize)


_NAME = "faulty"
_CIPHER = "multipleciphers-"
"""Before a layer's name, this prefix adds the encryption of SQLite3 Multiple Ciphers above it."""


class FaultyVfs(apsw.VFS):
    """A file layer for SQLite, below the encryption, that a test controls.

    `plan` is called before each write, sync and truncation. `witness` is called with the bytes of
    each write. A test can replace `plan` and `witness` at any time.
    """

    def __init__(self) -> None:
        self.below = next(name for name in apsw.vfs_names() if not name.startswith(_CIPHER))
        self.plan: Plan = nothing
        self.witness: Witness = unseen
        super().__init__(_NAME, self.below)
        apsw.Connection(":memory:", vfs=_CIPHER + _NAME).close()

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802 - SQLite's name
        return _File(self, name if isinstance(name, str) else name.filename(), flags)


@cache
def _layer() -> FaultyVfs:
    """Return the layer of this process.

    A process has only one, because the encrypting layer above keeps pointing to the first.
    """
    return FaultyVfs()


@contextmanager
def faulty_vfs() -> Generator[FaultyVfs]:
    """Use the layer for every database that is opened inside the block."""
    layer, before = _layer(), apsw.vfs_names()[0]
    apsw.set_default_vfs(_CIPHER + _NAME)
    try:
        yield layer
    finally:
        apsw.set_default_vfs(before)
        layer.plan, layer.witness = nothing, unseen


def failing_from(number: int, error: type[apsw.Error], operation: Operation | None = None) -> Plan:
    """Fail at the operation with this number (from 1), and at all later operations."""
    seen = 0

    def plan(current: Operation, _name: str, _offset: int) -> None:
        nonlocal seen
        if operation is None or current == operation:
            seen += 1
            if seen >= number:
                raise error("no more")

    return plan


def killing_at(number: int) -> Plan:
    """Kill this process, as ``kill -9`` does, before the operation with this number (from 1)."""
    seen = 0

    def plan(_operation: Operation, _name: str, _offset: int) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return plan
