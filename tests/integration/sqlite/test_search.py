"""The index in the file: updates, restarts, damage, erasure and verification."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import pytest

from perdure.errors import SearchIndexDamaged, StoreCorrupt, StoreReadOnly
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import user
from perdure.session.search.parts import sizes
from perdure.session.search.parts.blocks import Block, Said
from perdure.session.search.parts.lookup import READ_AT_ONCE
from perdure.session.search.parts.sizes import MOST_LOOSE
from perdure.session.search.query import sought_in
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.session.search.words import VERSION
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.erase import EraseRequest
from perdure.stores.search import indexer, sqlite_tables
from perdure.stores.search.sqlite_tables import stored_mark, text_count
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.search import search_index
from perdure.stores.sqlite.search.log import progress
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.faulty_vfs import failing_from, faulty_vfs
from tests.fakes.parts import rewrite_texts, with_text, without_text
from tests.fakes.raw_database import raw_database
from tests.fakes.samples import case
from tests.fakes.streams import S, append, create
from tests.integration.sqlite.conftest import Opener

Alteration = str | Callable[[list[Said]], object]
"""An SQL statement, or a function that changes the texts of an index part."""

MANY = 400
"""More entries than one search reads, and more than one step indexes."""


async def search(store: SqliteStore, text: str, limit: int = 10_000) -> list[Hit]:
    return await store.search.hits(SearchQuery(text=text, limit=limit))


async def filled(store: SqliteStore, count: int = MANY) -> None:
    await create(store)
    await append(store, *[new_tree(user(f"word number{each}")) for each in range(count)])


def mark(path: Path) -> tuple[int, int, int]:
    with raw_database(path) as db:
        row = db.execute("SELECT version, entry, stream FROM search_mark").fetchone()
    if row is None:
        return 0, 0, 0
    return row[0], row[1], row[2]


async def test_search_index_is_empty_before_the_first_search(
    open_store: Opener, path: Path
) -> None:
    store = await open_store()
    await filled(store)
    assert mark(path) == (0, 0, 0)

    assert len(await search(store, "word")) == MANY
    assert mark(path) == (VERSION, MANY, 1)

    await append(store, new_tree(user("word newest")))
    assert len(await search(store, "newest")) == 1
    assert mark(path) == (VERSION, MANY, 1)


async def test_phrase_search_reads_only_blocks_that_contain_the_phrase(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every text contains the words "moon", "tide" and "and".

    Only three texts have the phrase "moon tide", and only the newest 2,000 have "tide and moon".
    """
    store = await open_store()
    await create(store)
    said = ["moon and tide" if number < 4_000 else "tide and moon" for number in range(6_000)]
    for number in (0, 1_999, 3_999):
        said[number] = "moon tide and"
    await append(store, *[new_tree(user(f"{text} fills these words")) for text in said])
    await search(store, "anything")
    read: list[int] = []

    class CountedBlock(Block):
        def __init__(self, part: int, first: int, body: bytes) -> None:
            super().__init__(part, first, body)
            read.append(self.behind - first)

    monkeypatch.setattr(sqlite_tables, "Block", CountedBlock)
    rare = await search(store, '"moon tide"')
    assert [hit.entry for hit in rare] == [f"{S}/{number}" for number in (3_999, 1_999, 0)]
    steps = 6_000 / READ_AT_ONCE + 1
    assert sum(read) <= (steps + len(rare)) * max(read)
    assert await search(store, '"moon tide" NOT moon') == []
    read.clear()
    assert len(await search(store, '"tide and moon"', limit=10)) == 10
    assert sum(read) <= READ_AT_ONCE + 2 * max(read), "the newest are enough"
    both = await search(store, '"moon and tide" OR "moon tide"')
    assert len(both) == MOST_RANKED


async def test_index_grows_in_atomic_steps(
    open_store: Opener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "BATCH_ROWS", 128)
    monkeypatch.setattr(sizes, "MOST_LOOSE", 100)
    store = await open_store()
    await filled(store)
    for number in range(130):
        header = StreamHeader(StreamId(f"t{number}"), 1, title="word title")
        await store.commit(Commit(writes=(Write(stream=header.id, create=header),), at=1))
    expected = MANY + 130
    everything = SearchQuery(text="word", limit=1_000)
    marks: list[tuple[int, ...]] = []
    with raw_database(path) as db:
        tables = Tables(db)
        upto = progress(tables, 1)
        is_over = False
        while not is_over:
            step = indexer.with_part(search_index.next_step(tables, 1, upto))
            assert len(step.texts) <= 128  # titles and entries together
            db.execute("BEGIN IMMEDIATE")
            is_over = search_index.put_in(tables, 1, step)
            db.execute("COMMIT")
            marks.append(stored_mark(tables, 1)[1:])
            found = search_index.hits(tables, "default", everything, sought_in("word"))
            assert len(found) == expected
            assert len({(hit.stream, hit.entry) for hit in found}) == expected
    assert marks == sorted(marks)
    assert len(marks) > 4
    assert marks[-1][:3] == (MANY, 131, 4)
    assert (await store.maintenance.verify()).problems == ()


