"""Limit paths from a model to the directories that a session's tools are allowed to access.

The jail walks a path one name at a time, from an open descriptor of a root. Directories are opened
without following links, a link's target is resolved by the same rules, and ``..`` returns to an
already open descriptor. The jail checks the object that it has opened. So swapping directories or
links between the check and the use has no effect.

Some names are rejected everywhere (`floors`). A file with a second hard link is rejected, because
that link might be outside of the jail. A second hard link is allowed in two cases: the whole file
system is open to tools, or the file is in a directory that package managers fill with links. Error
messages contain no path.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from perdure.errors import ToolDenied, ToolError
from perdure.tools.paths import scratch
from perdure.tools.paths.floors import (
    Floors,
    Names,
    folded_name,
    is_hidden,
    is_protected,
    is_refused,
    is_secret,
)
from perdure.tools.paths.own_places import floors_of, names_of_place
from perdure.tools.paths.path_text import Escape, checked_path, names_of_text
from perdure.tools.spec import ToolCall

T = TypeVar("T")

MAX_DEPTH = 128
MAX_LINKS = 32

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_directory(parent: int, name: str) -> int:
    """Open the directory `name` in the directory `parent`; the caller closes the descriptor.

    Raises: OSError if the directory cannot be opened, for example if `name` is a link.
    """
    return os.open(name, _DIRECTORY, dir_fd=parent)


_LINKED = frozenset(("node_modules", "site-packages", "dist-packages"))
"""Directories that package managers fill with hard links to their own store."""


def open_regular(parent: int, name: str, *, may_be_linked: bool = False, flags: int = _FILE) -> int:
    """Open the regular file `name` in the directory `parent`; the caller closes the descriptor.

    Never blocks, whatever kind of file `name` is.
    Raises: OSError if the file cannot be opened. The file cannot be opened if it is a link,
    directory, pipe, socket or device, or if it has a second hard link and `may_be_linked` is False.
    """
    refuse_special(os.stat(name, dir_fd=parent, follow_symlinks=False))
    descriptor = os.open(name, flags, dir_fd=parent)
    try:
        refuse_special(
            os.fstat(descriptor), may_be_linked=may_be_linked
        )  # it may have been replaced since
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def refuse_special(status: os.stat_result, *, may_be_linked: bool = True) -> None:
    """Reject a file that is not regular, or that has a second hard link unless `may_be_linked`.

    Raises: OSError if the file is rejected.
    """
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.ENODEV, "it is not a regular file")
    if status.st_nlink > 1 and not may_be_linked:
        raise OSError(errno.EMLINK, LINKED)


LINKED = "it has a second name, which may be outside (a hard link)"


class OpenPath(msgspec.Struct, frozen=True):
    """The open file or directory to which a path led.

    Shape: `names` are the names in the path from the jail's root down, with links resolved.

    `descriptor` belongs to a regular file or a directory, and stays open until its jail is closed.
    `is_absolute` means that the root is the root of the file system. `has_walls` is False if the
    whole file system is open to tools. `floors` are the jail's closed places, and `root` contains
    the names in the path of the jail's root, folded like those in `floors`.
    """

    names: tuple[str, ...]
    descriptor: int
    is_file: bool
    is_absolute: bool = False
    has_walls: bool = True
    floors: Floors = Floors()
    root: Names = ()

    def is_secret(self, below: Sequence[str]) -> bool:
        """Return True if tools must not read the file at `below` in this directory."""
        names = (*self.names, *below)
        return is_refused(is_secret, self.floors, self.root, names, is_absolute=self.is_absolute)

    def may_be_linked(self, below: Sequence[str] = ()) -> bool:
        """Return True if a second hard link is allowed for a file in the subdirectory `below`."""
        return not self.has_walls or not _LINKED.isdisjoint((*self.names, *below))


class Place(msgspec.Struct, frozen=True):
    """A place to write a file: `name` in the directory `parent`; the file need not exist yet.

    The place is never a link. `has_walls` is False if the whole file system is open to tools.
    `path` is the whole path, with links resolved. If `is_new_folder` is True, the folder of the
    file does not exist yet, and `name` is the path below `parent` with the missing folders.
    `is_hidden` means that a name in the path starts with a dot, and the path is not in the record
    folder of the call's flow.
    """

    parent: int
    name: str
    has_walls: bool
    path: str
    is_new_folder: bool = False
    is_hidden: bool = False


class Jail:
    """Opens paths inside `root`, where relative paths start, and inside the directories `others`.

    If `has_walls` is False, the whole file system is open, except the places closed to all tools
    (`floors`). Paths below ``~scratch`` lead to `scratch_dir`. `tool` is the name of the tool in
    error messages. `floors` are places that tools cannot access, besides the names that are closed
    everywhere. If `floors` is None, the closed places are those that environment variables name.
    """

    def __init__(
        self,
        root: Path,
        tool: str,
        others: Sequence[Path] = (),
        *,
        has_walls: bool = True,
        scratch_dir: Path | None = None,
        floors: Floors | None = None,
    ) -> None:
        self._floors = floors_of(os.environ) if floors is None else floors
        self._root = root
        self._others = tuple(others)
        self._tool = tool
        self._has_walls = has_walls
        self._scratch_dir = scratch_dir

    @classmethod
    def of(cls, call: ToolCall) -> Jail:
        """Return the jail for `call`: its working directory, and those that its scope adds."""
        root = call.working_dir
        permissions = call.permissions
        others = (
            [root / path for path in permissions.roots] if permissions.scope != "sandboxed" else []
        )
        has_walls = permissions.scope != "full"
        scratch_dir = call.scratch_dir
        floors = floors_of(os.environ, call.closed, call.record)
        return cls(
            root, call.tool, others, has_walls=has_walls, scratch_dir=scratch_dir, floors=floors
        )

    def open_path(self, path: str) -> AbstractContextManager[OpenPath]:
        """Open the file or directory at `path` for reading.

        Raises: ToolDenied if reading is not permitted. Raises ToolError if `path` is no readable
        file or directory.
        """
        return self._reached(path, _Walk.end)

    def place(self, path: str, *, makes_parents: bool = False) -> AbstractContextManager[Place]:
        """Return the place to write `path`. If `makes_parents` is True, create missing directories.

        Raises: ToolDenied if writing is not permitted. Raises ToolError if a directory is missing.
        """
        end = partial(_Walk.place, makes_parents=makes_parents)
        return self._reached(path, end, is_writing=True)

    def plan_place(
        self, path: str, *, makes_parents: bool = False
    ) -> AbstractContextManager[Place]:
        """Return the place where `place` would write `path`, without creating directories.

        Raises: the errors of `place`.
        """
        end = partial(_Walk.place, makes_parents=makes_parents, is_planned=True)
        return self._reached(path, end, is_writing=True)

    @contextmanager
    def _reached(
        self, path: str, end: Callable[[_Walk], T], *, is_writing: bool = False
    ) -> Generator[T]:
        """Start a walk along `path`, run `end` with the walk, and yield the result of `end`.

        The directories of the walk stay open until the block ends.
        """
        with ExitStack() as held:
            with self._reporting():
                walk = self._walk(path, is_writing=is_writing)
                held.callback(walk.close)
                found = end(walk)
            yield found

    @contextmanager
    def file(self, path: str) -> Generator[int]:
        """Open the file `path` for reading, and return its descriptor.

        Raises: the errors of `open_path`. Raises ToolError if the path is a directory.
        """
        with self.open_path(path) as found:
            if not found.is_file:
                raise ToolError(self._tool, "the path is a directory")
            yield found.descriptor

    @contextmanager
    def directory(self, path: str) -> Generator[OpenPath]:
        """Open the directory `path`.

        Raises: the errors of `open_path`. Raises ToolError if the path is a file.
        """
        with self.open_path(path) as found:
            if found.is_file:
                raise ToolError(self._tool, "the path is not a directory")
            yield found

    @contextmanager
    def _reporting(self) -> Generator[None]:
        try:
            yield
        except Escape as error:
            raise ToolDenied(self._tool, f"the path {error}") from None
        except OSError as error:
            kind = ToolDenied if error.errno == errno.EMLINK else ToolError
            raise kind(self._tool, f"the path cannot be used: {error.strerror}") from None

    def _walk(self, path: str, *, is_writing: bool = False) -> _Walk:
        text = checked_path(path)
        inside = None if self._scratch_dir is None else scratch.below(text)
        if self._scratch_dir is not None and inside is not None:
            place = scratch.make_scratch(self._scratch_dir)
            shown = (scratch.NAME,)
            below = inside.lstrip("/")
            return _Walk(place, below, Floors(), is_writing=is_writing, shown=shown)
        if not self._has_walls:
            real = self._root.resolve()
            absolute = text if text.startswith("/") else f"{real}/{text}"
            floors, work = self._floors, names_of_place(real)
            return _Walk(
                Path("/"), absolute, floors, is_writing=is_writing, has_walls=False, work=work
            )
        for root in (self._root, *self._others):
            if text.startswith("/") and not _is_below(root, text):
                continue
            return _Walk(root, text, self._floors, is_writing=is_writing)
        raise Escape("leads out of the working directory")


def _is_below(root: Path, path: str) -> bool:
    names = [name for name in path.split("/") if name not in ("", ".")]
    for known in (root.absolute(), root.resolve()):
        above = [name for name in str(known).split("/") if name]
        if names[: len(above)] == above:
            return True
    return False


class _Walk:
    """The walk along one path: the open directories from the root down, and the remaining names.

    Invariant: the descriptor `_held[n + 1]` belongs to the directory ``_names[n]`` in the directory
    `_held[n]`, and no directory is a link.
    """

    def __init__(
        self,
        root: Path,
        path: str,
        floors: Floors,
        *,
        is_writing: bool = False,
        has_walls: bool = True,
        shown: tuple[str, ...] = (),
        work: Names | None = None,
    ) -> None:
        self._shown = shown
        self._floors = floors
        self._roots = (str(root.absolute()), str(root.resolve()))
        self._root_names = names_of_place(self._roots[1])
        self._work = self._root_names if work is None else work
        self._is_absolute = self._roots[1] == "/"
        self._has_walls = has_walls
        self._rule = is_protected if is_writing else is_secret
        self._path = path
        self._to_go: list[str] = []
        self._links = 0
        self._names: list[str] = []
        self._held = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]

    def end(self) -> OpenPath:
        """Walk to the end of the path, and return the file or directory there.

        Raises: Escape if the path leads to a forbidden place. Raises OSError if the file or
        directory cannot be opened.
        """
        self._turn_to(self._path)
        for name, mode in self._steps():
            if mode is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            if stat.S_ISDIR(mode):
                self._enter(name)
            elif self._to_go:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            else:
                return self._reached_file(name)
        self._require_open()
        return self._reached(self._names, self._held[-1], is_file=False)

    def place(self, *, makes_parents: bool, is_planned: bool = False) -> Place:
        """Walk to the place to write a file, and return it.

        If `makes_parents` is True, create missing directories. If `is_planned` is True, missing
        directories are not created but become part of the name.

        Raises: Escape if the path leads to a forbidden place. Raises OSError if no file can be
        written at the place, for example because a directory is missing.
        """
        self._turn_to(self._path)
        if self._path.endswith("/"):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        for name, mode in self._steps():
            if not self._to_go:
                if mode is not None and stat.S_ISDIR(mode):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                return self._place_at(name)
            if mode is None:
                self._require_makeable(name, makes_parents=makes_parents)
                if is_planned:
                    rest = "/".join((name, *reversed(self._to_go)))
                    return self._place_at(rest, is_new_folder=True)
                os.mkdir(name, dir_fd=self._held[-1])
            self._enter(name)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def _steps(self) -> Iterator[tuple[str, int | None]]:
        """Yield each name on the path that is not a link, and its file mode.

        Shape: the mode of a name that does not exist is None. Links and ``..`` are followed
        before the next name is yielded. The caller enters a yielded directory before it takes the
        next name.
        Raises: Escape if the path leads to a place that is closed to tools.
        """
        while self._to_go:
            name = self._to_go.pop()
            if name == "..":
                self._back()
                continue
            self._require_open(name)
            mode = self._mode_of(name)
            if mode is not None and stat.S_ISLNK(mode):
                self._follow(os.readlink(name, dir_fd=self._held[-1]))
            else:
                yield name, mode

    def _mode_of(self, name: str) -> int | None:
        """Return the file mode of `name` in the current directory; None if it does not exist."""
        try:
            return os.stat(name, dir_fd=self._held[-1], follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None

    def _place_at(self, name: str, *, is_new_folder: bool = False) -> Place:
        names = (*self._names, *name.split("/"))
        path = "/".join((self._roots[1].rstrip("/"), *names))
        is_dotted = self._is_dotted(names)
        return Place(self._held[-1], name, self._has_walls, path, is_new_folder, is_dotted)

    def _is_dotted(self, names: Sequence[str]) -> bool:
        """Return True if the given path, or its target, has a name that starts with a dot.

        Folders above the working directory, and paths in a flow's own record folder, do not count.
        """
        place = (*self._root_names, *map(folded_name, names))
        floors = self._floors
        if floors.in_record(place) is not None and floors.in_record(self._work) is None:
            return False
        work = self._work if place[: len(self._work)] == self._work else ()
        given = names_of_text(self._path)
        if self._path.startswith("/"):
            given = given[len(work) :]
        return is_hidden(given) or is_hidden(names[len(work) - len(self._root_names) :])

    def _require_makeable(self, name: str, *, makes_parents: bool) -> None:
        if not makes_parents or ".." in self._to_go:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        whole = (*self._names, name, *reversed(self._to_go))
        if self._refuses(whole):
            raise Escape("is protected")

    def _refuses(self, names: Sequence[str]) -> bool:
        floors, root = self._floors, self._root_names
        return is_refused(self._rule, floors, root, names, is_absolute=self._is_absolute)

    def _require_open(self, *name: str) -> None:
        """Reject a closed place, unless it is a folder on the path to the flow's record folder."""
        names = (*self._names, *name)
        place = (*self._root_names, *map(folded_name, names))
        if self._to_go and self._floors.leads_to_record(place):
            return
        if names and self._refuses(names):
            if self._rule is is_protected:
                raise Escape("is protected and is not written")
            raise Escape("holds credentials or perdure's own data and is not read")

    def _reached_file(self, name: str) -> OpenPath:
        above = self._reached(self._names, self._held[-1], is_file=False)
        descriptor = open_regular(self._held[-1], name, may_be_linked=above.may_be_linked())
        self._held.append(descriptor)
        return self._reached((*self._names, name), descriptor, is_file=True)

    def _reached(self, names: Sequence[str], descriptor: int, *, is_file: bool) -> OpenPath:
        return OpenPath(
            (*self._shown, *names),
            descriptor,
            is_file,
            self._is_absolute,
            self._has_walls,
            self._floors,
            self._root_names,
        )

    def _turn_to(self, path: str) -> None:
        """Continue the walk with the names of `path`, followed by the remaining names.

        If `path` is absolute, the walk first returns to the root.
        """
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
        raise Escape("leads out of the working directory")

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
            raise Escape("leads out of the working directory")
        self._names.pop()
        os.close(self._held.pop())

    def close(self) -> None:
        """Close all descriptors."""
        while self._held:
            os.close(self._held.pop())
