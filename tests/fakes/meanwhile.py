"""A change of a file by another process while this process reads the file, at a chosen moment.

A program that reads a file accesses its path several times: first for its status, then to open it,
perhaps more than once. Another process can act before any of the program's accesses.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock


class Looks:
    """Counts the accesses to a file."""

    def __init__(self) -> None:
        self.count = 0


@contextmanager
def meanwhile(path: Path, number: int, act: Callable[[], object]) -> Generator[Looks]:
    """Call `act` right before the access number `number` to `path`; the first one has number 1."""
    looks = Looks()

    def looking(real: Callable[..., Any]) -> Callable[..., Any]:
        def look(at: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(at, str | os.PathLike) and os.fspath(at) == str(path):
                looks.count += 1
                if looks.count == number:
                    act()
            return real(at, *args, **kwargs)

        return look

    with (
        mock.patch.object(io, "open", looking(io.open)),
        mock.patch.object(os, "open", looking(os.open)),
        mock.patch.object(os, "stat", looking(os.stat)),
    ):
        yield looks
