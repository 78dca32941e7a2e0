"""How much a namespace holds, what is largest in it, and how fast it grows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from perdure.session.ids import StreamId

LARGEST = 10
DAYS = 30
DAY_MS = 86_400_000


class StreamSize(msgspec.Struct, frozen=True):
    """One session or flow: `bytes` are those of its own bodies, contents left out."""

    stream: StreamId
    kind: str
    name: str
    is_fork: bool
    entries: int
    bytes: int


class Day(msgspec.Struct, frozen=True):
    """What was committed on one day (UTC, ``2026-11-21``)."""

    day: str
    entries: int
    bytes: int


class FileFigures(msgspec.Struct, frozen=True):
    """What a database file is made of. Units: bytes.

    `tables` and `indexes` are the log's, `search` the full-text index, `free` pages that hold
    nothing (`store vacuum` gives them back), `log` the write-ahead log beside the file.
    """

    file: int
    tables: int
    indexes: int
    search: int
    free: int
    log: int


class NamespaceFigures(msgspec.Struct, frozen=True):
    """One namespace.

    Shape: `largest` are the `LARGEST` streams by bytes; `growth` the days of the last `DAYS` on
    which anything was committed, the newest first.
    """

    namespace: str
    sessions: int
    flows: int
    forks: int
    entries: int
    bytes: int
    contents: int
    content_bytes: int
    largest: tuple[StreamSize, ...]
    growth: tuple[Day, ...]


class StoreFigures(msgspec.Struct, frozen=True):
    """A store as one namespace sees it.

    Shape: `namespaces` holds the namespace of the handle, and no other. `file` is None where the
    store is not in one file; its sizes are those of all namespaces together.
    """

    address: str
    namespaces: tuple[NamespaceFigures, ...]
    file: FileFigures | None = None


def figures_of(
    namespace: str,
    streams: Iterable[StreamSize],
    growth: Mapping[str, tuple[int, int]],
    contents: tuple[int, int],
) -> NamespaceFigures:
    """What the single figures add up to; `growth` is day -> entries and bytes."""
    sizes = sorted(streams, key=lambda each: (-each.bytes, -each.entries, each.stream))
    days = sorted(growth.items(), reverse=True)
    return NamespaceFigures(
        namespace=namespace,
        sessions=sum(each.kind == "session" for each in sizes),
        flows=sum(each.kind == "flow" for each in sizes),
        forks=sum(each.is_fork for each in sizes),
        entries=sum(each.entries for each in sizes),
        bytes=sum(each.bytes for each in sizes),
        contents=contents[0],
        content_bytes=contents[1],
        largest=tuple(sizes[:LARGEST]),
        growth=tuple(Day(day, entries, total) for day, (entries, total) in days[:DAYS]),
    )


def day_of(at: int) -> str:
    """The day of a time in Unix milliseconds."""
    try:
        return datetime.fromtimestamp(at / 1000, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return "unknown"


class Growth:
    """Counts by day, of commits made since a time."""

    def __init__(self, since: int) -> None:
        self.days: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._since = since

    def add(self, at: int, entries: int, size: int) -> None:
        """Count a commit that was made at `at`."""
        if at >= self._since:
            before = self.days[day_of(at)]
            self.days[day_of(at)] = (before[0] + entries, before[1] + size)
