"""The index of a folder: a search finds the content of the files after any change."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from perdure.errors import PerdureError, StoreUnavailable
from perdure.session.ids import EntryId, StreamId
from perdure.session.search.parts import sizes
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.jsonl.disk.folder import Folder
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.search import indexer
from perdure.stores.jsonl.search.index_file import BUILDING
from perdure.stores.jsonl.store import DialectName, JsonlStore
from perdure.stores.search import indexer as service
from tests.conformance.store.building import append, create, erasure, header, labelled, moved, said
from tests.fakes.faulty_vfs import failing_from, faulty_vfs
from tests.fakes.leaks import leaks_in, pages_with
from tests.fakes.parts import rewrite_texts, with_text, without_text
from tests.fakes.raw_database import raw_database
from tests.fakes.samples import sampled
from tests.fakes.session_files import file_of, files_below
from tests.fakes.session_scan import in_order, scanned
from tests.fakes.session_tools import Operator, tool
from tests.integration.jsonl.conftest import Opener

A, S = StreamId("a"), StreamId("s")
MANY = 60
"""More entries than a search reads; those of three sessions become a part of the index."""

CANARY = "canary7f3a9c"
WORDS = ("tide", "moon", "ebb", "tidal", "flood", "harbour")
QUERIES = ("tide", "tid*", '"tide moon"', "moon OR ebb", "tide NOT moon", "flood harbour")


@pytest.fixture(autouse=True)
def parts_of_three_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "MOST_LOOSE", 160)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("SCANNED", 3), ("MOST_LOOSE", 8), ("BATCH_ROWS", 24)):
        monkeypatch.setattr(sizes, name, size)
    monkeypatch.setattr(indexer, "_ROWS", 5)


async def search(store: JsonlStore, text: str, *, limit: int = 5_000) -> list[Hit]:
    return await store.search.hits(SearchQuery(text=text, limit=limit))


async def fill(store: JsonlStore, *streams: str, word: str = "word", count: int = MANY) -> None:
    for stream in streams:
        entries = [said(f"{word} number{number} of {stream}") for number in range(count)]
        await create(store, header(stream, title=f"{word} {stream}"), *entries)


def index_of(folder: Path) -> Path:
    return folder / ".perdure" / "search.db"


def parts_of(folder: Path) -> list[int]:
    with raw_database(index_of(folder)) as db:
        return [row[0] for row in db.execute("SELECT no FROM search_part ORDER BY no")]


async def faults_of_index(store: JsonlStore) -> list[str]:
    found = (await store.maintenance.verify()).problems
    return [each.problem for each in found if "search index" in each.problem]


# ---------------------------------------------------------------- whoever did what to the files


class Life:
    """A folder that perdure and pi or Operator change alternately, at random."""

    def __init__(self, folder: Path, dialect: DialectName, seed: int) -> None:
        self.chance = random.Random(seed)
        self._folder = folder
        self._dialect = dialect
        self._made = 0

    def text(self) -> str:
        return " ".join(self.chance.choices(WORDS, k=self.chance.randint(1, 7)))

    def sessions(self) -> list[str]:
        return sorted({path.stem.rpartition("_")[2] for path in self._folder.glob("*.jsonl")})

    async def go_on(self, store: JsonlStore) -> str:
        """Do a random action; return its name."""
        sessions = self.sessions()
        ours = (self.created, self.appended, self.appended, self.labelled, self.moved, self.erased)
        theirs = (
            self.spoken,
            self.spoken,
            self.slipped_in,
            self.rewritten,
            self.deleted,
            self.copied,
        )
        does = self.chance.choice((*ours, *theirs)) if sessions else self.created
        try:
            await does(store, StreamId(self.chance.choice(sessions or ["none"])))
        except PerdureError:
            return "nothing: the session cannot be gone on with"
        return does.__name__

    async def created(self, store: JsonlStore, _: StreamId) -> None:
        self._made += 1
        name = f"s{self._made}"
        title = self.text() if self.chance.random() < 0.5 else None
        at = self.chance.randrange(1_000)
        new = header(name, title=title, created_at=at)
        await create(store, new, *[said(self.text()) for _ in range(self.chance.randint(0, 30))])

    async def appended(self, store: JsonlStore, stream: StreamId) -> None:
        await append(store, stream, *[said(self.text()) for _ in range(self.chance.randint(1, 6))])

    async def labelled(self, store: JsonlStore, stream: StreamId) -> None:
        await append(store, stream, labelled(self.text(), await self._entry(store, stream)))

    async def moved(self, store: JsonlStore, stream: StreamId) -> None:
        await append(store, stream, moved(await self._entry(store, stream)), said(self.text()))

    async def _entry(self, store: JsonlStore, stream: StreamId) -> EntryId | None:
        tree = await store.tree(stream)
        return self.chance.choice(tree).id if tree else None

    async def erased(self, store: JsonlStore, stream: StreamId) -> None:
        id = f"e{self.chance.getrandbits(60)}"
        await store.retention.erase(erasure(stream, id=id))

    async def spoken(self, _: JsonlStore, stream: StreamId) -> None:
        self._speak(file_of(self._folder, stream))

    def _speak(self, path: Path) -> None:
        agent = tool(self._dialect, path, self.chance.getrandbits(30))
        said = agent.say("user", self.text())
        if self.chance.random() < 0.3:
            agent.label(said, self.text())
            agent.branch(said)
        agent.say("user", self.text())

    async def slipped_in(self, store: JsonlStore, stream: StreamId) -> None:
        """Let pi or Operator write between perdure's read of the file and its write."""
        path = file_of(self._folder, stream)
        before = path.stat().st_size
        await append(store, stream, said(self.text()))
        ours = path.read_bytes()[before:]
        os.truncate(path, before)
        if self.chance.random() < 0.5:
            await search(store, "tide")
        self._speak(path)
        if self.chance.random() < 0.5:
            await search(store, "tide")  # it sees theirs only, and then ours comes before them
        with path.open("ab") as file:
            file.write(ours)

    async def rewritten(self, _: JsonlStore, stream: StreamId) -> None:
        agent = tool(self._dialect, file_of(self._folder, stream))
        if isinstance(agent, Operator):
            agent.rewrite()

    async def deleted(self, _: JsonlStore, stream: StreamId) -> None:
        file_of(self._folder, stream).unlink()

    async def copied(self, _: JsonlStore, stream: StreamId) -> None:
        """Replace the file by a copy with the same content."""
        path = file_of(self._folder, stream)
        copy = path.with_suffix(".copy")
        shutil.copy(path, copy)
        copy.replace(path)


