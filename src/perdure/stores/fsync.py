"""Let files and the names in a folder survive power loss."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_UNABLE = frozenset(
    {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EISDIR, errno.EBADF}
)
"""What a system answers that cannot sync a folder, and need not."""


def sync_file(path: Path) -> None:
    """Let what is in `path` survive power loss. Raises: OSError."""
    _sync(path, os.O_RDWR)


def sync_folder(folder: Path) -> None:
    """Let a new name in `folder` survive power loss, as the file does. Raises: OSError."""
    try:
        _sync(folder, os.O_RDONLY)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
