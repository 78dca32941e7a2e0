"""The index in the database: updates, use, erasure, verification and isolation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from perdure.errors import SearchIndexDamaged
from perdure.session.search.parts import sizes
from perdure.session.search.parts.blocks import Block, Said
from perdure.session.search.parts.pages import everything
from perdure.session.search.searchable import KINDS
from perdure.session.search.values import Hit, SearchQuery
from perdure.session.search.words import VERSION
from perdure.stores.postgres.search import log, search_index, tables
from perdure.stores.postgres.search.log import PostgresLog
from perdure.stores.postgres.search.tables import forget
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.search import indexer
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import S, append, create, erasure, header, said
from tests.conformance.store.random_log import check_it_finds_what_memory_finds
from tests.fakes.parts import rewritten
from tests.fakes.samples import sampled
from tests.integration.postgres.conftest import Database, Open

MANY = 600
"""More entries than one search reads, and more than one step indexes."""


async def search(store: PostgresStore, text: str, limit: int = 10_000) -> list[Hit]:
    return await store.search.hits(SearchQuery(text=text, limit=limit))


async def filled(store: SessionStore, count: int = MANY) -> None:
    await create(store, S, *[said(f"word number{each}") for each in range(count)])


def mark(db: Database) -> tuple[int, int, int] | None:
    row = db.execute("SELECT version, upto, parts FROM perdure.search_mark").fetchone()
    return None if row is None else (row[0], row[1], row[2])


def bodies(db: Database) -> bytes:
    """Return all words and bodies of the index, decompressed."""
    pages = db.execute("SELECT first, body FROM perdure.search_page").fetchall()
    texts = db.execute("SELECT filters, said FROM perdure.search").fetchall()
    keys = [kept.key.encode() + b"\n" for _, body in pages for kept in everything(body)]
    return b" ".join([*keys, *(filters.encode() + b" " + said for filters, said in texts)])


async def test_search_index_is_empty_before_the_first_search(
    store: PostgresStore, db: Database
) -> None:
    await filled(store)
    assert mark(db) is None

    assert len(await search(store, "word")) == MANY
    version, upto, parts = mark(db) or (0, 0, 0)
    assert (version, parts) == (VERSION, 1)
    assert upto >= await store.position()

    await append(store, S, said("word newest"))
    assert [hit.entry for hit in await search(store, "newest")] == [f"s/{MANY}"]
    assert mark(db) == (version, upto, parts)


async def test_search_finds_a_commit_that_ends_after_later_commits(
    store: PostgresStore, address: str, db: Database
) -> None:
    """The mark of the index stays below the position of a transaction that is still open."""
    await filled(store)
    await create(store, "late")
    with psycopg.connect(address) as slow:
        slow.execute("SELECT set_config('perdure.namespace', 'default', true), perdure.mark()")
        drawn = slow.execute("SELECT nextval('perdure.position')").fetchone()
        await append(store, S, *[said("word after") for _ in range(sizes.SCANNED + 2)])

        assert len(await search(store, "word")) == MANY + sizes.SCANNED + 2
        assert drawn is not None
        assert (mark(db) or (0, 0, 0))[1] < drawn[0]
        slow.execute(
            "INSERT INTO perdure.entry (namespace, stream, seq, n, at, v, kind, salt, digest, body)"
            " SELECT namespace, 'late', 0, %s, at, v, kind, salt, digest, body FROM perdure.entry"
            " WHERE stream = 's' AND seq = 7",
            drawn,
        )
    assert {hit.entry for hit in await search(store, "number7")} == {"s/7", "late/0"}


async def test_concurrent_indexing_and_writing_stays_consistent(open_store: Open) -> None:
    one, other = await open_store(), await open_store()
    await filled(one)

    async def write() -> None:
        for each in range(60):
            await append(one, S, said(f"later{each} word"))

    await asyncio.gather(write(), *(search(store, "word") for store in (one, other, one, other)))

    assert len(await search(other, "word")) == MANY + 60
    assert (await other.maintenance.verify()).problems == ()


async def test_searches_return_same_hits_during_reindex(open_store: Open) -> None:
    one, other = await open_store(), await open_store()
    await filled(one)
    expected = await search(one, "word")
    rebuilding = asyncio.ensure_future(one.search.reindex())

    while not rebuilding.done():
        assert await search(other, "word") == expected
    assert await rebuilding == MANY


async def test_indexing_reports_progress(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "BATCH_ROWS", 200)
    await filled(store)
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    await store.search.index(tell)
    await store.search.index(tell)

    assert told[:2] == [(200, MANY), (400, MANY)]
    assert set(told[2:]) == {(MANY, MANY)}


async def test_index_built_with_other_rules_is_rebuilt(store: PostgresStore, db: Database) -> None:
    await filled(store)
    expected = await search(store, "word number7")
    db.execute("UPDATE perdure.search_mark SET version = 999")
    db.execute("UPDATE perdure.search SET said = 'strange'")
    assert (await store.maintenance.verify()).problems == ()

    assert await search(store, "word number7") == expected
    assert (mark(db) or (0, 0, 0))[0] == VERSION
    assert (await store.maintenance.verify()).problems == ()


def damage(said: list[Said]) -> None:
    """Change the time of a text and of the first title, and remove two other rows."""
    for number in (4, 0):
        said[number] = said[number]._replace(at=1)
    for number in (MANY + 1, 10):
        del said[number]


async def test_damaged_index_is_reported_and_reindex_repairs_it(
    store: PostgresStore, db: Database
) -> None:
    await filled(store)
    await create(store, header("titled", title="tide"))
    await append(store, S, said("loose"), said("not loose"))
    await store.search.reindex()
    rows = db.execute("SELECT part, number, said FROM perdure.search ORDER BY number").fetchall()
    db.execute("DELETE FROM perdure.search")
    for row in rewritten([Block(*row) for row in rows], damage):
        db.execute(
            "INSERT INTO perdure.search VALUES (%s, %s, 1, %s, %s, %s, '', %s)",
            ("default", row.position, row.first, row.at, row.texts, row.body),
        )
    db.execute(
        "INSERT INTO perdure.search"
        " SELECT namespace, 2 ^ 40, 0, 0, at, 1, '', 'x' FROM perdure.search LIMIT 1"
    )

    problems = (await store.maintenance.verify()).problems
    named = {(each.stream, each.seq) for each in problems}
    assert {("s", 3), ("titled", None), ("s", 9), ("s", MANY), (None, None)} <= named
    assert all("Store.reindex" in each.problem for each in problems)
    await store.search.reindex()
    assert (await store.maintenance.verify()).problems == ()


async def test_reindex_removes_the_pages_of_a_missing_index_part(
    store: PostgresStore, db: Database
) -> None:
    await filled(store)
    await store.search.reindex()
    db.execute(
        "INSERT INTO perdure.search_page (namespace, part, first, body)"
        " SELECT namespace, 4711, first, body FROM perdure.search_page"
    )

    (problem,) = (await store.maintenance.verify()).problems
    assert "words of no text; Store.reindex" in problem.problem
    await store.search.reindex()

    left = db.execute("SELECT count(*) FROM perdure.search_page WHERE part = 4711").fetchone()
    assert left == (0,)
    assert (await store.maintenance.verify()).problems == ()


async def test_content_of_a_damaged_index_can_still_be_erased(
    store: PostgresStore, db: Database
) -> None:
    await filled(store)
    await search(store, "word")
    db.execute("UPDATE perdure.search_page SET body = 'x'")
    db.execute("UPDATE perdure.search SET said = '\\xff'")

    with pytest.raises(SearchIndexDamaged, match=r"Store\.reindex"):
        await search(store, "word")
    assert len((await store.maintenance.verify()).problems) == MANY
    await store.retention.erase(erasure(S))

    assert await search(store, "word") == []
    assert (await store.maintenance.verify()).problems == ()


async def test_erased_text_leaves_no_word_and_other_texts_are_found(
    store: PostgresStore, db: Database
) -> None:
    await filled(store)
    assert len(await search(store, "number7")) == 1
    row = db.execute("SELECT n FROM perdure.entry WHERE seq = 7").fetchone()
    assert row is not None
    assert b"number7\n" in bodies(db)

    async with store.handle.db.connection() as connected, connected.transaction():
        assert await forget(connected, "default", [row[0], 2**40]) == 1

    assert b"number7 " not in bodies(db)
    assert b"number8 " in bodies(db)
    assert await search(store, "number7") == []
    assert len(await search(store, "word")) == MANY - 1
    await store.search.reindex()
    assert b"number8\n" in bodies(db)


async def test_words_of_another_namespace_cannot_be_queried(open_store: Open, db: Database) -> None:
    mine, theirs = await open_store(namespace="mine"), await open_store(namespace="theirs")
    await filled(mine)
    await filled(theirs)
    await mine.search.reindex()
    await theirs.search.reindex()
    db.execute("SET ROLE perdure_app")

    for name, seen in (("mine", 1), ("nobody", 0)):
        db.execute("SELECT set_config('perdure.namespace', %s, false)", (name,))
        for table in ("search", "search_part", "search_page", "search_mark"):
            rows = db.execute(f"SELECT DISTINCT namespace FROM perdure.{table}").fetchall()
            assert rows == [(name,)] * seen, table
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute("INSERT INTO perdure.search VALUES ('theirs', 1, 0, 1, 1, 1, '', 'x')")


async def test_search_uses_indexes_under_row_level_security(
    store: PostgresStore, db: Database
) -> None:
    await filled(store)
    await search(store, "word")
    # What the server counts by itself may be of a moment before the rows came: then all plans of
    # a table of no rows cost the same, and it takes any.
    db.execute("ANALYZE")
    db.execute("SET ROLE perdure_app")
    db.execute("SET perdure.namespace = 'default'")
    db.execute("SET perdure.horizon = '1000000'")
    db.execute("SET enable_seqscan = off")
    db.execute("SET enable_bitmapscan = off")
    ns, keys, ends = "default", ["number7"], ["number8"]
    for sql, values, condition in (
        (search_index.BEHIND, (ns, list(KINDS), 9, ns, 9, ns, ns, VERSION), "(n > "),
        (tables.EXACT, ([1], keys, ns), "(first <= "),
        (tables.BEGUN, ([1], keys, ends, ns, ns), "(first >= "),
        (tables.BLOCKS, ([1], [7], ns, ns), "(number <= "),
        (tables.BLOCKS_BETWEEN, ([1], [7], [9], [b""], ns, ns), "(number >= "),
    ):
        plan = db.execute(b"EXPLAIN " + sql.encode(), values).fetchall()
        assert any("Index Cond" in row[0] and condition in row[0] for row in plan), sql


async def test_index_query_uses_the_primary_key_without_statistics(
    store: PostgresStore, db: Database
) -> None:
    for number in range(50):
        await create(store, f"s{number}", said("word"))
    values = ("default", 0, 10**9, list(KINDS), 100, 10**6)
    db.execute("SET enable_seqscan = off")

    plan = db.execute(b"EXPLAIN " + log.NEXT.encode(), values).fetchall()

    lookups = [row[0] for row in plan if "on stream" in row[0]]
    assert len(lookups) == 1
    assert "using stream_pkey" in lookups[0]


async def test_text_too_long_for_index_is_found(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "MOST_WORDS", 1_000)
    words = [f"w{number:07}" for number in range(1_300)]
    await filled(store)
    await append(store, S, said(" ".join(words)), said("after it w0000007"))

    await store.search.reindex()

    assert {hit.entry for hit in await search(store, "w0001299")} == {f"s/{MANY}"}
    assert {hit.entry for hit in await search(store, "w0000007")} == {f"s/{MANY}", f"s/{MANY + 1}"}
    assert await search(store, "w0000007 NOT w0000008 NOT after") == []
    assert (await store.maintenance.verify()).problems == ()


@pytest.mark.all_only
@sampled("loose", [512, 24, 1], kind=type, each=1)
async def test_search_finds_same_as_scan(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, loose: int
) -> None:
    monkeypatch.setattr(sizes, "MOST_LOOSE", loose)
    monkeypatch.setattr(sizes, "SCANNED", loose // 2)
    monkeypatch.setattr(sizes, "BATCH_ROWS", 2 * loose)
    await check_it_finds_what_memory_finds(store, loose)


async def test_search_slower_than_the_idle_timeout_still_succeeds(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While this process ranks texts in the middle of a search, the server's session is idle."""
    await create(store, S, said("the needle"))
    await store.handle.db.limit_idle(300)
    compute = PostgresLog.compute

    async def compute_slowly(log: PostgresLog, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0.5)
        return await compute(log, work)

    monkeypatch.setattr(PostgresLog, "compute", compute_slowly)
    (hit,) = await search(store, "needle")
    assert hit.stream == S