@pytest.mark.usefixtures("small_parts")
@sampled("seed", range(5), kind=type, each=1)
async def test_index_after_any_change_finds_same_as_scan(
    open_store: Opener, folder: Path, dialect: DialectName, seed: int
) -> None:
    life = Life(folder, dialect, seed)
    store = await open_store()
    done: list[str] = []
    for number in range(40):
        done.append(await life.go_on(store))
        if number % 10 == 9:
            store = await open_store()  # one that has nothing in memory
        text = QUERIES[number % len(QUERIES)]
        some = tuple(StreamId(each) for each in life.sessions()[:3])
        for query in (
            SearchQuery(text=text, limit=5_000),
            SearchQuery(text=text, limit=5_000, sessions=some, is_on_branch=True),
            SearchQuery(text=text, roles=("title", "label"), since=200),
        ):
            found, expected = await store.search.hits(query), scanned(folder, dialect, query)
            assert in_order(found) == in_order(expected), (query, done)
        assert await faults_of_index(store) == [], done
    every = scanned(folder, dialect, SearchQuery(text=" OR ".join(WORDS), limit=5_000))
    assert await store.search.reindex() == len(every)
    assert parts_of(folder)


async def test_search_in_a_new_process_does_not_read_whole_session_files(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(await open_store(), "a", "b")
    await search(await open_store(), "word")
    store = await open_store()
    await append(store, StreamId("a"), said("word at the end"))
    read: list[Path] = []
    refresh = Log.refresh

    def seen(log: Log) -> bool:
        read.append(log.path)
        return refresh(log)

    monkeypatch.setattr(Log, "refresh", seen)
    fresh = await open_store()
    assert len(await search(fresh, "word")) == 2 * MANY + 3
    assert read == []


async def test_concurrent_searching_handles_create_one_index(
    open_store: Opener, folder: Path
) -> None:
    one, other = await open_store(), await open_store()
    await fill(one, "a", "b", "c")

    found = await asyncio.gather(*(search(each, "word") for each in (one, other, one, other)))

    assert {len(hits) for hits in found} == {3 * MANY + 3}
    assert len(parts_of(folder)) == 1


@pytest.mark.all_only
async def test_index_of_a_session_that_grows_slowly_has_few_parts(
    open_store: Opener, folder: Path, small_parts: None
) -> None:
    store = await open_store()
    await create(store, S)
    for number in range(60):
        await append(store, S, *[said(f"word number{number}") for _ in range(4)])
        assert len(await search(store, "word")) == 4 * (number + 1)
    assert 1 < len(parts_of(folder)) <= 240 / sizes.MOST_LOOSE


async def test_text_too_long_for_an_index_part_is_found(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (indexer, service, sizes):
        monkeypatch.setattr(module, "MOST_WORDS", 50)
    store = await open_store()
    await fill(store, "a", count=60)
    await create(store, S, said("word " * 60))
    await store.search.index()
    hits = await search(store, "word")
    assert {hit.stream for hit in hits} == {"a", "s"}
    assert len(hits) == 62
    assert await store.search.reindex() == 62
    assert await faults_of_index(store) == []


# ---------------------------------------------------------------- what is erased


@pytest.mark.parametrize("way", ["erase", "retention"])
async def test_words_of_removed_session_are_in_no_file(
    open_store: Opener, folder: Path, way: str
) -> None:
    store = await open_store()
    await fill(store, "a", "b")
    await fill(store, "s", word=CANARY)
    assert len(await search(store, CANARY)) == MANY + 1
    assert leaks_in(folder / ".perdure", CANARY)
    pages = pages_with(folder, CANARY)
    assert pages

    if way == "erase":
        await store.retention.erase(erasure(S))
    else:
        assert await store.retention.remove(S)

    assert leaks_in(folder, CANARY, pages) == []
    assert await search(store, CANARY) == []
    assert len(await search(await open_store(), "word")) == 2 * MANY + 2
    assert await faults_of_index(store) == []


async def test_session_erased_while_it_is_indexed_is_not_stored(
    open_store: Opener, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = await open_store(), await open_store()
    await fill(store, "a")
    await fill(store, "s", word=CANARY)
    put = indexer.Step.put
    erased: list[bool] = []

    def erase_first(step: indexer.Step) -> int:
        if not erased:
            # On a thread of the first, as by another process.
            asyncio.run(other.retention.erase(erasure(S)))
            erased.append(True)
        return put(step)

    monkeypatch.setattr(indexer.Step, "put", erase_first)
    assert await search(store, CANARY) == []
    assert erased
    assert leaks_in(folder, CANARY) == []
    assert len(await search(store, "word")) == MANY + 1


# ---------------------------------------------------------------- a damaged or foreign file

CHANGES = {
    "code of a text": with_text(7, codes=b"\1\2"),
    "time of a text": with_text(7, at=1),
    "missing text": without_text(7),
    "missing block": "DELETE FROM search_text",
    "position of a block": "UPDATE search_text SET n = n + 1",
    "missing pages": "DELETE FROM search_page WHERE first > 'number3'",
    "page of zeros": "UPDATE search_page SET body = zeroblob(40)",
    "missing part": "DELETE FROM search_part",
    "text of no entry": "INSERT INTO search_loose VALUES (1, 99999, 1, 1, '@1', 'x')",
    "missing place": "DELETE FROM search_place WHERE seq = 5",
    "place of another line": "UPDATE search_place SET offset = offset + 1 WHERE seq = 5",
    "huge place": "UPDATE search_place SET size = 1 << 61 WHERE seq = 5",
    "huge seq": "UPDATE search_place SET seq = 1 << 61 WHERE seq = 5",
    "target": "UPDATE search_place SET target = -2 WHERE seq = 5",
    "state of a file": "UPDATE session_file SET known = CAST('x' AS BLOB)",
}
REBUILT = ("page of zeros", "huge place", "huge seq", "state of a file")
"""Changes that a search notices; the others are reported by verify."""


async def test_verify_reports_each_change_of_index(
    open_store: Opener, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "MOST_LOOSE", 128)
    store = await open_store()
    await fill(store, "a", count=sizes.MOST_LOOSE)
    for name, change in CHANGES.items():
        await store.search.reindex()
        assert await faults_of_index(store) == [], name
        with raw_database(index_of(folder)) as db:
            if isinstance(change, str):
                db.execute(change)
            else:
                rewrite_texts(db, change)
        assert await faults_of_index(store), name
        if name in REBUILT:
            assert len(await search(store, "word")) == sizes.MOST_LOOSE + 1, name
            assert await faults_of_index(store) == [], name


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def overwritten(path: Path) -> None:
    path.write_bytes(b"not an index " * 1_000)


def halved(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))


def replaced_by_folder_of_another_program(path: Path) -> None:
    path.unlink()
    with raw_database(path) as db:
        db.execute("CREATE TABLE notes (text); INSERT INTO notes VALUES ('precious')")


def with_trigger(path: Path) -> None:
    with raw_database(path) as db:
        db.execute("CREATE TRIGGER t AFTER DELETE ON search_loose BEGIN DELETE FROM feed_mark; END")


def of_other_rules(path: Path) -> None:
    with raw_database(path) as db:
        db.execute("UPDATE search_mark SET version = 10000")


def of_other_dialect(path: Path) -> None:
    with raw_database(path) as db:
        db.execute("UPDATE namespace SET name = 'other'")


def of_later_format(path: Path) -> None:
    with raw_database(path) as db:
        db.pragma("user_version", 10_000)


def with_journal(path: Path) -> None:
    """Add a hot journal. A journal can name any file, and SQLite would delete the named file."""
    path.with_name(path.name + "-journal").write_bytes(b"\xd9\xd5\x05\xf9 and more" * 100)


def with_log_of_another_file(path: Path) -> None:
    path.with_name(path.name + "-wal").write_bytes(b"7\x7f\x06\x82" + bytes(5_000))


DAMAGES: tuple[Callable[[Path], None], ...] = (
    emptied,
    overwritten,
    halved,
    replaced_by_folder_of_another_program,
    with_trigger,
    of_other_rules,
    of_other_dialect,
    of_later_format,
    with_journal,
)


async def test_damaged_or_foreign_index_file_is_reported_and_replaced(
    open_store: Opener, folder: Path
) -> None:
    store = await open_store()
    await fill(store, "a")
    for damage in (*DAMAGES, with_log_of_another_file):
        await search(store, "word")
        await store.close()
        damage(index_of(folder))
        store = await open_store()
        if damage is not with_log_of_another_file:  # which SQLite ignores
            assert await faults_of_index(store), damage.__name__
        if damage in DAMAGES[::2]:
            await store.search.index()
            assert await faults_of_index(store) == [], damage.__name__
        assert len(await search(store, "word")) == MANY + 1, damage.__name__
        assert await faults_of_index(store) == [], damage.__name__
        assert oct(index_of(folder).stat().st_mode)[-3:] == "600"


async def test_file_damaged_while_it_is_open_is_replaced(open_store: Opener, folder: Path) -> None:
    store = await open_store()
    await fill(store, "a")
    for damage in (emptied, overwritten, halved):
        await search(store, "word")
        damage(index_of(folder))
        for _ in range(2):
            assert len(await search(store, "word number7")) == 1, damage.__name__
        await store.search.reindex()
        assert await faults_of_index(store) == [], damage.__name__


@pytest.mark.parametrize("lost", ["search.db", "search.db-*", "search.db*"])
async def test_removed_index_is_rebuilt(open_store: Opener, folder: Path, lost: str) -> None:
    store, other = await open_store(), await open_store()
    await fill(store, "a")
    for each in (store, other):
        await search(each, "word")
    for path in (folder / ".perdure").glob(lost):
        path.unlink()

    for each in (store, await open_store(), other):
        assert len(await search(each, "word")) == MANY + 1
        await append(each, A, said("more"))
    assert len(await search(other, "more")) == 3
    assert await faults_of_index(store) == []


async def test_index_is_rebuilt_if_the_feed_file_was_removed(
    open_store: Opener, folder: Path, dialect: DialectName
) -> None:
    await fill(await open_store(), "a", "b")
    await search(await open_store(), "word")
    (folder / ".perdure" / "feed").unlink()

    store = await open_store()
    query = SearchQuery(text="word", limit=5_000)
    assert await store.search.hits(query) == scanned(folder, dialect, query)
    assert await faults_of_index(store) == []


ERRORS = (apsw.FullError, apsw.IOError, apsw.ReadOnlyError)


async def test_search_works_if_index_cannot_be_written(
    open_store: Opener, folder: Path, small_parts: None
) -> None:
    with faulty_vfs() as layer:
        store = await open_store()
        await fill(store, "a")
        for error in ERRORS:
            for number in (1, 4, 9):
                await store.search.reindex()
                await append(store, A, *[said("word") for _ in range(sizes.SCANNED + 1)])
                expected = len(await store.entries(A)) + 1
                layer.plan = failing_from(number, error)
                assert len(await search(store, "word")) == expected, (error, number)
                layer.plan = failing_from(10**9, error)
                assert len(await search(store, "word")) == expected, (error, number)
                assert await faults_of_index(store) == [], (error, number)


async def test_search_works_if_index_cannot_be_created(open_store: Opener, folder: Path) -> None:
    with faulty_vfs() as layer:
        store = await open_store()
        await fill(store, "a")
        for error in ERRORS:
            for number in (1, 4, 9):
                layer.plan = failing_from(number, error)
                assert len(await search(store, "word")) == MANY + 1, (error, number)
                layer.plan = failing_from(10**9, error)
                index_of(folder).unlink(missing_ok=True)


async def test_indexing_reports_progress(open_store: Opener, small_parts: None) -> None:
    store = await open_store()
    await fill(store, "a", count=200)
    told: list[tuple[int, int]] = []
    await store.search.index(lambda done, all: told.append((done, all)))
    assert told == sorted(told)
    assert len(told) > 5
    assert told[-1] == (201, 201)
    await store.search.index(lambda done, all: told.append((done, all)))
    assert told[-1] == (201, 201)


# ---------------------------------------------------------------- what strangers do to a folder


async def test_file_with_undecodable_name_is_indexed_or_skipped(
    open_store: Opener, folder: Path, dialect: DialectName
) -> None:
    store = await open_store()
    await fill(store, "a", "s")
    file_of(folder, "s").rename(folder / os.fsdecode(b"x\xff_s.jsonl"))
    (folder / os.fsdecode(b"\xfe.jsonl")).write_bytes(b"no session\n")

    query = SearchQuery(text="word", limit=5_000)
    found = await (await open_store()).search.hits(query)
    assert len(found) == 2 * MANY + 2
    assert in_order(found) == in_order(scanned(folder, dialect, query))
    assert index_of(folder).exists()


async def test_search_that_is_cancelled_while_it_locks_the_index_releases_the_lock(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store()
    await fill(store, "a")
    tried, is_tried = Folder.try_lock, threading.Event()

    def slow(folder: Folder, kind: str, name: str) -> int | None:
        lock = tried(folder, kind, name)
        is_tried.set()
        time.sleep(0.05)
        return lock

    monkeypatch.setattr(Folder, "try_lock", slow)
    searching = asyncio.create_task(search(store, "word"))
    await asyncio.to_thread(is_tried.wait)
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching
    async with asyncio.timeout(60):
        assert len(await search(await open_store(), "word")) == MANY + 1


async def test_search_does_not_find_text_that_was_replaced_in_a_file(
    open_store: Opener, folder: Path, dialect: DialectName
) -> None:
    store = await open_store()
    await fill(store, "s")
    assert len(await search(store, "number7")) == 1
    path = file_of(folder, "s")
    with path.open("r+b") as file:
        content = file.read().replace(b"number7 ", b"erased7 ")
        file.seek(0)
        file.write(content)
    tool(dialect, path).say("user", "word")  # so it looks as a file that only grew

    fresh = await open_store()
    assert await search(fresh, "number7") == []
    assert len(await search(fresh, "erased7")) == 1
    assert leaks_in(folder, "number7 ") == []


async def test_session_is_erased_if_index_cannot_be_written(
    open_store: Opener, folder: Path
) -> None:
    with faulty_vfs() as layer:
        store = await open_store()
        await fill(store, "a")
        await fill(store, "s", word=CANARY)
        await store.search.index()
        layer.plan = failing_from(1, apsw.FullError)
        assert (await store.retention.erase(erasure(S))).is_complete
        assert leaks_in(folder, CANARY) == []
        layer.plan = failing_from(10**9, apsw.FullError)
        assert len(await search(store, "word")) == MANY + 1


async def test_reader_of_another_process_does_not_keep_erased_words(
    open_store: Opener, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.stores.jsonl.search.index_file.BUSY_MS", 50)
    store = await open_store()
    await fill(store, "a")
    await fill(store, "s", word=CANARY)
    await store.search.index()
    await append(store, S, *[said(CANARY) for _ in range(sizes.SCANNED + 1)])
    with raw_database(index_of(folder)) as db:
        db.execute("BEGIN")
        assert db.execute("SELECT count(*) FROM search_mark").fetchone() == (1,)
        await store.search.index()  # which cannot move its log into the file now
        await store.retention.erase(erasure(S))
        assert leaks_in(folder, CANARY) == []
    assert len(await search(store, "word")) == MANY + 1
    assert await faults_of_index(store) == []


async def test_erasure_removes_words_of_deleted_files_from_the_index(
    open_store: Opener, folder: Path
) -> None:
    store = await open_store()
    await fill(store, "a", "b")
    await fill(store, "s", word=CANARY)
    await store.search.index()
    file_of(folder, "s").unlink()
    await store.retention.erase(erasure("a"))
    assert leaks_in(folder, CANARY) == []
    assert len(await search(store, "word")) == MANY + 1


async def test_search_does_not_list_the_folder_again_for_each_session(
    open_store: Opener, folder: Path, dialect: DialectName, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await open_store()
    await fill(made, *(f"s{number}" for number in range(30)), count=2)
    for path in files_below(folder, "*.jsonl"):
        tool(dialect, path).say("user", "word")  # has no place in the feed yet
    shutil.copytree(folder, other := folder.with_name("other"))
    listed: list[Folder] = []
    names = Folder.names

    def seen(each: Folder) -> list[str]:
        listed.append(each)
        return names(each)

    monkeypatch.setattr(Folder, "names", seen)
    assert len(await search(await open_store(), "word")) == 30 * 4
    assert len(await (await open_store(other)).feed(0)) == 30 * 3
    assert listed == []


async def test_search_index_counts_toward_store_size_but_not_quota(
    store: JsonlStore, folder: Path
) -> None:
    await fill(store, "s", count=2 * sizes.MOST_LOOSE)
    before = await store.info()
    assert await store.search.hits(SearchQuery(text="word"))
    after = await store.info()

    index = sum(file.stat().st_size for file in (folder / ".perdure").glob("search.db*"))
    assert after.size_bytes == before.size_bytes + index > before.size_bytes
    assert after.payload_bytes == before.payload_bytes


async def test_search_works_while_stopped_process_holds_index_lock(
    store: JsonlStore, folder: Path, dialect: DialectName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.stores.jsonl.search.search.STUCK_S", 0.2)
    await fill(store, "s", count=sizes.MOST_LOOSE + MANY)
    lock = Folder(folder, is_synced=False).try_lock(BUILDING, "")
    assert lock is not None

    wanted = SearchQuery(text="word", limit=5_000)
    assert await store.search.hits(wanted) == scanned(folder, dialect, wanted)
    monkeypatch.setattr("perdure.stores.jsonl.search.search.STUCK_S", 3_600)
    with pytest.raises(StoreUnavailable, match="makes no progress"):  # it may be another
        await store.search.reindex()  # at once: nobody is waited for twice
    os.close(lock)
    await store.search.reindex()
    assert await faults_of_index(store) == []
