"""The results of imports into the memory."""

from __future__ import annotations

from perdure.bounds.short_repr import ShortRepr


class Unread(ShortRepr, frozen=True):
    """A file that was not indexed completely, and the reason."""

    path: str
    reason: str


class ImportedFolder(ShortRepr, frozen=True):
    """The result of an import of a knowledge folder.

    Shape: `files` and `passages` count what is indexed of the folder after the import. `added`,
    `changed` and `removed` name the files that differ from the last import. A file among `problems`
    that was indexed before stays indexed with its old passages.
    """

    files: int
    passages: int
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[Unread, ...] = ()


class UnreadLine(ShortRepr, frozen=True):
    """A line that did not become a fact, and the reason. Shape: lines count from 1."""

    line: int
    reason: str


class ImportedFacts(ShortRepr, frozen=True):
    """The result of an import of facts; `known` counts the lines whose fact already existed."""

    added: int
    known: int
    problems: tuple[UnreadLine, ...] = ()
