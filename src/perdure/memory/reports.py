"""The results of imports into the memory."""

from __future__ import annotations

import msgspec

from perdure.bounds.short_repr import short_repr


class Unread(msgspec.Struct, frozen=True):
    """A file that was not indexed, or not whole, and why."""

    __repr__ = short_repr

    path: str
    reason: str


class ImportedFolder(msgspec.Struct, frozen=True):
    """The result of an import of a knowledge folder.

    Shape: `files` and `passages` count what is indexed now; `added`, `changed` and `removed` name
    the files that differ from the last import. A file among `problems` that was indexed before
    keeps its passages.
    """

    __repr__ = short_repr

    files: int
    passages: int
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[Unread, ...] = ()


class UnreadLine(msgspec.Struct, frozen=True):
    """A line that became no fact, and why. Shape: lines count from 1."""

    __repr__ = short_repr

    line: int
    reason: str


class ImportedFacts(msgspec.Struct, frozen=True):
    """The result of an import of facts; `known` counts the lines whose fact was there already."""

    __repr__ = short_repr

    added: int
    known: int
    problems: tuple[UnreadLine, ...] = ()
