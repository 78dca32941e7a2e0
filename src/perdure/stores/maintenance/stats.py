"""Size of a namespace, its largest streams, and its growth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from perdure.secrets.mask import mask_secrets
from perdure.session.clock import moment_of
from perdure.session.ids import StreamId

LARGEST = 10
DAYS = 30
DAY_MS = 86_400_000


class StreamSize(msgspec.Struct, frozen=True):
    """The size of a session or flow; `bytes` counts the stream's own bodies, without contents."""

    stream: StreamId
    kind: str
    name: str
    is_fork: bool
    entries: int
    bytes: int


class Day(msgspec.Struct, frozen=True):
    """The entries, and their bytes, that were committed on one day (UTC, ``2026-11-21``)."""

    day: str
    entries: int
    bytes: int


class FileFigures(msgspec.Struct, frozen=True):
    """Sizes of the parts of a database file. Units: bytes.

    `tables` and `indexes` belong to the log, `search` is the full-text index, `free` are empty
    pages (`store vacuum` frees them), and `log` is the write-ahead log file.
    """

    file: int
    tables: int
    indexes: int
    search: int
    free: int
    log: int


class NamespaceFigures(msgspec.Struct, frozen=True):
    """The size of one namespace, its largest streams, and its growth.

    Shape: `largest` are the `LARGEST` largest streams by bytes; `growth` are the days with commits
    among the last `DAYS` days, newest first.
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
    """Figures of a store, seen from one namespace.

    Shape: `namespaces` contains only the namespace of the handle. `file` is None if the store is
    not one file; the sizes in `file` cover all namespaces.
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
    """Combine the figures of a namespace; `growth` maps a day to its entries and bytes.

    `streams` have their names as stored. Secrets are masked only in the names of the largest
    streams, because only these names are returned.
    """
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
        largest=tuple(replace(each, name=mask_secrets(each.name)) for each in sizes[:LARGEST]),
        growth=tuple(Day(day, entries, total) for day, (entries, total) in days[:DAYS]),
    )


def day_of(at: int) -> str:
    """Return the UTC day of a time in Unix milliseconds."""
    return moment_of(at).date().isoformat()


class Growth:
    """Counts the entries and bytes that were committed on each day since a given time."""

    def __init__(self, since: int) -> None:
        self.days: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._since = since

    def add(self, at: int, entries: int, size: int) -> None:
        """Count a commit made at `at`."""
        if at >= self._since:
            before = self.days[day_of(at)]
            self.days[day_of(at)] = (before[0] + entries, before[1] + size)
