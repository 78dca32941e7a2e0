"""Read files that a person or a received folder names: regular files only, within a limit.

A FIFO or a device is never opened for reading, because opening may block and reading may never end.
Symbolic links are followed, because a person may name a link. For files of a store,
``stores.regular_files`` rejects links.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from perdure.bounds.limits import limits
from perdure.errors import LimitExceeded

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def open_named(path: Path) -> BinaryIO:
    """Open the regular file at `path`, unbuffered; links are followed. The caller closes the file.

    Raises: OSError if the file cannot be opened or is not a regular file.
    """
    _require_regular(os.stat(path), path)  # noqa: PTH116 - the same question as of a descriptor
    descriptor = os.open(path, _FLAGS | getattr(os, "O_BINARY", 0))
    try:
        _require_regular(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def read_named(path: Path, limit: str = "document_bytes", what: str | None = None) -> bytes:
    """Return the content of the regular file at `path`; its size must be within the limit `limit`.

    `what` is the name of the file in error messages; the default is its path.

    Raises: OSError if the file cannot be read or is not a regular file; LimitExceeded if it is too
    large.
    """
    most: int = getattr(limits(), limit)
    with open_named(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise LimitExceeded(what or str(path), limit, most)
        pieces: list[bytes] = []
        left = most + 1
        while left > 0 and (piece := file.read(min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
    if left <= 0:
        raise LimitExceeded(what or str(path), limit, most)
    return b"".join(pieces)


def read_named_text(path: Path, limit: str = "document_bytes") -> str:
    """Return the UTF-8 text of the regular file at `path`, with universal newlines.

    Raises: OSError if the file cannot be read; LimitExceeded if it is too large; UnicodeDecodeError
    if it is not UTF-8.
    """
    text = read_named(path, limit).decode()
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_folder(path: Path) -> bool:
    """Return whether there is a folder at `path`; links are followed.

    Raises: PermissionError if this user has no access to `path`. `Path.is_dir` cannot be used,
    because since Python 3.14 it returns False if the user has no access.
    """
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except PermissionError:
        raise
    except (OSError, ValueError):  # ValueError: the path contains a null character
        return False


def _require_regular(found: os.stat_result, path: Path) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
