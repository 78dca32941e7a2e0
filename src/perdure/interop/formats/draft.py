"""A source while it is being read: records find their parents, lines their account.

Records may name a parent that comes later in the file, is missing, or is part of a cycle; each is
still placed once, after its parent where there is one. Nothing here knows a format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from perdure.interop.formats.fields import Fields
from perdure.interop.formats.items import (
    Item,
    ItemBody,
    Malformed,
    ParsedSource,
    SourceHeader,
)
from perdure.interop.formats.lines import Line, Reading, lines_of, read_line
from perdure.interop.formats.parts import Media
from perdure.session.kinds import TreeBody
from perdure.session.messages import Message

Progress = Callable[[int, int], None]
"""Told how many bytes of how many are read, now and then."""

WARNINGS_OF_A_SORT = 20
"""Warnings of one sort that are given in full; the rest is counted."""

_LINES_PER_REPORT = 1_000
_TREE = (Message, TreeBody, bytes)


class Record(msgspec.Struct):
    """A record of a source, ready to be placed.

    `id` and `parent` are foreign ids. `parent` None is a root; `fallback` is the position of the
    item it hangs on when its parent is nowhere in the file.
    """

    line: Line
    fields: Fields
    id: str | None = None
    parent: str | None = None
    fallback: int | None = None
    at: int | None = None
    is_placed: bool = False


class Leaf:
    """The item that the last line of a conversation stands for, in whatever order they come."""

    def __init__(self) -> None:
        self.node: int | None = None
        self._number = 0

    def follow(self, record: Record, node: int | None) -> None:
        """Move to `node`, what `record` stands for, unless a later line was there before."""
        if record.line.number >= self._number:
            self.node, self._number = node, record.line.number


class Draft:
    """What has been read of a source so far."""

    def __init__(self, format: str) -> None:
        self.format = format
        self.items: list[Item] = []
        self.media = Media()
        self.header_lines: list[int] = []
        self.at: int | None = None  # time of the newest record, for those that have none
        self._blank: list[int] = []
        self._malformed: list[Malformed] = []
        self._warnings: dict[str, list[str]] = {}
        self._lines = 0

    def readings(
        self, content: bytes, progress: Progress | None = None
    ) -> Iterator[tuple[Line, Reading]]:
        """The lines of the source that are not blank, each with what it says."""
        for line in lines_of(content):
            if progress is not None and line.number % _LINES_PER_REPORT == 0:
                progress(line.offset, len(content))
            self._lines = line.number
            if line.is_blank:
                self._blank.append(line.number)
            else:
                yield line, read_line(line.content)
        if progress is not None:
            progress(len(content), len(content))

    def count_lines(self, content: bytes) -> None:
        """Account for the lines of a source that is not read line by line."""
        for line in lines_of(content):
            self._lines = line.number
            if line.is_blank:
                self._blank.append(line.number)

    def malformed(self, line: Line, reason: str) -> None:
        """Report that `line` could not be read, or not fully."""
        self._malformed.append(Malformed(line.number, reason))
        self.warn("malformed", f"line {line.number}: {reason}")

    def warn(self, sort: str, text: str) -> None:
        """Report `text`; many warnings of one sort are cut short."""
        self._warnings.setdefault(sort, []).append(text)

    def check_version(self, line: Line, version: float | None, newest: int) -> None:
        """Report that the header at `line` is of a `version` nobody here knows."""
        if version is not None and version not in range(1, newest + 1):
            text = (
                f"line {line.number}: it says version {version:g}, and perdure knows {newest} and "
                f"older; it was read as version {newest}, look whether all is there"
            )
            self.warn("version", text)

    def add(
        self,
        record: Record,
        body: ItemBody,
        hangs_on: int | None,
        references: dict[str, int | None] | None = None,
        *,
        ordinal: int = 0,
        meta: Fields | None = None,
    ) -> int:
        """Make `record` an item, below or about the item at `hangs_on`; returns its position."""
        known = None
        if references is not None:
            known = {name: at for name, at in references.items() if at is not None} or None
        is_tree = isinstance(body, _TREE)
        self.at = record.at if record.at is not None else self.at
        self.items.append(
            Item(
                body=body,
                number=record.line.number,
                offset=record.line.offset,
                length=len(record.line.content),
                ordinal=ordinal,
                parent=hangs_on if is_tree else None,
                about=None if is_tree else hangs_on,
                at=self.at,
                alias=record.id if ordinal == 0 else None,
                references=known,
                meta=meta,
            )
        )
        return len(self.items) - 1

    def next_below(self, ancestor: int | None, leaf: int | None) -> int | None:
        """The item that comes after `ancestor` on the branch to `leaf`; None off the branch."""
        following = None
        while leaf is not None and leaf != ancestor:
            following, leaf = leaf, self.items[leaf].parent
        return following if leaf == ancestor else None

    def parsed(self, header: SourceHeader, leaf: int | None) -> ParsedSource:
        """What was read, once nothing more is to come."""
        return ParsedSource(
            format=self.format,
            header=header,
            items=self.items,
            leaf=leaf,
            blobs=self.media.blobs,
            lines=self._lines,
            malformed=tuple(sorted(self._malformed)),
            header_lines=tuple(self.header_lines),
            blank_lines=tuple(self._blank),
            warnings=self._cut_warnings(),
        )

    def _cut_warnings(self) -> tuple[str, ...]:
        cut: list[str] = []
        for sort, texts in self._warnings.items():
            cut += texts[:WARNINGS_OF_A_SORT]
            if len(texts) > WARNINGS_OF_A_SORT:
                cut.append(f"{len(texts) - WARNINGS_OF_A_SORT} more like the last one ({sort})")
        return tuple(cut)


Place = Callable[[Record, int | None], int | None]
"""Makes a record an item below the item given; returns what its children hang on."""


class Linker:
    """Places records below their parents, in file order wherever the parents allow it."""

    def __init__(self, draft: Draft, place: Place) -> None:
        self.nodes: dict[str, int | None] = {}
        self.links = 0
        self._draft = draft
        self._place = place
        self._waiting: dict[str, list[Record]] = {}

    def add(self, record: Record) -> None:
        """Place `record`, now or as soon as its parent is placed."""
        if record.parent is None:
            self.add_below(record, None)
        elif record.parent in self.nodes:
            self.links += 1
            self.add_below(record, self.nodes[record.parent])
        else:
            self._waiting.setdefault(record.parent, []).append(record)

    def add_below(self, record: Record, node: int | None) -> None:
        """Place `record` below the item `node`, and whoever waited for it."""
        record.is_placed = True
        own = self._place(record, node)
        if record.id is None:
            return
        self._name(record, record.id, own)
        if record.id in self._waiting:  # hardly ever: records mostly follow their parents
            self._add_waiting(record.id, own)

    def _name(self, record: Record, id: str, node: int | None) -> None:
        if id in self.nodes:
            self._draft.warn(
                "same id",
                f"line {record.line.number}: an earlier line has its id {id!r} too; both are kept, "
                "and what names that id from here on means this one",
            )
        self.nodes[id] = node

    def _add_waiting(self, placed: str, node: int | None) -> None:
        """Place whoever waited for the record `placed`, which stands for `node`."""
        stack = self._freed(placed, node)
        while stack:
            current, parent = stack.pop()
            current.is_placed = True
            own = self._place(current, parent)
            if current.id is None:
                continue
            self._name(current, current.id, own)
            stack += self._freed(current.id, own)

    def _freed(self, placed: str, node: int | None) -> list[tuple[Record, int | None]]:
        waited = self._waiting.pop(placed, ())
        self.links += len(waited)
        return [(each, node) for each in reversed(waited) if not each.is_placed]

    def finish(self) -> None:
        """Place the records whose parents never came, or wait for each other."""
        orphans = sorted(
            (record for waiting in self._waiting.values() for record in waiting),
            key=lambda record: record.line.number,
        )
        for orphan in orphans:
            if orphan.is_placed:
                continue
            where = "starts a branch" if orphan.fallback is None else "hangs on the entry before it"
            self._draft.warn(
                "no parent",
                f"line {orphan.line.number}: its parent {orphan.parent!r} is not in the file, "
                f"or comes after it in a circle; it {where}",
            )
            self.add_below(orphan, orphan.fallback)
