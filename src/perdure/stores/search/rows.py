"""The rows of an index and of the log beside it, as the search service asks for them.

The service is written once, as coroutines over these protocols. PostgreSQL answers over its
connection; SQLite answers at once, so `run_now` runs the same coroutines on the thread of a
connection. Everything that one object answers is of one moment, or of one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from perdure.session.search.parts import sizes
from perdure.session.search.parts.builder import Part, Text
from perdure.session.search.parts.lookup import Head, Looked, Read, Spoken
from perdure.session.search.words import VERSION
from perdure.stores.scan import Found

T = TypeVar("T")

NO_END = 2**62
"""After every position, every number and every moment."""

_PLACE = "@"

Span = tuple[int, int]
"""The first moment, and the one after the last. Units: Unix milliseconds."""


class Mark(NamedTuple):
    """Up to where the log is indexed: a position of an entry and the number of a stream.

    `version` names the rules of the index; `parts` were built so far; `forgotten` counts how often
    texts were taken out.
    """

    version: int = 0
    entry: int = 0
    stream: int = 0
    parts: int = 0
    forgotten: int = 0

    @property
    def usable(self) -> Mark:
        """The mark; that of an empty index where other rules built the index."""
        return self if self.version == VERSION else Mark(VERSION, forgotten=self.forgotten)

    def has(self, position: int) -> bool:
        """Whether the entry at `position`, or the title if it is negative, is behind the mark."""
        return position <= self.entry and -position <= self.stream


class Progress(NamedTuple):
    """How much of the log is not indexed yet, and up to where it goes; how many texts are loose."""

    behind: int
    entry: int
    stream: int
    loose: int

    @property
    def is_due(self) -> bool:
        """A search would read more than it should."""
        return sizes.is_due(self.behind, self.loose)


class LooseRow(NamedTuple):
    """A text that is in no part: its filters with a space between them, its words joined.

    The first of `filters` is the text's place in its session, which begins with "@".
    """

    position: int
    at: int
    length: int
    filters: str
    said: str | bytes

    @property
    def words(self) -> str:
        """The words, joined. Raises: ValueError for a damaged row."""
        return self.said if isinstance(self.said, str) else self.said.decode()

    @property
    def text(self) -> Text:
        """The text. Raises: ValueError, AttributeError for a damaged row."""
        place, *filters = self.filters.split()
        words = self.words.split()
        return Text(self.position, self.at, words, filters, int(place.removeprefix(_PLACE)))


def loose_row(text: Text, joined_words: str) -> LooseRow:
    """The row of a text that is in no part."""
    filters = " ".join([f"{_PLACE}{text.place}", *text.filters])
    return LooseRow(text.position, text.at, len(text.words), filters, joined_words)


class PartRow(NamedTuple):
    """A part: its number, how many texts it has, their last position, their first and last time."""

    number: int
    size: int
    last: int
    first_at: int
    last_at: int


def part_row(number: int, part: Part) -> PartRow:
    """The row of a part."""
    ats = [said.at for said in part.said] or [0]
    last = part.said[-1].position if part.said else 0
    return PartRow(number, len(part.said), last, min(ats), max(ats))


class NextTexts(NamedTuple):
    """The next texts of the log in order, each with the mark once it is indexed; the mark after."""

    found: Sequence[tuple[Found, Mark]]
    end: Mark


class IndexReader(Protocol):
    """The tables of one namespace's index."""

    async def mark(self) -> Mark:
        """The mark as it is stored; of version 0 where nothing was indexed."""
        ...

    async def heads(self, span: Span) -> list[Head]:
        """The parts that have texts of `span`."""
        ...

    async def loose(self, span: Span) -> Sequence[LooseRow]:
        """The texts of `span` that are in no part."""
        ...

    async def pages(self, parts: Sequence[int], keys: Sequence[str]) -> list[Looked]:
        """Of each part and key, the page that may hold the key."""
        ...

    async def pages_from(self, parts: Sequence[int], prefixes: Sequence[str]) -> list[Looked]:
        """Of each part and prefix, the pages that may hold keys that begin with the prefix."""
        ...

    async def spoken(self, wanted: Sequence[Read], span: Span) -> Iterable[Spoken]:
        """Those of the texts `wanted` that are of `span`, ascending in each part."""
        ...

    async def part(self, number: int) -> Part:
        """The part of that number."""
        ...

    async def part_rows(self) -> list[PartRow]:
        """All parts, ascending by number."""
        ...

    async def loose_after(self, position: int, most: int) -> list[LooseRow]:
        """The next texts after `position` that are in no part, ascending."""
        ...

    async def homeless(self) -> Iterable[int]:
        """The positions of texts whose part is missing."""
        ...


class IndexWriter(Protocol):
    """The tables of one namespace's index, in a transaction that may change them."""

    @property
    def reader(self) -> IndexReader:
        """The same tables."""
        ...

    async def set_mark(self, mark: Mark) -> None:
        """Store the mark."""
        ...

    async def clear(self) -> None:
        """Remove all texts and parts."""
        ...

    async def add_loose(self, rows: Sequence[LooseRow]) -> None:
        """Add texts that are in no part."""
        ...

    async def remove_loose(self, positions: Sequence[int]) -> None:
        """Remove those of the texts at `positions` that are in no part."""
        ...

    async def add_part(self, part: Part) -> None:
        """Add a part."""
        ...

    async def remove_part(self, number: int) -> None:
        """Remove a part with its texts."""
        ...

    async def parts_of(self, positions: Sequence[int]) -> dict[int, int]:
        """How many of the texts at `positions` each part has; 0 stands for no part."""
        ...


class IndexedLog(Protocol):
    """The log of one namespace, as far as it can be searched."""

    @property
    def address(self) -> str:
        """What errors call the store."""
        ...

    async def compute(self, work: Callable[[], T]) -> T:
        """Run `work`, which takes a while, where it keeps no other task waiting."""
        ...

    async def next_texts(self, mark: Mark) -> NextTexts:
        """The texts after `mark`: as many as ``sizes`` allows in one step."""
        ...

    def behind(self, mark: Mark) -> AsyncIterator[Sequence[Found]]:
        """All texts after `mark`, some at a time."""
        ...

    def missing(self, mark: Mark) -> AsyncIterator[Sequence[Found]]:
        """The texts before `mark` that are not in the index, some at a time."""
        ...

    async def texts_at(self, positions: Sequence[int]) -> Sequence[Found]:
        """The texts at `positions`, in any order; those the log does not hold are left out."""
        ...

    async def on_branch(self, texts: Sequence[Found]) -> Sequence[bool]:
        """Whether each of `texts`, or what it is about, is on the branch its session shows."""
        ...


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, none of whose rows has to be waited for."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise RuntimeError("a search of an SQLite file waited for an event loop; report this")
