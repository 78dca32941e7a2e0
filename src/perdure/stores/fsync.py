"""Sync files and folders to disk; create synced folders; create and replace synced files."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

_UNABLE = frozenset(
    {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EISDIR, errno.EBADF}
)
"""Errors of file systems that cannot sync a folder; such file systems do not need this sync."""


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


def make_folders(folder: Path, *, is_synced: bool = True) -> None:
    """Create `folder` and its missing parents, accessible to their owner only.

    Durable: if `is_synced`, the new folders are on disk on return. Raises: OSError.
    """
    if not folder.is_dir():
        make_folders(folder.parent, is_synced=is_synced)
        folder.mkdir(mode=0o700, exist_ok=True)
        if is_synced:
            sync_folder(folder.parent)


def create_private(file: Path, content: bytes) -> None:
    """Create `file` completely or not at all, readable only by its owner.

    Durable: the content is on disk on return. Raises: FileExistsError; OSError.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(descriptor)
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def replace_private(file: Path, content: bytes) -> None:
    """Write `content` to `file` atomically, replacing it; only its owner can read it.

    Durable: the content is on disk on return, under the name `file`. Raises: OSError.
    """
    begin = file.name[:40]  # the name of the draft can have at most 255 bytes
    draft = file.with_name(f".{begin}.{os.getpid()}-{threading.get_ident()}.new")
    draft.unlink(missing_ok=True)  # left by a killed process
    create_private(draft, content)
    try:
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(file.parent)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
