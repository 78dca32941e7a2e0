"""Walk a directory of the jail, in a fixed order, without following links."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import Literal

import msgspec

from perdure.bounds.limits import require_within
from perdure.tools.paths.jail import MAX_DEPTH, OpenPath, open_directory, open_regular

MAX_VISITED = 20_000
"""Maximum number of directory entries that a walk visits."""

_NOT_ENTERED = frozenset((".git",))  # binary objects, numerous enough to hide the rest


class Found(msgspec.Struct, frozen=True):
    """An entry of a directory. Shape: `names` is the path from the start of the walk to the entry.

    `parent` is a descriptor of the entry's directory, open until the next step of the walk.
    """

    names: tuple[str, ...]
    kind: Literal["file", "directory", "link", "other"]
    is_secret: bool
    parent: int

    @property
    def name(self) -> str:
        """Return the name of the entry, the last one in `names`."""
        return self.names[-1]


def entries_below(start: OpenPath, *, is_recursive: bool) -> Iterator[Found]:
    """Yield all entries below the directory `start`, sorted by name.

    A directory comes before its content. ``.git`` and secret directories are yielded but not
    entered. The walk ends after `MAX_VISITED` entries.
    """
    found = _below(start, start.descriptor, (), is_recursive=is_recursive)
    return islice(found, MAX_VISITED)


class TooMuch(Exception):
    """Raised when a walk reaches a limit."""


def files_below(start: OpenPath, glob: str | None) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the path of each file, as names below the root folder, and an open file descriptor.

    The descriptor is closed when the next file is requested. If `start` is a directory, the call
    yields the files below it that match `glob`, at any depth; files with credentials are skipped.
    Raises: TooMuch if `start` contains `MAX_VISITED` entries or more.
    """
    if start.is_file:
        yield start.names, start.descriptor
        return
    for visited, entry in enumerate(entries_below(start, is_recursive=True), 1):
        if visited == MAX_VISITED:
            raise TooMuch
        if entry.kind != "file" or entry.is_secret:
            continue
        if glob is not None and not matches(glob, entry.names):
            continue
        try:
            is_linked = start.may_be_linked(entry.names)
            descriptor = open_regular(entry.parent, entry.name, may_be_linked=is_linked)
        except OSError:
            continue  # not readable, removed, replaced by a link, or with a second name
        try:
            yield (*start.names, *entry.names), descriptor
        finally:
            os.close(descriptor)


def _below(
    start: OpenPath, directory: int, names: tuple[str, ...], *, is_recursive: bool
) -> Iterator[Found]:
    with os.scandir(directory) as scan:
        present = sorted(islice(scan, MAX_VISITED), key=lambda entry: entry.name)
    for entry in present:
        here = (*names, entry.name)
        found = Found(here, _kind_of(entry), start.is_secret(here), directory)
        yield found
        if not is_recursive or found.kind != "directory" or len(here) >= MAX_DEPTH // 2:
            continue
        if found.is_secret or entry.name in _NOT_ENTERED:
            continue
        try:
            inner = open_directory(directory, entry.name)
        except OSError:
            continue  # not readable, removed, or replaced by a link
        try:
            yield from _below(start, inner, here, is_recursive=True)
        finally:
            os.close(inner)


def _kind_of(entry: os.DirEntry[str]) -> Literal["file", "directory", "link", "other"]:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def matches(pattern: str, names: tuple[str, ...]) -> bool:
    """Return True if the path `names` matches the glob `pattern`.

    A pattern without a slash is compared with the last name of the path. A pattern with a slash is
    compared with the whole path, where ``**`` matches any number of directories. `*`, `?` and
    `[...]` match only within one name. The number of comparisons is at most the number of parts in
    the pattern times the number of `names`.
    Raises: LimitExceeded if the pattern is too long.
    """
    require_within("glob_characters", len(pattern), "the glob pattern")
    if "/" not in pattern:
        return fnmatchcase(names[-1], pattern)
    parts = tuple(part for part in pattern.split("/") if part not in ("", "."))
    reached = _past_stars(parts, {0})
    for name in names:
        inside = {part for part in reached if part < len(parts)}
        stayed = {part for part in inside if parts[part] == "**"}
        passed = {part + 1 for part in inside - stayed if fnmatchcase(name, parts[part])}
        reached = _past_stars(parts, stayed | passed)
    return len(parts) in reached


def _past_stars(parts: tuple[str, ...], reached: set[int]) -> set[int]:
    """Return the positions in `reached`, and the positions reached from these by skipping ``**``.

    A ``**`` can be skipped, because it also matches no name.
    """
    found: set[int] = set()
    for place in reached:
        at = place
        while at not in found:
            found.add(at)
            if at == len(parts) or parts[at] != "**":
                break
            at += 1
    return found
