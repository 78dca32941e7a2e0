"""Open only regular files, in folders that may be untrusted.

In an untrusted folder, a link can lead out of the folder, a pipe can block its reader, and a device
can return data without end. So this module opens a file without following a link at the file's
name, and without blocking. The type is checked on the opened file, because a file can be replaced
at any time.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_OTHER_NAMES = (
    "it has other names (hard links), which would get what is appended and keep what is erased; "
    "replace it by a copy"
)
_KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)
_ODD = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV, errno.EOPNOTSUPP})
"""Error numbers that opening a link, a pipe, a socket or a folder returns."""


class NotRegular(OSError):
    """The path is not a regular file, but a link, a pipe, a device or a folder."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(errno.ELOOP, reason, str(path))

    def __str__(self) -> str:
        return str(self.strerror)


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open the regular file `path`; return its descriptor.

    Raises: NotRegular; OSError.
    """
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in _ODD:
            status_of(path)
        raise
    try:
        _check(path, os.fstat(file))
    except BaseException:
        os.close(file)
        raise
    return file


def open_to_read(path: Path, *, buffering: int = -1) -> BinaryIO:
    """Open the regular file `path` like `Path.open` with ``rb``. Raises: NotRegular; OSError."""
    return os.fdopen(open_regular(path), "rb", buffering=buffering)


def read_regular(path: Path, *, most_bytes: int | None = None) -> bytes:
    """Read the regular file `path`.

    Raises: NotRegular if the path is not a regular file. Raises OSError if the file cannot be read,
    or is larger than `most_bytes`.
    """
    with open_to_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most_bytes is not None and size > most_bytes:
            reason = f"it has {size:,} bytes, at most {most_bytes:,} are read"
            raise OSError(errno.EFBIG, reason, str(path))
        return file.read() if most_bytes is None else file.read(most_bytes)


def status_of(path: Path) -> os.stat_result:
    """Return the status of the regular file `path`. Raises: NotRegular; OSError."""
    status = path.lstat()
    _check(path, status)
    return status


def check_only_name(path: Path, drafts: Path) -> None:
    """Reject a file with other hard links, which would keep erased text and receive appended text.

    The call removes a second hard link in the folder `drafts`, which a process leaves if it dies
    while it creates the file. Raises: NotRegular; OSError.
    """
    status = status_of(path)
    if status.st_nlink == 1:
        return
    for draft in drafts.iterdir():
        with suppress(FileNotFoundError):
            if os.path.samestat(draft.lstat(), status):
                draft.unlink()
    if status_of(path).st_nlink > 1:
        raise NotRegular(path, _OTHER_NAMES)


def is_at(file: int, path: Path) -> bool:
    """Whether the open `file` is the file at `path`."""
    try:
        return os.path.samestat(os.fstat(file), path.lstat())
    except FileNotFoundError:
        return False


def check_folder(path: Path) -> None:
    """Reject everything except a real folder; a link to a folder is rejected too.

    Raises: NotRegular; OSError.
    """
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotRegular(path, f"it is {_kind(status)}, not a folder; remove it")


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(path, f"it is {_kind(status)}, not a regular file; remove it")


def _kind(status: os.stat_result) -> str:
    return next((name for is_one, name in _KINDS if is_one(status.st_mode)), "something else")