async def test_index_step_that_was_computed_before_an_erasure_is_not_stored(
    open_store: Opener, path: Path
) -> None:
    store = await open_store()
    await filled(store)
    with raw_database(path) as db:
        tables = Tables(db)
        step = search_index.next_step(tables, 1, progress(tables, 1))
        search_index.forget(tables, 1, positions(tables, (7, 7)))

        assert search_index.put_in(tables, 1, step) is False

        assert text_count(tables, 1) == 0


async def test_concurrent_indexing_and_writing_stays_consistent(open_store: Opener) -> None:
    one, other = await open_store(), await open_store()
    await filled(one)

    async def write() -> None:
        for each in range(60):
            await append(one, new_tree(user(f"later{each} word")))

    await asyncio.gather(write(), *(search(store, "word") for store in (one, other, one, other)))

    assert len(await search(other, "word")) == MANY + 60
    assert (await other.maintenance.verify()).problems == ()


async def test_search_index_of_another_version_is_rebuilt(open_store: Opener, path: Path) -> None:
    store = await open_store()
    await filled(store)
    expected = await search(store, "word number7")
    with raw_database(path) as db:
        db.execute("UPDATE search_mark SET version = 999")
        db.execute("DELETE FROM search_text")
        db.execute("DELETE FROM search_loose")
        db.execute("INSERT INTO search_loose VALUES (1, 1, 1, 3, '', ' old  number7  word ')")
    assert (await store.maintenance.verify()).problems == ()

    assert await search(store, "word number7") == expected
    assert await search(store, "old") == []
    assert mark(path)[0] == VERSION


def may_read(_path: Path, mode: int) -> bool:
    return mode == os.R_OK


async def test_indexing_reports_progress(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "BATCH_ROWS", 100)
    store = await open_store()
    await filled(store)
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    await store.search.index(tell)
    await store.search.index(tell)

    assert told == [(100 * done + 1, MANY + 1) for done in (1, 2, 3, 4)]


# ---------------------------------------------------------------- where the file cannot be written


