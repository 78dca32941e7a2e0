"""The working directory as the only place a tool can reach, whatever path a model gives.

A path is walked one name at a time, beginning at a descriptor of the root. A directory is opened
without following links, a link's target is walked by the same rules, and ``..`` goes back to a
descriptor that is already held. So nothing is checked first and used later: what was checked is
what was opened, even while somebody swaps directories and links.

Some names are refused wherever they are, because they hold credentials or perdure's own data
(`is_secret`). An error names the path that was given and no other.
What this cannot do is to refuse a hard link, which does not differ from its file.
"""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from perdure.errors import ToolDenied, ToolError

MAX_DEPTH = 128
MAX_LINKS = 32
MAX_PATH = 4096

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_SECRET = frozenset(
    (
        *(".ssh", ".aws", ".perdure"),
        *(".netrc", ".npmrc", ".pypirc", ".pgpass", ".dockercfg", ".gitconfig", ".git-credentials"),
    )
)
_SECRET_BELOW = {
    ".git": ("config", "credentials"),
    ".config": ("git", "gh"),
    ".docker": ("config",),
}
"""Folder -> how names of secrets anywhere below it begin."""


def is_secret(names: Sequence[str]) -> bool:
    """Whether the file or folder at `names` (from the root down) may not be read.

    Letter case, dots and spaces at the end, and what follows a colon make no difference, since on
    some file systems they lead to the same file.
    """
    folded = [_folded(name) for name in names]
    if any(name in _SECRET or name.startswith(".env") for name in folded):
        return True
    return any(
        name.startswith(_SECRET_BELOW.get(above, ()))
        for place, name in enumerate(folded)
        for above in folded[:place]
    )


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().partition(":")[0].rstrip(". ")


def open_directory(parent: int, name: str) -> int:
    """A descriptor of the directory `name` in the directory `parent`; the caller closes it.

    Raises: OSError, also when `name` is a link.
    """
    return os.open(name, _DIRECTORY, dir_fd=parent)


def open_regular(parent: int, name: str) -> int:
    """A descriptor of the regular file `name` in the directory `parent`; the caller closes it.

    Never waits, whatever `name` is.
    Raises: OSError, also when `name` is a link, a directory, a pipe, a socket or a device.
    """
    _refuse_special(os.stat(name, dir_fd=parent, follow_symlinks=False))
    descriptor = os.open(name, _FILE, dir_fd=parent)
    try:
        _refuse_special(os.fstat(descriptor))  # it may have been replaced since
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_special(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.ENODEV, "it is not a regular file")


class Reached(msgspec.Struct, frozen=True):
    """What a path led to. Shape: `names` are those from the root down, links resolved.

    `descriptor` is a regular file's or a directory's, for as long as its jail keeps it open.
    """

    names: tuple[str, ...]
    descriptor: int
    is_file: bool


class Jail:
    """A directory that no path leaves. `tool` is whom errors are reported for."""

    def __init__(self, root: Path, tool: str) -> None:
        self._root = root
        self._tool = tool

    @contextmanager
    def reached(self, path: str) -> Generator[Reached]:
        """The file or directory that `path` leads to, open for reading.

        Raises: ToolDenied when it may not be read; ToolError when there is nothing to read.
        """
        with ExitStack() as held:
            try:
                walk = _Walk(self._root, path)
                held.callback(walk.close)
                found = walk.end()
            except _Escape as error:
                raise ToolDenied(self._tool, f"{path!r} {error}") from None
            except OSError as error:
                raise ToolError(self._tool, f"{path!r}: {error.strerror}") from None
            yield found

    @contextmanager
    def file(self, path: str) -> Generator[int]:
        """A descriptor of the file `path`.

        Raises: as `reached`; ToolError when it is a directory.
        """
        with self.reached(path) as found:
            if not found.is_file:
                raise ToolError(self._tool, f"{path!r} is a directory")
            yield found.descriptor

    @contextmanager
    def directory(self, path: str) -> Generator[Reached]:
        """The directory `path`.

        Raises: as `reached`; ToolError when it is a file.
        """
        with self.reached(path) as found:
            if found.is_file:
                raise ToolError(self._tool, f"{path!r} is not a directory")
            yield found


class _Escape(Exception):
    """The path leads where it must not; says so without naming the place."""


class _Walk:
    """One path on its way: the directories held from the root down, and the names still to go.

    Invariant: `_held[n + 1]` is the directory ``_names[n]`` in `_held[n]`, and none is a link.
    """

    def __init__(self, root: Path, path: str) -> None:
        self._roots = (str(root.absolute()), str(root.resolve()))
        self._path = path
        self._to_go: list[str] = []
        self._links = 0
        self._names: list[str] = []
        self._held = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]

    def end(self) -> Reached:
        """Where the path leads to.

        Raises: _Escape; OSError.
        """
        self._turn_to(_checked(self._path))
        while self._to_go:
            name = self._to_go.pop()
            if name == "..":
                self._back()
                continue
            if is_secret((*self._names, name)):
                raise _Escape("holds credentials or perdure's own data and is not read")
            mode = os.stat(name, dir_fd=self._held[-1], follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                self._follow(os.readlink(name, dir_fd=self._held[-1]))
            elif stat.S_ISDIR(mode):
                self._enter(name)
            elif self._to_go:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            else:
                return self._reached_file(name)
        return Reached(tuple(self._names), self._held[-1], is_file=False)

    def _reached_file(self, name: str) -> Reached:
        descriptor = open_regular(self._held[-1], name)
        self._held.append(descriptor)
        return Reached((*self._names, name), descriptor, is_file=True)

    def _turn_to(self, path: str) -> None:
        """Put the names of `path` before those still to go; an absolute one begins at the root."""
        names = [name for name in path.split("/") if name not in ("", ".")]
        if path.startswith("/"):
            names = self._below_root(names)
            while self._names:
                self._back()
        self._to_go.extend(reversed(names))

    def _below_root(self, names: list[str]) -> list[str]:
        for root in self._roots:
            above = [name for name in root.split("/") if name]
            if names[: len(above)] == above:
                return names[len(above) :]
        raise _Escape("leads out of the working directory")

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
            raise OSError(errno.ELOOP, "too many links")
        self._turn_to(target)

    def _enter(self, name: str) -> None:
        if len(self._names) >= MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, "too many directories")
        self._held.append(open_directory(self._held[-1], name))
        self._names.append(name)

    def _back(self) -> None:
        if not self._names:
            raise _Escape("leads out of the working directory")
        self._names.pop()
        os.close(self._held.pop())

    def close(self) -> None:
        """Let go of every descriptor."""
        while self._held:
            os.close(self._held.pop())


def _checked(path: str) -> str:
    if "\0" in path or path.encode(errors="replace") != path.encode(errors="surrogatepass"):
        raise _Escape("holds characters that no path has")
    if len(path) > MAX_PATH:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    return path
