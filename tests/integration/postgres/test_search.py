"""The index in the database: how it follows the log, is used, forgets, is checked, kept apart."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from perdure.session.search.values import Hit, SearchQuery
from perdure.session.search.words import VERSION
from perdure.stores.postgres.search import indexing, querying
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import SessionStore
from tests.conformance.store.building import S, append, create, header, said
from tests.conformance.store.random_log import check_it_finds_what_memory_finds
from tests.integration.postgres.conftest import Database, Open

MANY = 600
"""More entries than a search reads, or indexes in one step."""


async def search(store: PostgresStore, text: str, limit: int = 10_000) -> list[Hit]:
    return await store.search(SearchQuery(text=text, limit=limit))


async def filled(store: SessionStore, count: int = MANY) -> None:
    await create(store, S, *[said(f"word number{each}") for each in range(count)])


def mark(db: Database) -> tuple[int, int, int] | None:
    row = db.execute("SELECT version, upto, texts FROM perdure.search_mark").fetchone()
    return None if row is None else (row[0], row[1], row[2])


async def test_nothing_is_indexed_before_somebody_searches(
    store: PostgresStore, db: Database
) -> None:
    await filled(store)
    assert mark(db) is None

    assert len(await search(store, "word")) == MANY
    version, upto, texts = mark(db) or (0, 0, 0)
    assert (version, texts) == (VERSION, MANY)
    assert upto >= await store.position()

    await append(store, S, said("word newest"))
    assert [hit.entry for hit in await search(store, "newest")] == [f"s/{MANY}"]
    assert mark(db) == (version, upto, texts)


async def test_what_is_committed_late_is_found_though_the_mark_has_moved(
    store: PostgresStore, address: str, db: Database
) -> None:
    """A transaction that drew its position first and commits last is behind no mark."""
    await filled(store)
    await create(store, "late")
    with psycopg.connect(address) as slow:
        slow.execute("SELECT set_config('perdure.namespace', 'default', true), perdure.mark()")
        drawn = slow.execute("SELECT nextval('perdure.position')").fetchone()
        await append(store, S, *[said("word after") for _ in range(indexing.SCANNED + 2)])

        assert len(await search(store, "word")) == MANY + indexing.SCANNED + 2
        assert drawn is not None
        assert (mark(db) or (0, 0, 0))[1] < drawn[0]
        slow.execute(
            "INSERT INTO perdure.entry (namespace, stream, seq, n, at, v, kind, salt, digest, body)"
            " SELECT namespace, 'late', 0, %s, at, v, kind, salt, digest, body FROM perdure.entry"
            " WHERE stream = 's' AND seq = 7",
            drawn,
        )
    assert {hit.entry for hit in await search(store, "number7")} == {"s/7", "late/0"}


async def test_handles_that_index_and_write_at_once_stay_in_step(open_store: Open) -> None:
    one, other = await open_store(), await open_store()
    await filled(one)

    async def write() -> None:
        for each in range(60):
            await append(one, S, said(f"later{each} word"))

    await asyncio.gather(write(), *(search(store, "word") for store in (one, other, one, other)))

    assert len(await search(other, "word")) == MANY + 60
    assert (await other.verify()).problems == ()


async def test_others_find_the_same_while_the_index_is_built_anew(open_store: Open) -> None:
    one, other = await open_store(), await open_store()
    await filled(one)
    expected = await search(one, "word")
    rebuilding = asyncio.ensure_future(one.reindex())

    while not rebuilding.done():
        assert await search(other, "word") == expected
    assert await rebuilding == MANY


async def test_an_index_by_other_rules_is_built_anew(store: PostgresStore, db: Database) -> None:
    await filled(store)
    expected = await search(store, "word number7")
    db.execute("UPDATE perdure.search_mark SET version = 999")
    db.execute("UPDATE perdure.search SET words = words || ' strange'")
    assert (await store.verify()).problems == ()

    assert await search(store, "word number7") == expected
    assert (mark(db) or (0, 0, 0))[0] == VERSION
    assert (await store.verify()).problems == ()


async def test_damage_of_the_index_is_named_and_reindexing_mends_it(
    store: PostgresStore, db: Database
) -> None:
    await filled(store)
    await create(store, header("titled", title="tide"))
    await store.reindex()
    db.execute("DELETE FROM perdure.search WHERE n = (SELECT n FROM perdure.entry WHERE seq = 3)")
    db.execute("UPDATE perdure.search SET words = words || ' odd' WHERE n < 0")
    db.execute("UPDATE perdure.search SET n = 2 ^ 40 WHERE n = (SELECT max(n) FROM perdure.search)")

    problems = (await store.verify()).problems
    assert {(each.stream, each.seq) for each in problems} == {
        ("s", 3),
        ("titled", None),
        ("s", MANY - 1),
        ("s", None),
    }
    assert all("perdure store reindex" in each.problem for each in problems)
    await store.reindex()
    assert (await store.verify()).problems == ()


async def test_what_is_forgotten_leaves_no_word(store: PostgresStore, db: Database) -> None:
    await filled(store)
    await search(store, "word")
    row = db.execute("SELECT n FROM perdure.entry WHERE seq = 7").fetchone()
    assert row is not None
    kept = "SELECT count(*) FROM perdure.search WHERE words ~ '(^| )number7( |$)'"
    assert db.execute(kept).fetchone() == (1,)

    await store._db.ask(indexing.forgetting("default", [row[0]]))  # pyright: ignore[reportPrivateUsage] - what an erasure does

    assert db.execute(kept).fetchone() == (0,)
    assert await search(store, "number7") == []


async def test_words_of_another_namespace_cannot_be_asked_for(
    open_store: Open, db: Database
) -> None:
    mine, theirs = await open_store(namespace="mine"), await open_store(namespace="theirs")
    await filled(mine)
    await filled(theirs)
    await mine.reindex()
    await theirs.reindex()
    db.execute("SET ROLE perdure_app")
    db.execute("SET perdure.namespace = 'mine'")
    everything = "SELECT count(*), count(DISTINCT namespace) FROM perdure.search"

    for sought in ("", "'word'", "'word' | !'word'", "!'nothing'", "'=b0'"):
        db.execute("SELECT set_config('perdure.sought', %s, false)", (sought,))
        assert db.execute(everything).fetchone() == (MANY, 1), sought
    db.execute("SET perdure.sought = '''number7'''")
    assert db.execute(everything).fetchone() == (1, 1)
    db.execute("SET perdure.namespace = 'nobody'")
    assert db.execute(everything).fetchone() == (0, 0)


async def test_a_search_goes_by_the_index_under_row_level_security(
    store: PostgresStore, db: Database
) -> None:
    await filled(store)
    await search(store, "word")
    db.execute("SET ROLE perdure_app")
    db.execute("SET perdure.namespace = 'default'")
    db.execute("SET enable_seqscan = off")
    db.execute("SET enable_indexscan = off")
    db.execute("SET perdure.sought = '''number7'''")

    plan = db.execute("EXPLAIN SELECT n FROM perdure.search ORDER BY n DESC LIMIT 10").fetchall()
    assert any("search_words" in row[0] for row in plan)
    assert any("Index Cond" in row[0] for row in plan)


async def test_a_text_with_more_words_than_the_index_can_hold_is_found(
    store: PostgresStore,
) -> None:
    words = [f"w{number:07}" for number in range(130_000)]
    await filled(store, 60)
    await append(store, S, said(" ".join(words)), said("after it w0000007"))

    await store.reindex()

    assert {hit.entry for hit in await search(store, "w0129999")} == {"s/60"}
    assert {hit.entry for hit in await search(store, "w0000007")} == {"s/60", "s/61"}
    assert await search(store, "w0000007 NOT w0000008 NOT after") == []
    assert (await store.verify()).problems == ()


@pytest.mark.parametrize("block", [4_096, 64])
async def test_it_finds_what_a_scan_finds(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(indexing, "BLOCK_TEXTS", block)
    monkeypatch.setattr(querying, "BLOCK_TEXTS", block)
    await check_it_finds_what_memory_finds(store, block)
