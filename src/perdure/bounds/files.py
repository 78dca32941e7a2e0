"""Files named by a person or by a received folder: regular files only, read within a limit.

A FIFO or a device is never opened for reading, as that may wait for ever or never end. A link at
the name is followed: a person may name one. ``stores.regular`` refuses it in the files of a store.
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
    """The regular file at `path`, unbuffered; a link to one is followed. The caller closes it.

    Raises: OSError, also for anything but a regular file.
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
    """All of the regular file at `path`, which may have as many bytes as the limit says.

    `what` is what errors call it, where not by its path.

    Raises: OSError, also for anything but a regular file; LimitExceeded.
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
    """The UTF-8 text of the regular file at `path`, line ends as they are read anywhere else.

    Raises: OSError; LimitExceeded; UnicodeDecodeError.
    """
    text = read_named(path, limit).decode()
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _require_regular(found: os.stat_result, path: Path) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
