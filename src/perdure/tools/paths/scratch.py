"""The scratch directory of a session: where its tools keep what is no part of the work.

A model names it ``~scratch``, wherever it is. It lies below a directory of the person's own among
the system's temporary files, is made when it is first used, and is nobody else's to enter.
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
    """Where the scratch directory of `session` is or will be."""
    said = msgspec.json.encode((store, namespace, session))
    name = hashlib.blake2b(said, digest_size=_HASH_BYTES).hexdigest()
    owner = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"perdure-{owner}" / name


def make_scratch(folder: Path) -> Path:
    """`folder`, made if need be.

    Raises: OSError, also when it or the one above it is a link, or somebody else's.
    """
    for each in (folder.parent, folder):
        try:
            each.mkdir(0o700)
        except FileExistsError:
            _require_own(each)
    return folder


def remove_scratch(folder: Path) -> None:
    """Delete `folder` with all that is in it; what is not there is no matter."""
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)


def below(path: str) -> str | None:
    """What `path` names in the scratch directory; None when it leads elsewhere."""
    first, _, rest = path.partition("/")
    return rest if first == NAME else None


def _require_own(folder: Path) -> None:
    status = folder.lstat()
    is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    if not stat.S_ISDIR(status.st_mode) or not is_own or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(errno.EACCES, "the scratch directory is not the person's own")