async def test_read_only_store_can_be_searched(
    open_store: Opener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store()
    await filled(store)
    await store.close()
    # As somebody who may only read; the tests may run as somebody who may do everything.
    monkeypatch.setattr(os, "access", may_read)

    reading = await open_store()

    assert len(await search(reading, "word")) == MANY
    with pytest.raises(StoreReadOnly):
        await reading.search.reindex()
    assert mark(path) == (0, 0, 0)


async def test_search_works_on_full_disk(open_store: Opener) -> None:
    with faulty_vfs() as layer:
        store = await open_store()
        await filled(store)
        layer.plan = failing_from(1, apsw.FullError, "write")
        assert len(await search(store, "word")) == MANY
        layer.plan = failing_from(10**9, apsw.FullError, "write")
        assert len(await search(store, "word")) == MANY
        await append(store, new_tree(user("goes on")))
        await store.close()


# ---------------------------------------------------------------- damage


async def indexed(
    open_store: Opener, path: Path, *alterations: Alteration, count: int = MANY
) -> SqliteStore:
    """Fill a store, apply `alterations` to the index in its file, and open the store again."""
    store = await open_store()
    await filled(store, count)
    await search(store, "word")
    assert (await store.maintenance.verify()).problems == ()
    return await altered(open_store, path, store, *alterations)


async def altered(
    open_store: Opener, path: Path, store: SqliteStore, *alterations: Alteration
) -> SqliteStore:
    """Close `store`, change its index directly in the file, and open the store again."""
    await store.close()
    with raw_database(path) as db:
        for each in alterations:
            if isinstance(each, str):
                db.execute(each)
            else:
                rewrite_texts(db, each)
    return await open_store()


TAKEN = "DELETE FROM search_loose WHERE n = 8"
OTHER = "INSERT INTO search_loose VALUES (1, 8, 8, 2, '@8 #s2 #ruser', ' word  number7 ')"
REORDERED = "UPDATE search_loose SET said = ' number7  word ' WHERE n = 8"


async def test_verify_reports_entry_that_differs_in_index(open_store: Opener, path: Path) -> None:
    store = await indexed(open_store, path)
    differing: list[tuple[list[str], list[int | None]]] = [
        ([TAKEN], [7]),
        ([REORDERED], [7]),
        ([TAKEN, OTHER], [7]),
        (["UPDATE search_loose SET at = at + 1 WHERE n = 8"], [7]),
        (["DELETE FROM search_loose WHERE n IN (8, 10)"], [7, 9]),
        (["UPDATE search_mark SET entry = entry - 1"], [399]),
        (["INSERT INTO search_loose VALUES (1, 8000, 1, 1, '', 'x')"], [None]),
    ]
    for alterations, seqs in differing:
        with case(alterations):
            store = await altered(open_store, path, store, *alterations)

            problems = (await store.maintenance.verify()).problems

            assert [problem.seq for problem in problems] == seqs
            assert all("Store.reindex" in problem.problem for problem in problems)
            assert {problem.stream for problem in problems} <= {S, None}
            await store.search.reindex()
            assert (await store.maintenance.verify()).problems == ()
            assert len(await search(store, "word")) == MANY


async def test_verify_reports_each_entry_of_an_altered_index(
    open_store: Opener, path: Path
) -> None:
    store = await indexed(open_store, path, count=MOST_LOOSE)
    differing: list[tuple[Alteration, Sequence[int]]] = [
        (without_text(7), range(7, MOST_LOOSE)),
        (with_text(7, at=2), [7]),
        (with_text(7, codes=b"\x01\x02"), [7]),
        ("UPDATE search_text SET n = n + 1", range(MOST_LOOSE)),
        ("UPDATE search_text SET said = zeroblob(1)", range(MOST_LOOSE)),
        ("DELETE FROM search_page WHERE first > 'number3'", range(MOST_LOOSE)),
        ("DELETE FROM search_part", range(MOST_LOOSE)),
    ]
    for number, (alteration, seqs) in enumerate(differing):
        with case((number, alteration)):
            store = await altered(open_store, path, store, alteration)

            problems = (await store.maintenance.verify()).problems

            assert sorted(problem.seq or 0 for problem in problems) == list(seqs)
            await store.search.reindex()
            assert (await store.maintenance.verify()).problems == ()
            assert len(await search(store, "word")) == MOST_LOOSE


async def test_erasure_empties_an_index_with_wrong_positions(
    open_store: Opener, path: Path
) -> None:
    wrong = with_text(7, position=10)  # that of another text of the part
    store = await indexed(open_store, path, wrong, count=MOST_LOOSE)
    request = EraseRequest(id="e", scope="entries", by="me", at=1, name=S, entries=(3,))

    assert (await store.retention.erase(request)).is_complete

    with raw_database(path) as db:
        assert db.execute("SELECT count(*) FROM search_page").fetchone() == (0,)
    assert len(await search(await open_store(), "word")) == MOST_LOOSE - 1


async def test_damaged_index_fails_only_searches_and_can_be_rebuilt(
    open_store: Opener, path: Path
) -> None:
    store = await indexed(
        open_store, path, "UPDATE search_page SET body = zeroblob(40)", count=MOST_LOOSE
    )

    with pytest.raises(SearchIndexDamaged, match=r"Store\.reindex"):
        await search(store, "word")
    await append(store, new_tree(user("goes on")))
    assert not (await store.maintenance.verify()).is_ok

    await store.search.reindex()
    assert len(await search(store, "word")) == MOST_LOOSE
    assert (await store.maintenance.verify()).problems == ()


async def test_erasure_clears_damaged_index(open_store: Opener, path: Path) -> None:
    store = await indexed(
        open_store, path, "UPDATE search_page SET body = zeroblob(40)", count=MOST_LOOSE
    )
    await store.close()

    forget(path, (0, 0))

    assert mark(path) == (VERSION, 0, 0)
    assert len(await search(await open_store(), "word")) == MOST_LOOSE


# ---------------------------------------------------------------- forgetting


def bytes_of(path: Path) -> bytes:
    return path.read_bytes()


def positions(tables: Tables, seqs: tuple[int, int]) -> list[int]:
    sql = "SELECT n FROM entry WHERE stream = 1 AND seq BETWEEN ? AND ?"
    return [row[0] for row in tables.rows(sql, *seqs)]


def forget(path: Path, seqs: tuple[int, int]) -> None:
    """Remove entries from the index and overwrite their bytes, like an erasure."""
    with raw_database(path) as db:
        db.execute("PRAGMA secure_delete = ON")
        db.execute("BEGIN IMMEDIATE")
        tables = Tables(db)
        search_index.forget(tables, 1, positions(tables, seqs))
        search_index.forget(tables, 1, [-1])
        db.execute("COMMIT")
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


@pytest.mark.parametrize("stays", [50, MOST_LOOSE])
async def test_erased_text_leaves_no_word_in_index(
    open_store: Opener, path: Path, stays: int
) -> None:
    store = await open_store()
    header = StreamHeader(S, 1, title="kanariengelb")
    texts = [new_tree(user(f"word canary{each} kanarienvogel")) for each in range(200)]
    await store.commit(Commit(writes=(Write(stream=S, create=header, entries=tuple(texts)),), at=1))
    await append(store, *[new_tree(user("word stays")) for _ in range(stays)])
    await search(store, "word")
    await store.close()
    assert b"kanarienvogel" in bytes_of(path)

    forget(path, (0, 199))

    with raw_database(path) as db:
        texts = db.execute("SELECT said, filters FROM search_loose").fetchall()
        assert db.execute("SELECT count(*) FROM search_page").fetchone() == (0,)
    assert len(texts) == stays
    assert "anarien" not in str(texts)
    reopened = await open_store()
    assert len(await search(reopened, "stays")) == stays
    assert await search(reopened, "kanarienvogel") == []


async def test_damaged_header_is_reported_as_store_damage(open_store: Opener, path: Path) -> None:
    await filled(await open_store(), 1)
    with raw_database(path) as db:
        db.execute("UPDATE birth SET header = ?", (b'{"id":"s","created_at":1,"subject":5}',))
    with pytest.raises(StoreCorrupt, match="the header of session s is damaged"):
        await search(await open_store(), "word")
