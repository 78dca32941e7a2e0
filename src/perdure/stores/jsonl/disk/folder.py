"""The folder of a namespace: its session files, and the operations that write them.

Session files are directly in the folder, in the layout of pi or Operator. Data that only perdure
uses is below ``.perdure``, under hashed names: locks, leases, partial answers, keys, contents.
Invariant: a session file only grows until it is erased. A new session file is created by a hard
link, so it appears with its whole content.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import NoReturn

from perdure.errors import StoreFull, StoreReadOnly, StoreUnavailable
from perdure.session.ids import stream_id
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.fsync import make_folders, sync_folder
from perdure.stores.jsonl.disk.locks import FolderLocks
from perdure.stores.regular_files import (
    NotRegular,
    check_folder,
    check_only_name,
    open_regular,
    read_regular,
)

SUFFIX = ".jsonl"
INNER = ".perdure"
NAMESPACES = ".perdure-namespaces"

MOST_SIDE_BYTES = 2**28
"""Maximum number of bytes read from a side file; a partial answer is far smaller."""

_NO_INNER_FOLDER = "it is not a folder; remove it"
_UNREADABLE = "this user may not read it; check the owner and permissions of file and folder"
_NO_FOLDER = "a file is in its place, and it is a folder of files; name another"


@dataclass(frozen=True, slots=True)
class Stamp:
    """Identifies a version of a file, to detect changes."""

    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Return the stamp of a file from its status."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


class Folder:
    """One namespace's folder. With `is_synced`, written data is on the disk when a call returns.

    Units: `lock_timeout_s` is in seconds, the longest wait for a lock of another process.
    """

    def __init__(
        self, path: Path, *, is_synced: bool, lock_timeout_s: float = LOCK_TIMEOUT_S
    ) -> None:
        self.path = path
        self.inner = path / INNER
        self.drafts = self.inner / "new"
        self.is_synced = is_synced
        self.locks = FolderLocks(path, self.inner / "locks", self.fail, lock_timeout_s)
        self._known: dict[str, Path] = {}

    def make(self) -> None:
        """Create the folder and its subfolders, readable by the owner only.

        Durable: if the folder is synced (`is_synced`), the new folders are on the disk when the
        call returns.
        Raises: StoreReadOnly, StoreFull, StoreUnavailable.
        """
        try:
            _check_folders(self.path)
            for name in ("locks", "leases", "partials", "keys", "blobs", "erasures", "new"):
                make_folders(self.inner / name, is_synced=self.is_synced)
        except OSError as error:
            self.fail(error)

    def fail(self, error: OSError) -> NoReturn:
        """Raise the store error for `error`."""
        if isinstance(error, NotRegular):
            raise StoreUnavailable(str(error.filename), str(error)) from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(str(self.path)) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            if _is_unreadable(self.path):
                raise StoreUnavailable(str(self.path), _UNREADABLE) from error
            raise StoreReadOnly(str(self.path)) from error
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            if error.filename is not None and Path(error.filename).parent == self.inner:
                raise StoreUnavailable(str(error.filename), _NO_INNER_FOLDER) from error
            raise StoreUnavailable(str(self.path), _NO_FOLDER) from error
        raise StoreUnavailable(str(self.path), error.strerror or str(error)) from error

    # -- session files

    def names(self) -> list[str]:
        """Return the names of possible session files."""
        try:
            return [name for name in os.listdir(self.path) if name.endswith(SUFFIX)]  # noqa: PTH208 - only names are wanted, and there may be many
        except FileNotFoundError:
            return []
        except OSError as error:
            self.fail(error)

    def files(self) -> Iterator[tuple[Path, Stamp]]:
        """Yield every session file with its stamp."""
        try:
            with os.scandir(self.path) as found:
                for item in found:
                    if item.name.endswith(SUFFIX):
                        with suppress(FileNotFoundError):
                            status = item.stat(follow_symlinks=False)
                            if S_ISREG(status.st_mode):
                                yield self._path(item.name), Stamp.of(status)
        except FileNotFoundError:
            return
        except OSError as error:
            self.fail(error)

    def _path(self, name: str) -> Path:
        path = self._known.get(name)
        if path is None:
            path = self._known[name] = self.path / name
        return path

    def create(self, name: str, content: bytes) -> Path | None:
        """Create a session file with `content` atomically; return None if the file exists.

        Durable: if the folder is synced (`is_synced`), the file and its name are on the disk when
        the call returns.
        """
        path = self.path / name
        passing = self.drafts / f"{_here()}-{file_name_of(name)}"
        try:
            _write_whole(passing, content, is_synced=self.is_synced)
            try:
                os.link(passing, path)
            except FileExistsError:
                return None
            finally:
                passing.unlink()
            if self.is_synced:
                sync_folder(self.path)
        except OSError as error:
            self.fail(error)
        return path

    def append(self, path: Path, content: bytes) -> None:
        """Append `content` to `path` with one write call.

        Durable: if the folder is synced (`is_synced`), the appended bytes are on the disk when the
        call returns. A failed write may leave bytes, which readers ignore.
        Raises: StoreFull, StoreReadOnly; StoreUnavailable if the result is unknown.
        """
        try:
            file = open_regular(path, os.O_WRONLY | os.O_APPEND)
            try:
                if os.fstat(file).st_nlink > 1:
                    check_only_name(path, self.drafts)
                if os.write(file, content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if self.is_synced:
                    os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            self.fail(error)

    def remove(self, path: Path, *, is_synced: bool = False) -> None:
        """Delete a file.

        Durable: with `is_synced`, or if the folder is synced, the deletion is on the disk when the
        call returns.
        Raises: FileNotFoundError; StoreReadOnly, StoreUnavailable.
        """
        try:
            path.unlink()
            if is_synced or self.is_synced:
                sync_folder(path.parent)
        except FileNotFoundError:
            raise
        except OSError as error:
            self.fail(error)

    # -- side files

    def replace(self, kind: str, name: str, content: bytes, *, is_synced: bool) -> None:
        """Write `content` to the side file of `kind` and `name`, atomically."""
        self.put(self.side(kind, name), content, is_synced=is_synced)

    def put(self, path: Path, content: bytes, *, is_synced: bool) -> None:
        """Write `content` to the file `path` below this folder, atomically.

        Durable: with `is_synced`, the file is on the disk when the call returns.
        """
        passing = self.drafts / f"{_here()}-{path.parent.name}-{path.name}"
        try:
            try:
                check_folder(path.parent)
            except FileNotFoundError:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                if is_synced:
                    sync_folder(path.parent.parent)
            _write_whole(passing, content, is_synced=is_synced)
            passing.replace(path)
            if is_synced:
                sync_folder(path.parent)
        except OSError as error:
            self.fail(error)

    def put_beside(self, path: Path, content: bytes) -> None:
        """Replace the rebuildable file `path` with `content` atomically.

        The content is first written to another file in the same folder.
        Raises: StoreReadOnly, StoreFull, StoreUnavailable.
        """
        passing = path.with_name(f"{path.name}.new")
        try:
            _write_whole(passing, content, is_synced=False)
            passing.replace(path)
        except OSError as error:
            with suppress(OSError):  # on a full disk it would take the room of irreplaceable data
                passing.unlink()
            self.fail(error)

    def side(self, kind: str, name: str) -> Path:
        """Return the path of the side file of `kind` and `name`; names are case-sensitive."""
        return self.inner / kind / file_name_of(name)

    def read_side(self, kind: str, name: str) -> bytes | None:
        """Return the content of the side file of `kind` and `name`; None if the file is missing."""
        try:
            return read_regular(self.side(kind, name), most_bytes=MOST_SIDE_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.fail(error)

    def remove_side(self, kind: str, name: str) -> None:
        """Remove the side file of `kind` and `name`, if it exists."""
        with suppress(OSError):  # a leftover file has no effect
            self.side(kind, name).unlink()

    def try_lock(self, kind: str, name: str) -> int | None:
        """Acquire the lock of `kind` and `name`; closing the returned file releases the lock.

        Returns None if the lock is already held.
        """
        return self.locks.try_lock(f"{kind}-{file_name_of(name)}")

    def hold_lock(
        self, kind: str, name: str, *, is_shared: bool = False, wait_s: float | None = None
    ) -> AbstractContextManager[None]:
        """Hold the lock of `kind` and `name` during the block (`FolderLocks.hold_lock`)."""
        return self.locks.hold_lock(
            f"{kind}-{file_name_of(name)}", is_shared=is_shared, wait_s=wait_s
        )


def _is_unreadable(folder: Path) -> bool:
    try:
        os.scandir(folder).close()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def file_name_of(name: str) -> str:
    """Return `name` as a file name: lower case, with only safe characters."""
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def session_in(name: str) -> str | None:
    """Return the session id that the file name `name` contains; None if it contains no id."""
    _, underscore, rest = name.removesuffix(SUFFIX).partition("_")
    try:
        return stream_id(rest) if underscore else None
    except ValueError:
        return None


def is_session_file(name: str) -> bool:
    """Whether `name` can be a session file's name; a name that leads out of the folder cannot."""
    return name.endswith(SUFFIX) and "/" not in name


