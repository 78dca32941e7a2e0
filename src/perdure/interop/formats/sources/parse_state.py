"""The state of parsing a source: the items made from its records, and problems of its lines.

This module does not depend on a file format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from perdure.codecs.fields import Fields, fields_of
from perdure.codecs.lines import Line, read_line
from perdure.codecs.media import Media
from perdure.interop.formats.items import Item, ItemBody, Malformed, ParsedSource, SourceHeader
from perdure.interop.formats.sources.content import Content, Held, lines_in
from perdure.interop.formats.sources.outline import Items, Outline, Whole
from perdure.session.kinds import TreeBody
from perdure.session.messages import Message
from perdure.session.notes import ImportedRecord, SessionInfoChanged

Progress = Callable[[int, int], None]
"""A callback that is called now and then with the number of bytes read, and the total number."""

WARNINGS_OF_A_SORT = 20
"""Number of warnings of one sort that are listed; further warnings are only counted."""

_TREE = (Message, TreeBody, bytes)


_SHED: Fields = {}


class Record(msgspec.Struct, gc=False):
    """A record of a source that can be added to the tree.

    `id` and `parent` are foreign ids. A record whose `parent` is None is a root. If the file has no
    record with the id `parent`, the item at the position `fallback` becomes the parent. If the
    record's line was dropped from memory, `shed_bytes` is the length of the line.
    """

    line: Line
    fields: Fields
    id: str | None = None
    parent: str | None = None
    fallback: int | None = None
    at: int | None = None
    is_placed: bool = False
    shed_bytes: int | None = None


class SourceDraft:
    """The data that was read from a source so far. Items are added to `items`."""

    def __init__(
        self, format: str, content: Content | None = None, items: Items | None = None
    ) -> None:
        self.format = format
        self.items: Items = Whole() if items is None else items
        self.content: Content = Held(b"") if content is None else content
        self.media = Media(is_kept=not isinstance(items, Outline))
        self.header_lines: list[int] = []
        self.at: int | None = None  # time of the newest record, for records without one
        self._is_whole = isinstance(self.items, Whole)
        self._blank: list[int] = []
        self._malformed: list[Malformed] = []
        self._told = 0
        self._warnings: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        self.lines = 0

    def count_lines(self) -> None:
        """Count all lines and blank lines of a source that is not read line by line."""
        for line in lines_in(self.content):
            self.lines = line.number
            if line.is_blank:
                self.take_blank(line.number)

    def count_header_lines(self) -> None:
        """Count the lines without an item as header lines, after all items were added."""
        told = {item.number for item in self.items}
        lines = (line for line in lines_in(self.content) if not line.is_blank)
        self.header_lines += [line.number for line in lines if line.number not in told]

    def take_blank(self, number: int) -> None:
        """Count the blank line `number`."""
        if self._is_whole:  # of a larger source they are not needed one by one
            self._blank.append(number)

    def release_line(self, record: Record) -> None:
        """Drop the line of `record` from memory while `record` waits for its parent.

        If the whole source is in memory, this method does nothing.
        """
        if self._is_whole:
            return
        line = record.line
        record.shed_bytes = len(line.content)
        record.line = Line(line.number, line.offset, b"", line.is_ended)
        if "type" in record.fields:  # otherwise it could not be read, and little is known of it
            record.fields = _SHED

    def restore(self, record: Record) -> None:
        """Read the line of `record` from the file again if the line is no longer in memory."""
        if record.shed_bytes is None:
            return
        line = record.line
        content = self.content.read(line.offset, record.shed_bytes)
        record.line = Line(line.number, line.offset, content, line.is_ended)
        record.shed_bytes = None
        read = fields_of(read_line(content).value)
        record.fields = record.fields if read is None else read

    def report_malformed(self, line: Line, reason: str) -> None:
        """Report that `line` could not be read completely."""
        self._malformed.append(Malformed(line.number, reason))
        self.warn("malformed", f"line {line.number}: {reason}")

    def newly_malformed(self) -> list[int]:
        """Return the numbers of the lines that were reported as malformed since the last call."""
        fresh = sorted(line.number for line in self._malformed[self._told :])
        self._told = len(self._malformed)
        return fresh

    def warn(self, sort: str, text: str) -> None:
        """Report the warning `text`.

        Only the first `WARNINGS_OF_A_SORT` warnings of a `sort` are stored.
        """
        self._counts[sort] = self._counts.get(sort, 0) + 1
        if self._counts[sort] <= WARNINGS_OF_A_SORT:
            self._warnings.setdefault(sort, []).append(text)

    def check_version(self, line: Line, version: float | None, newest: int) -> None:
        """Warn if the `version` in the header at `line` is unknown.

        `newest` is the newest known version.
        """
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
        group: str | None = None,
        otherwise: ItemBody | None = None,
    ) -> int:
        """Make an item of `record`, and return its position.

        `hangs_on` is the position of the parent or, for a side item, of the item that the side item
        is about. `otherwise` is an alternative body that ``Items.choose`` can select later.
        """
        known = None
        if references is not None:
            known = {name: at for name, at in references.items() if at is not None} or None
        is_tree = isinstance(body, _TREE)
        self.at = record.at if record.at is not None else self.at
        item = Item(
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
            group=group,
            meta=meta,
        )
        return self.items.add(item, otherwise)

    def add_chain(self, record: Record, bodies: Sequence[ItemBody], leaf: int | None) -> int | None:
        """Add an item for each of `bodies`, each a child of the previous one; return the new leaf.

        A message without bodies becomes a side entry.
        """
        if not bodies:
            self.add(record, ImportedRecord(self.format, "message"), leaf)
        for ordinal, body in enumerate(bodies):
            leaf = self.add(record, body, leaf, ordinal=ordinal)
        return leaf

    def add_title(self, record: Record, title: str | None, *, ordinal: int = 0) -> None:
        """Add an item that sets the title of the session, unless `title` is blank."""
        if title := (title or "").strip():
            self.add(record, SessionInfoChanged(title=title), None, ordinal=ordinal)

    def put(self, item: Item) -> int:
        """Fast path of `add`: add the complete `item`, and return its position."""
        if item.at is None:
            item.at = self.at
        else:
            self.at = item.at
        return self.items.add(item)

    def next_below(self, ancestor: int | None, leaf: int | None) -> int | None:
        """Return the item after `ancestor` on the branch to `leaf`.

        Return None if `ancestor` is not on that branch.
        """
        following = None
        while leaf is not None and leaf != ancestor:
            following, leaf = leaf, self.items[leaf].parent
        return following if leaf == ancestor else None

    def finish(
        self, header: SourceHeader | None, leaf: int | None, cwd: str | None = None
    ) -> ParsedSource:
        """Return the parsed source; if it has no `header`, its working folder is `cwd`.

        A missing header causes a warning. Call this method after the whole source was read.
        """
        if header is None:
            self.warn("header", "it has no header: no session id, no working directory")
            header = SourceHeader(cwd=cwd)
        items = self.items
        return ParsedSource(
            format=self.format,
            header=header,
            items=items.items if isinstance(items, Whole) else _to_outline(items),
            leaf=leaf,
            blobs=self.media.blobs,
            lines=self.lines,
            malformed=tuple(sorted(self._malformed)),
            header_lines=tuple(self.header_lines),
            blank_lines=tuple(self._blank),
            warnings=self._cut_warnings(),
        )

    def _cut_warnings(self) -> tuple[str, ...]:
        cut: list[str] = []
        for sort, texts in self._warnings.items():
            cut += texts
            if self._counts[sort] > len(texts):
                cut.append(f"{self._counts[sort] - len(texts)} more like the last one ({sort})")
        return tuple(cut)


def _to_outline(items: Items) -> Outline:
    assert isinstance(items, Outline), "items that were passed on are in nobody's hands"
    return items
