"""The scratch directory of a session, for temporary files of tools.

A model refers to the directory as ``~scratch``. The directory is inside a private directory of the
user, which is in the system's directory for temporary files. The scratch directory is created at
first use, and only its owner can enter it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

import msgspec

NAME = "~scratch"

_HASH_BYTES = 10


def scratch_of(store: str, namespace: str, session: str) -> Path:
    """Return the path of the scratch directory of `session`, which might not exist yet."""
    said = msgspec.json.encode((store, namespace, session))
    name = hashlib.blake2b(said, digest_size=_HASH_BYTES).hexdigest()
    owner = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"perdure-{owner}" / name


def make_scratch(folder: Path) -> Path:
    """Create `folder` if necessary, and return it.

    Raises: OSError if `folder` cannot be created, or if `folder` or its parent is a link or belongs
    to another user.
    """
    for each in (folder.parent, folder):
        try:
            each.mkdir(0o700)
        except FileExistsError:
            _require_own(each)
    return folder


def remove_scratch(folder: Path) -> None:
    """Delete `folder` and its content, if it exists."""
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)


def below(path: str) -> str | None:
    """Return the part of `path` after ``~scratch``; None if `path` does not begin with it."""
    first, _, rest = path.partition("/")
    return rest if first == NAME else None


def _require_own(folder: Path) -> None:
    status = folder.lstat()
    is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    if not stat.S_ISDIR(status.st_mode) or not is_own or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(errno.EACCES, "the scratch directory is not the person's own")
