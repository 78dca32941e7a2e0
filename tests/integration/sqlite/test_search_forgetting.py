"""The text that an erasure removes from a file's index, and the blocks that the erasure reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from perdure.session.ids import StreamId
from perdure.session.search.parts import sizes
from perdure.session.search.parts.blocks import Block
from perdure.session.search.parts.lookup import Read
from perdure.session.search.values import SearchQuery
from perdure.stores.search.sqlite_tables import SqliteReader
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.search import search_index
from perdure.stores.sqlite.store import SqliteStore
from tests.conformance.store.building import erasure
from tests.fakes.raw_database import raw_database
from tests.fakes.streams import S, create, say
from tests.integration.sqlite.conftest import Opener
from tests.integration.sqlite.test_neighbours import steps_of

PART, PARTS = 24, 5
GONE = StreamId("gone")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("SCANNED", 3), ("MOST_LOOSE", 8), ("BATCH_ROWS", PART)):
        monkeypatch.setattr(sizes, name, size)


async def found(store: SqliteStore, text: str) -> int:
    return len(await store.search.hits(SearchQuery(text=text, limit=1_000)))


async def erase(store: SqliteStore, stream: StreamId) -> None:
    await store.retention.erase(erasure(stream))


async def filled(open_store: Opener, namespace: str, texts: int = PART * PARTS) -> SqliteStore:
    store = await open_store(namespace=namespace)
    await create(store)
    await say(store, *(f"{namespace} number{number}" for number in range(texts)))
    assert await found(store, namespace) == texts
    return store


@pytest.fixture
def blocks_read(monkeypatch: pytest.MonkeyPatch) -> list[Block]:
    """Return a list to which each block that is read later is added, in order."""
    read: list[Block] = []
    blocks = SqliteReader.blocks

    async def kept(reader: SqliteReader, wanted: Sequence[Read]) -> Iterator[Block]:
        found = list(await blocks(reader, wanted))
        read.extend(found)
        return iter(found)

    monkeypatch.setattr(SqliteReader, "blocks", kept)
    return read


@pytest.mark.parametrize("is_hit", [False, True])
async def test_erasure_in_a_damaged_index_keeps_the_index_of_other_namespaces(
    open_store: Opener, path: Path, *, is_hit: bool
) -> None:
    other, own = await filled(open_store, "other"), await filled(open_store, "own")
    stream = S
    if not is_hit:
        stream = GONE
        await create(own, GONE)
        await say(own, "bye", stream=GONE)
    with raw_database(path) as db:
        before = db.execute("SELECT count(*) FROM search_text").fetchall()
        last = "id = (SELECT max(id) FROM search_text)"
        db.execute(f"UPDATE search_text SET said = substr(said, 1, length(said) - 1) WHERE {last}")

    await erase(own, stream)

    assert await found(other, "other") == PART * PARTS
    assert await found(own, "other") == 0
    assert (await other.maintenance.verify()).problems == ()
    if is_hit:
        assert (await own.maintenance.verify()).problems == ()
    else:
        with raw_database(path) as db:  # the erased text is in no block, so none was read
            assert db.execute("SELECT count(*) FROM search_text").fetchall() == before
        assert not (await own.maintenance.verify()).is_ok


async def test_erasure_reads_only_blocks_that_can_contain_the_text(
    open_store: Opener, path: Path, blocks_read: list[Block]
) -> None:
    await filled(open_store, "other")
    own = await filled(open_store, "own")
    await create(own, GONE)
    await say(own, *(f"gone number{number}" for number in range(PART)), stream=GONE)
    await own.search.index()
    await say(own, *(f"after number{number}" for number in range(PART)))
    await own.search.index()
    await filled(open_store, "third")
    with raw_database(path) as db:
        number = "(SELECT no FROM stream WHERE id = 'gone')"
        gone = {row[0] for row in db.execute(f"SELECT n FROM entry WHERE stream = {number}")}
    blocks_read.clear()

    await erase(own, GONE)

    assert blocks_read
    for block in blocks_read:
        assert gone & {said.position for said in block.said()}, f"block of part {block.part}"
    assert await found(own, "after") == PART
    assert (await own.maintenance.verify()).problems == ()


async def test_cost_of_index_erasure_does_not_depend_on_other_namespaces(
    open_store: Opener, path: Path
) -> None:
    def forget_newest(tables: Tables) -> None:
        newest = (
            "SELECT max(n) FROM entry WHERE stream IN (SELECT no FROM stream WHERE namespace = 1)"
        )
        tables.run("BEGIN IMMEDIATE")
        assert search_index.forget(tables, 1, [tables.value(newest)]) == 1
        tables.run("ROLLBACK")

    await filled(open_store, "own", PART)
    await filled(open_store, "little", PART)
    few = steps_of(path, forget_newest)
    await filled(open_store, "large")
    with raw_database(path) as db:
        assert db.execute("SELECT count(*) FROM search_part").fetchone() == (PARTS + 2,)

    assert steps_of(path, forget_newest) == few


async def test_reindex_removes_the_pages_of_a_missing_index_part(
    open_store: Opener, path: Path
) -> None:
    other, own = await filled(open_store, "other"), await filled(open_store, "own")
    with raw_database(path) as db:
        db.execute(
            "INSERT INTO search_page SELECT 4711, first, body FROM search_page WHERE part = 1"
        )

    for store in (other, own):
        (problem,) = (await store.maintenance.verify()).problems
        assert "words of no text; Store.reindex" in problem.problem
    await own.search.reindex()

    with raw_database(path) as db:
        assert not db.execute("SELECT 1 FROM search_page WHERE part = 4711").fetchall()
    for name, store in (("other", other), ("own", own)):
        assert (await store.maintenance.verify()).problems == ()
        assert await found(store, name) == PART * PARTS