def namespace_folder(root: Path, namespace: str) -> Path:
    """Return the folder of a namespace.

    The namespace ``default`` uses `root` itself; any other namespace uses a subfolder of `root`.
    """
    if namespace == "default":
        return root
    plain = "abcdefghijklmnopqrstuvwxyz0123456789-"
    name = "".join(
        chr(byte) if chr(byte) in plain else f"%{byte:02x}" for byte in namespace.encode()
    )
    name = name if len(name) < 200 else f"%%{file_name_of(namespace)}"
    return root / NAMESPACES / (name or "%")


def _check_folders(path: Path) -> None:
    """Reject a link in place of a folder, because its target could be outside of the store."""
    inner = path / INNER
    above = (path.parent, path) if path.parent.name == NAMESPACES else ()
    for folder in (*above, inner):
        with suppress(FileNotFoundError):
            check_folder(folder)
    for folder in (inner, inner / "blobs"):
        with suppress(FileNotFoundError), os.scandir(folder) as found:
            for item in found:
                if item.is_symlink() and not item.is_file():
                    check_folder(folder / item.name)


def _here() -> str:
    """Return a file name that no other process or thread writes to."""
    return f"{os.getpid()}-{threading.get_ident()}"


def _write_whole(path: Path, content: bytes, *, is_synced: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        file = open_regular(path, flags)
    except FileExistsError:  # left by a killed process, or a link of another program
        path.unlink()
        file = open_regular(path, flags)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]
        if is_synced:
            os.fsync(file)
    finally:
        os.close(file)
