"""Tell when a file that is open was removed, or another has taken its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from perdure.errors import StoreUnavailable


class _Identity(NamedTuple):
    device: int
    inode: int


class FileGuard:
    """The file of a store and those that belong to it, as they were when they were opened.

    What is written to a file without a name is gone when the last process closes it.
    """

    def __init__(self, path: Path, beside: tuple[str, ...] = ()) -> None:
        """Look at `path`, and at the files beside it whose names end so and that are there."""
        self._store = str(path)
        names = (self._store, *(self._store + end for end in beside))
        found = ((name, _identity(name)) for name in names)
        self._known = [(name, known) for name, known in found if known is not None]

    def check(self) -> None:
        """Raises: StoreUnavailable when one of the files has lost its name. Costs 1 us a file."""
        for name, known in self._known:
            now = _identity(name)
            if now != known:
                raise StoreUnavailable(self._store, self._reason(name, is_there=now is not None))

    def _reason(self, name: str, *, is_there: bool) -> str:
        what = "its file" if name == self._store else f"{name}, which belongs to it,"
        if is_there:
            return f"{what} was replaced by another file while it was open; open it again"
        return (
            f"{what} was removed while it was open, and what is written now would be lost: put it "
            "back, or restore a backup, and open it again"
        )


def _identity(name: str) -> _Identity | None:
    try:
        found = os.stat(name)  # noqa: PTH116 - a Path takes three times as long, at each commit
    except OSError:
        return None
    return _Identity(found.st_dev, found.st_ino)
