"""Read a source with the reader of its format.

A small source is read in one pass, and a larger source in two passes.
Invariant: for a source longer than `Bounds.whole_bytes`, only its outline, the current line, and
the next items to return are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Protocol

import msgspec

from perdure.codecs.fields import Fields, fields_of, name_in
from perdure.codecs.lines import Line, ReadLine, plain_fields, read_line
from perdure.interop.formats.items import Item, ParsedSource, SourceHeader
from perdure.interop.formats.sources.content import Content, Held, batches_in
from perdure.interop.formats.sources.outline import Items, Outline, PassingItems, Whole
from perdure.interop.formats.sources.parent_links import Leaf, Linker
from perdure.interop.formats.sources.parse_state import Progress, Record, SourceDraft


class Bounds(msgspec.Struct, frozen=True):
    """Limits of how much of a source is in memory at the same time.

    Units: bytes of the source. A source of up to `whole_bytes` is read completely into memory and
    becomes one commit. For a longer source, each commit contains approximately `piece_bytes`.
    """

    whole_bytes: int = 2 * 1024 * 1024
    piece_bytes: int = 2 * 1024 * 1024


BOUNDS = Bounds()


class LineReader:
    """The reader of a format: it gets the lines of a source and adds items to its draft.

    A subclass that sets no `linker` reads the records as one chain. `leaf` is the end of the
    conversation so far. `header` describes the session; it is None until the line with this data
    was read. `foreign` is the reason for rejecting JSON that is no record of the format.
    """

    linker: Linker | None = None
    foreign: ClassVar[str]

    def __init__(self, draft: SourceDraft) -> None:
        self.draft = draft
        self.leaf = Leaf()
        self.header: SourceHeader | None = None

    @property
    def instead(self) -> Make | None:
        """A function that creates another reader, or None if the source need not be read again.

        The reader knows only after the whole source was read whether it must be read again.
        """
        return None

    def take_plain(self, _fields: Fields, _number: int, _offset: int, _length: int, /) -> bool:
        """Fast path: add the line `fields` if it has the most common form, else return False.

        The effect is the same as that of `take`, but the call is faster. The fast path does not
        place records that wait for their parents.
        """
        return False

    def take(self, line: Line, reading: ReadLine) -> None:
        """Read one line."""
        if not reading.is_json:
            self.take_broken(line, reading.problem or "")
            return
        fields = fields_of(reading.value)
        if fields is None or not self.accepts(fields):
            self.report_gap(line, self.foreign)
        else:
            self.take_record(Record(line, fields))

    def take_broken(self, line: Line, problem: str) -> None:
        """Read a line that is not JSON."""
        self.report_gap(line, problem)

    def report_gap(self, line: Line, reason: str) -> None:
        """Report that `line` is no record.

        `line` might have been the parent of the next record.
        """
        self.draft.report_malformed(line, reason)
        if self.linker is not None:
            self.linker.has_gap = True

    @staticmethod
    def accepts(fields: Fields) -> bool:
        """Return whether the JSON object `fields` is a record of the format."""
        del fields
        return True

    def take_record(self, record: Record) -> None:
        """Read one record. `record` has its line and fields, but no ids and no time yet."""
        raise NotImplementedError

    def finish(self) -> ParsedSource:
        """Return the parsed source; a source without a header has no session id."""
        return self.draft.finish(self.header, self.leaf.node)


def has_type(fields: Fields) -> bool:
    """Return whether the record `fields` has a type."""
    return name_in(fields, "type") is not None


Make = Callable[[SourceDraft], LineReader]
"""A function that creates the reader of a format."""


class Stretch(msgspec.Struct, frozen=True):
    """The result of reading one piece of a source; the piece ends at the byte offset `end`.

    Each piece begins where the previous piece ended.
    Shape: `items` follow the items of the previous piece, but their lines can be in an earlier
    piece. `blobs` are the media that the items reference. `malformed` are numbers of lines.
    `is_last` marks the last piece, whose `end` is the end of the source.
    """

    end: int
    items: list[Item]
    blobs: tuple[bytes, ...]
    malformed: tuple[int, ...]
    is_last: bool


class Source(msgspec.Struct, frozen=True):
    """A source that was read once.

    If `parsed` lacks the bodies of the items, `again` creates the reader for a second pass.
    """

    content: Content
    parsed: ParsedSource
    again: Make | None = None

    def stretches(self, begin: int = 0, piece_bytes: int = BOUNDS.piece_bytes) -> Iterator[Stretch]:
        """Yield the items with their bodies, piece by piece.

        The `end` of a piece is never smaller than the offset `begin`.
        Raises: FormatError if the source has changed.
        """
        if self.again is not None:
            return _stretches(self.content, self.parsed, self.again, begin, piece_bytes)
        parsed = self.parsed
        numbers = tuple(dict.fromkeys(line.number for line in parsed.malformed))
        end = self.content.length
        return iter((Stretch(end, list(parsed.items), parsed.blobs, numbers, is_last=True),))


class Parse(Protocol):
    """Parses a whole source in memory; the items have their bodies."""

    def __call__(self, content: bytes, progress: Progress | None = None, /) -> ParsedSource: ...


def whole_parser(format: str, make: Make) -> Parse:
    """Return a parser for whole sources of a format; it also reads damaged sources."""

    def parse(content: bytes, progress: Progress | None = None, /) -> ParsedSource:
        return _parse(Held(content), format, make, Whole, progress)[0]

    return parse


def read_source(
    content: Content,
    format: str,
    make: Make,
    progress: Progress | None = None,
    bounds: Bounds = BOUNDS,
) -> Source:
    """Read `content` once with the reader that `make` creates.

    For a small source, the result has the bodies of the items; for a larger source, it has only the
    places of the items.
    """
    if content.length <= bounds.whole_bytes:
        content = Held(content.read(0, content.length), content.name)
        return Source(content, _parse(content, format, make, Whole, progress)[0])
    parsed, again = _parse(content, format, make, Outline, progress)
    return Source(content, parsed, again)


def _parse(
    content: Content,
    format: str,
    make: Make,
    items: Callable[[], Items],
    progress: Progress | None,
) -> tuple[ParsedSource, Make]:
    reader = make(SourceDraft(format, content, items()))
    _read_all(reader, progress)
    other = reader.instead
    if other is not None:
        make = other
        reader = make(SourceDraft(format, content, items()))
        _read_all(reader, None)
    return reader.finish(), make


def _read_all(reader: LineReader, progress: Progress | None) -> None:
    for _ in _ends(reader, progress):
        pass


def _stretches(
    content: Content, parsed: ParsedSource, make: Make, begin: int, piece_bytes: int
) -> Iterator[Stretch]:
    assert isinstance(parsed.items, Outline)
    items = PassingItems(parsed.items, content.name)
    reader = make(SourceDraft(parsed.format, content, items))
    media, ended = reader.draft.media, begin
    for end in _ends(reader):
        if end - ended >= piece_bytes or items.waiting_bytes >= piece_bytes:
            ended = max(begin, end)
            malformed = tuple(reader.draft.newly_malformed())
            yield Stretch(ended, items.take(), media.take(), malformed, is_last=False)
    items.check_complete()
    malformed = tuple(reader.draft.newly_malformed())
    yield Stretch(content.length, items.take(), media.take(), malformed, is_last=True)


def _ends(reader: LineReader, progress: Progress | None = None) -> Iterator[int]:
    """Read all lines; yield the offset reached after each line or each placed record."""
    draft, take_plain, linker = reader.draft, reader.take_plain, reader.linker
    begin = end = number = 0
    for lines, is_ended in batches_in(draft.content):
        for place, content in enumerate(lines):
            lines[place] = b""  # free a long line while its items are written
            begin, end = end, end + len(content) + is_ended
            number += 1
            fields = plain_fields(content)
            is_plain = fields is not None and take_plain(fields, number, begin, len(content))
            is_taken = is_plain or _take(reader, Line(number, begin, content, is_ended), fields)
            content, fields = b"", None  # noqa: PLW2901 - free the line
            if is_taken:
                yield end
            while linker is not None and not is_plain and is_taken and linker.place_next():
                yield end
        draft.lines = number
        if progress is not None:
            progress(end, draft.content.length)
    if linker is not None:
        linker.close()
        while linker.place_next():
            yield end


def _take(reader: LineReader, line: Line, fields: Fields | None) -> bool:
    """Process a line that the fast path did not add; return False if the line is blank."""
    if line.is_blank:
        reader.draft.take_blank(line.number)
        return False
    reading = read_line(line.content) if fields is None else ReadLine(fields)
    if reading.is_json and reading.problem:
        reader.draft.warn("mended", f"line {line.number}: {reading.problem}")
    reader.take(line, reading)
    return True
