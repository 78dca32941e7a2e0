"""Claim: 100,000 entries are searched in under 50 ms, and the index does not slow appends.

The raw query uses FTS5 directly: its index on the same words, its ranking, and only the row numbers
as result. The store's query also filters by namespace, uses its own ranking, reads the hits,
creates and marks their snippets, and looks up their branches. For session files, the first search
of a new handle without cached data is also measured, because every search on the command line uses
a new handle.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import apsw
import msgspec

from benchmarks.figures import (
    CLOCK,
    Figure,
    Run,
    Stopwatch,
    append,
    create,
    median,
    opened,
    size_of,
)
from benchmarks.workload import payload_bytes, turns
from perdure.client.clock import system_random
from perdure.session.entries import NewEntry
from perdure.session.ids import StreamId
from perdure.session.search.values import SearchQuery
from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.jsonl.store import JsonlStore
from perdure.stores.session_store import SessionStore
from perdure.stores.sqlite.store import SqliteStore

ENTRIES = 100_000
TURNS_PER_SESSION = 200
LIMIT_MS = 50.0
REPEATS = 15


class Query(msgspec.Struct, frozen=True):
    """A query of the store; `raw` is the same query for FTS5."""

    name: str
    text: str
    raw: str


QUERIES: tuple[Query, ...] = (
    Query("a rare word", "123456", '"123456"'),
    Query("two frequent words", "session turn", '"session" "turn"'),
    Query("a phrase", '"session and turn"', '"session and turn"'),
    Query("a prefix of 4 characters", "1234*", '"1234" *'),
    Query("either of two words", "session OR model", '"session" OR "model"'),
    Query("a frequent and a rare word", "session 123456", '"session" "123456"'),
    Query("one word but not another", "session NOT model", '"session" NOT "model"'),
    Query("a prefix of 1 character", "1*", '"1" *'),
)


async def measure(run: Run) -> list[Figure]:
    """Measure searches, building the index, the first search after a turn, and the file's size."""
    path = run.folder / "search.db"
    store = await opened(path, "normal")
    count, payload = await _fill(store, run)
    began = time.perf_counter()
    await store.search.hits(SearchQuery(text="nothing"))
    built_s = time.perf_counter() - began
    raw = _raw(run.folder / "raw-search.db", path)
    figures = [await _compared(store, raw, each) for each in QUERIES]
    figures.append(await _after_a_turn(store, run))
    await store.close()
    raw.close()
    per_entry_us = built_s * 1_000_000 / count
    figures.append(Figure("search: build the index", "time per entry", per_entry_us, "us"))
    what = "divided by the bytes of the entry bodies, with a search index"
    ratio = size_of(path) / payload
    figures.append(Figure("search: size of the SQLite file", what, ratio, "x", limit=2))
    return figures


async def searches(run: Run, store: SessionStore, claim: str) -> list[Figure]:
    """Measure the queries in a store with the same number of entries, without FTS5."""
    await _fill_by_session(store, run)
    began = time.perf_counter()
    await store.search.hits(SearchQuery(text="nothing"))
    first_s = time.perf_counter() - began
    figures = [await _measured(store, query, claim, REPEATS) for query in QUERIES]
    return [
        Figure(claim, "time of the first search, which builds the index", first_s, "s"),
        *figures,
    ]


async def measure_jsonl(run: Run) -> list[Figure]:
    """Measure the queries in session files, with warm handles and with new ones."""
    root, claim = run.folder / "search-jsonl", "session files: search"
    store = await _opened_jsonl(root)
    figures = await searches(run, store, claim)
    await store.close()
    for query in QUERIES:
        laps = Stopwatch()
        for _ in range(REPEATS):
            store = await _opened_jsonl(root)
            with laps:
                await store.search.hits(SearchQuery(text=query.text))
            await store.close()
        figure = f"{claim}: {query.name}, first search of a new handle"
        figures.append(Figure(figure, "p50", median(laps.laps_ms), "ms", limit=LIMIT_MS))
    return figures


async def _opened_jsonl(root: Path) -> JsonlStore:
    return await JsonlStore.open(root, durability="normal", clock=CLOCK, random=system_random)


async def _measured(store: SessionStore, query: Query, claim: str, repeats: int) -> Figure:
    laps = Stopwatch()
    for _ in range(repeats):
        with laps:
            await store.search.hits(SearchQuery(text=query.text))
    return Figure(f"{claim}: {query.name}", "p50", median(laps.laps_ms), "ms", limit=LIMIT_MS)


async def _fill_by_session(store: SessionStore, run: Run) -> None:
    """Append sessions of 200 turns, each in one commit, until there are enough entries."""
    most, count, session = run.count(ENTRIES), 0, list[NewEntry]()
    for number, turn in enumerate(turns(run.seed, most), 1):
        session += turn
        count += len(turn)
        if number % TURNS_PER_SESSION == 0 or count >= most:
            stream = StreamId(f"session-{number}")
            await create(store, stream)
            await append(store, stream, session)
            session = []
        if count >= most:
            return


async def _fill(store: SqliteStore, run: Run) -> tuple[int, int]:
    """Append sessions of 200 turns until enough entries exist; return entries and body bytes."""
    most, count, payload = run.count(ENTRIES), 0, 0
    stream = StreamId("")
    for number, turn in enumerate(turns(run.seed, most)):
        if number % TURNS_PER_SESSION == 0:
            if count >= most:
                break
            stream = StreamId(f"session-{number // TURNS_PER_SESSION}")
            await create(store, stream)
        await append(store, stream, turn)
        count, payload = count + len(turn), payload + payload_bytes(turn)
    return count, payload


def _raw(path: Path, filled: Path) -> Connection:
    """Create an FTS5 index with default settings on the texts of the store."""
    db = cast("Connection", apsw.Connection(str(path)))
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE VIRTUAL TABLE words USING fts5 (text, content = '')")
    db.execute("ATTACH ? AS filled", (str(filled),))
    db.execute("INSERT INTO words (rowid, text) SELECT n, CAST(body AS TEXT) FROM filled.entry")
    return db


async def _compared(store: SqliteStore, raw: Connection, query: Query) -> Figure:
    laps, raw_laps = Stopwatch(), Stopwatch()
    for _ in range(REPEATS):
        with laps:
            await store.search.hits(SearchQuery(text=query.text))
        with raw_laps:
            _searched(raw, query.raw)
    p50, raw_p50 = median(laps.laps_ms), median(raw_laps.laps_ms)
    return Figure(f"search: {query.name}", "p50", p50, "ms", raw_p50, LIMIT_MS)


def _searched(raw: Connection, query: str) -> Sequence[object]:
    sql = "SELECT rowid FROM words(?) ORDER BY rank LIMIT 20"
    return raw.execute(sql, (query,)).fetchall()


async def _after_a_turn(store: SqliteStore, run: Run) -> Figure:
    """Measure a search after each appended turn, including the indexing of that turn."""
    laps = Stopwatch()
    stream = StreamId("watched")
    await create(store, stream)
    for turn in turns(run.seed + 1, REPEATS * 5):
        await append(store, stream, turn)
        with laps:
            await store.search.hits(SearchQuery(text="session 12345"))
    return Figure(
        "search: after each appended turn",
        "p50, including the indexing of the turn",
        median(laps.laps_ms),
        "ms",
        limit=LIMIT_MS,
    )
