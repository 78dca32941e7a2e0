"""The rows of an index and of its log, as the search service reads them.

The search service is written once for all backends, as coroutines that use the protocols of this
module. PostgreSQL answers asynchronously, over its connection. SQLite answers at once, so `run_now`
runs the coroutines of the search service on the thread of a connection. All answers of one reader
or writer belong to one snapshot or one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from perdure.session.search.parts import sizes
from perdure.session.search.parts.blocks import Block
from perdure.session.search.parts.builder import Part, Text
from perdure.session.search.parts.lookup import Head, Looked, Read
from perdure.session.search.words import VERSION
from perdure.stores.scan import Found

T = TypeVar("T")

NO_END = 2**62
"""Greater than every position, number and moment."""

_PLACE = "@"

Span = tuple[int, int]
"""A time span: its first moment, and the moment after its last one. Units: Unix milliseconds."""


class Mark(NamedTuple):
    """The end of the indexed part of the log: a position of an entry and the number of a stream.

    `version` identifies the rules of the index, `parts` counts the built parts, and `forgotten`
    counts the removals of texts.
    """

    version: int = 0
    entry: int = 0
    stream: int = 0
    parts: int = 0
    forgotten: int = 0

    @property
    def usable(self) -> Mark:
        """The index mark to use.

        If the index was built by the rules of another version, the result is the mark of an empty
        index.
        """
        return self if self.version == VERSION else Mark(VERSION, forgotten=self.forgotten)

    def has(self, position: int) -> bool:
        """Return whether the text at `position` is indexed.

        A negative position belongs to the title of a stream.
        """
        return position <= self.entry and -position <= self.stream


class Progress(NamedTuple):
    """The indexing progress.

    `behind` is the number of entries not yet indexed, and `loose` is the number of texts in no
    index part. `entry` and `stream` are the end of the log, in the form of `Mark`.
    """

    behind: int
    entry: int
    stream: int
    loose: int

    @property
    def is_due(self) -> bool:
        """Whether the index should be updated, because a search would scan too many texts."""
        return sizes.is_due(self.behind, self.loose)


class LooseRow(NamedTuple):
    """The row of a text that is not yet in a part of the index.

    `filters` are separated by spaces. `said` contains the words, separated by spaces. The first of
    `filters` begins with "@" and gives the text's position in its session.
    """

    position: int
    at: int
    length: int
    filters: str
    said: str | bytes

    @property
    def words(self) -> str:
        """The joined words of the text. Raises: ValueError for a damaged row."""
        return self.said if isinstance(self.said, str) else self.said.decode()

    @property
    def text(self) -> Text:
        """The text in this row. Raises: ValueError, AttributeError for a damaged row."""
        place, *filters = self.filters.split()
        words = self.words.split()
        return Text(self.position, self.at, words, filters, int(place.removeprefix(_PLACE)))


def loose_row(text: Text, joined_words: str) -> LooseRow:
    """Return the row of a text that is not yet in a part of the index."""
    filters = " ".join([f"{_PLACE}{text.place}", *text.filters])
    return LooseRow(text.position, text.at, len(text.words), filters, joined_words)


class PartRow(NamedTuple):
    """The row of an index part: its number, and the number of its texts.

    `last` is the position of the last text. `first_at` and `last_at` are the earliest and the
    latest time of the texts.
    """

    number: int
    size: int
    last: int
    first_at: int
    last_at: int


class BlockStart(NamedTuple):
    """The first text of a block: the index part, the number in this part, and the text's position.

    `last` is the position of the last text of the index part.
    """

    part: int
    number: int
    position: int
    last: int


def part_row(number: int, part: Part) -> PartRow:
    """Return the row of the index part `part`."""
    ats = [said.at for said in part.said] or [0]
    last = part.said[-1].position if part.said else 0
    return PartRow(number, len(part.said), last, min(ats), max(ats))


class NextTexts(NamedTuple):
    """The next texts of the log in order, each with the index mark after the text is indexed.

    `end` is the index mark after all texts in `found` are indexed.
    """

    found: Sequence[tuple[Found, Mark]]
    end: Mark


class IndexReader(Protocol):
    """Reads the tables of one namespace's index."""

    async def mark(self) -> Mark:
        """Return the stored index mark; its version is 0 if nothing was indexed."""
        ...

    async def heads(self, span: Span) -> list[Head]:
        """Return the index parts that have texts in the time span `span`."""
        ...

    async def loose(self, span: Span) -> Sequence[LooseRow]:
        """Return the texts in the time span `span` that are not yet in a part of the index."""
        ...

    async def pages(self, parts: Sequence[int], keys: Sequence[str]) -> list[Looked]:
        """Return, for each index part and key, the index page that may contain the key."""
        ...

    async def pages_from(self, parts: Sequence[int], prefixes: Sequence[str]) -> list[Looked]:
        """Return, for each index part and prefix, the pages that may have keys with the prefix."""
        ...

    async def blocks(self, wanted: Sequence[Read]) -> Iterable[Block]:
        """Return the index blocks that contain the `wanted` texts.

        In each index part, the numbers of the wanted texts are ascending.
        """
        ...

    async def blocks_of(self, part: int) -> Iterable[Block]:
        """Return all blocks of texts in one index part, ascending."""
        ...

    async def block_starts(self, first: int = -NO_END, last: int = NO_END) -> Sequence[BlockStart]:
        """Return the beginnings of the blocks of texts, ascending in each index part.

        The call reads only the index parts that may have a text at a position from `first` to
        `last`.
        """
        ...

    async def part(self, number: int) -> Part:
        """Return the index part with the number `number`."""
        ...

    async def part_rows(self) -> list[PartRow]:
        """Return all index parts, ascending by number."""
        ...

    async def loose_after(self, position: int, most: int) -> list[LooseRow]:
        """Return the next `most` texts after `position` that are in no index part, ascending."""
        ...

    async def homeless(self) -> Iterable[int]:
        """Return the numbers of index parts whose texts are stored but whose own row is missing."""
        ...

    async def stray_pages(self) -> Sequence[int]:
        """Return the numbers of index parts whose pages are stored but whose own row is missing."""
        ...

    async def loose_at(self, positions: Sequence[int]) -> int:
        """Return how many of the texts at `positions` are not yet in a part of the index."""
        ...


