"""Sync files and folders to disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_UNABLE = frozenset(
    {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EISDIR, errno.EBADF}
)
"""Errors that file systems return if they cannot sync a folder and do not need to."""


def sync_file(path: Path) -> None:
    """Sync the file `path`, so that its content survives power loss. Raises: OSError."""
    _sync(path, os.O_RDWR)


def sync_folder(folder: Path) -> None:
    """Sync `folder`, so that a new file in it survives power loss. Raises: OSError."""
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
