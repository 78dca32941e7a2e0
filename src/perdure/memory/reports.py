"""The results of imports into the memory."""

from __future__ import annotations

from perdure.bounds.short_repr import ShortRepr


class Unread(ShortRepr, frozen=True):
    """A file that was not indexed, or not whole, and why."""

    path: str
    reason: str


class ImportedFolder(ShortRepr, frozen=True):
    """The result of an import of a knowledge folder.

    Shape: `files` and `passages` count what is indexed now; `added`, `changed` and `removed` name
    the files that differ from the last import. A file among `problems` that was indexed before
    keeps its passages.
    """

    files: int
    passages: int
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[Unread, ...] = ()


class UnreadLine(ShortRepr, frozen=True):
    """A line that became no fact, and why. Shape: lines count from 1."""

    line: int
    reason: str


class ImportedFacts(ShortRepr, frozen=True):
    """The result of an import of facts; `known` counts the lines whose fact was there already."""

    added: int
    known: int
    problems: tuple[UnreadLine, ...] = ()
