"""A folder that this process cannot read, even if the process runs as root."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

NOBODY = 65_534


@contextlib.contextmanager
def unreadable(folder: Path) -> Generator[None]:
    """Make `folder` unreadable and switch to another user, because root can read everything."""
    folder.chmod(0)
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(NOBODY)
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)
