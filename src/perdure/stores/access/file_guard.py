"""Detect that an open file was removed or replaced."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.errors import StoreCorrupt, StoreUnavailable

OTHER_LIBRARY = (
    "a program that opens the file with another SQLite library in the same process, such as "
    "Python's sqlite3, does that: see docs/guides/sql.md"
)

LEAST_BYTES = 512
"""Size of the smallest database; every store has at least this size from its creation."""


class FileGuard:
    """Remembers which files a store opened, to detect that one of them was removed or replaced.

    Data written to a deleted file is lost when the last process closes the file.
    """

    def __init__(
        self, path: Path, beside: tuple[str, ...] = (), *, is_folder: bool = False
    ) -> None:
        """Record the identity of `path` and of existing files with the suffixes in `beside`."""
        self._store = str(path)
        self._what = "folder" if is_folder else "file"
        self._least_bytes = 0 if is_folder else LEAST_BYTES
        names = (self._store, *(self._store + end for end in beside))
        found = ((name, _identity(name)) for name in names)
        self._known = [(name, known) for name, known in found if known is not None]

    def check(self) -> None:
        """Check that every name still refers to the same file; this costs 1 us per file.

        Raises: StoreUnavailable if a name is missing or refers to another file; StoreCorrupt if the
        store's file was truncated.
        """
        for name, known in self._known:
            try:
                found = os.stat(name)  # noqa: PTH116 - a Path takes three times as long
            except OSError:
                raise StoreUnavailable(self._store, self._reason(name, is_there=False)) from None
            if (found.st_dev, found.st_ino) != known:
                raise StoreUnavailable(self._store, self._reason(name, is_there=True))
            if found.st_size < self._least_bytes and name == self._store:
                raise StoreCorrupt(self._store, f"it was cut to {found.st_size} bytes while open")

    def _reason(self, name: str, *, is_there: bool) -> str:
        is_store = name == self._store
        what = f"its {self._what}" if is_store else f"{name}, which belongs to it,"
        told = f"{what} was replaced by another one while it was open; open it again"
        if not is_there:
            told = (
                f"{what} was removed while it was open, so new entries would be lost: put "
                "it back, or restore a backup, and open it again"
            )
        return told if is_store else f"{told}; {OTHER_LIBRARY}"


def _identity(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)  # noqa: PTH116 - a Path takes three times as long, at each commit
    except OSError:
        return None
    return found.st_dev, found.st_ino