class IndexWriter(Protocol):
    """Changes the tables of one namespace's index, in a transaction."""

    @property
    def reader(self) -> IndexReader:
        """Return a reader of the same tables, in the same transaction."""
        ...

    async def set_mark(self, mark: Mark) -> None:
        """Store the index mark."""
        ...

    async def clear(self) -> None:
        """Remove all texts and parts."""
        ...

    async def add_loose(self, rows: Sequence[LooseRow]) -> None:
        """Add texts that are not yet in a part of the index."""
        ...

    async def remove_loose(self, positions: Sequence[int]) -> None:
        """Remove the texts at `positions` that are not yet in a part of the index."""
        ...

    async def add_part(self, part: Part) -> None:
        """Add a part to the index."""
        ...

    async def remove_part(self, number: int) -> None:
        """Remove an index part and its texts."""
        ...


class IndexedLog(Protocol):
    """Reads the searchable log of one namespace."""

    @property
    def address(self) -> str:
        """The address of the store, for error messages."""
        ...

    async def compute(self, work: Callable[[], T]) -> T:
        """Run `work`, which may be slow, without blocking other tasks."""
        ...

    def behind(self, mark: Mark) -> AsyncIterator[Sequence[Found]]:
        """Yield all texts of the log after the index mark `mark`, in batches."""
        ...

    def missing(self, mark: Mark, indexed: Container[int]) -> AsyncIterator[Sequence[Found]]:
        """Yield texts before the index mark `mark` with positions not in `indexed`, in batches."""
        ...

    async def texts_at(self, positions: Sequence[int]) -> Sequence[Found]:
        """Return the texts at `positions`, in any order. Positions without a text are skipped."""
        ...

    async def on_branch(self, texts: Sequence[Found]) -> Sequence[bool]:
        """Return, for each text, whether the text is on the current branch of its session.

        ``Found.target`` is the entry that the branch must contain.
        """
        ...


class SteppedLog(IndexedLog, Protocol):
    """A log that selects the texts of the next index step."""

    async def next_texts(self, mark: Mark) -> NextTexts:
        """Return the texts after the index mark `mark`, as many as ``sizes`` allows in one step."""
        ...


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`, which never waits, without an event loop, and return its result."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise RuntimeError("a search of an SQLite file waited for an event loop; report this")
