"""The index of a folder: what it finds is what is in the files, whoever did what to them."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import threading
import time
from pathlib import Path

import pytest

from perdure.errors import PerdureError, SearchIndexDamaged, StoreFull, StoreUnavailable
from perdure.session.ids import EntryId, StreamId
from perdure.session.search.parts import sizes
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.jsonl.disk.folder import Folder
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.search import indexer
from perdure.stores.jsonl.search.files import BUILDING
from perdure.stores.jsonl.store import DialectName, JsonlStore
from perdure.stores.retention.erase import EraseRequest
from tests.conformance.store.building import append, create, header, labelled, moved, said
from tests.fakes.clock import START_MS
from tests.fakes.faulty_files import failing_at, planned
from tests.fakes.samples import sampled
from tests.fakes.session_files import file_of, files_below
from tests.fakes.session_scan import scanned
from tests.fakes.session_tools import Operator, tool
from tests.integration.jsonl.conftest import Opener

S = StreamId("s")
MANY = 200
CANARY = "canary7f3a9c"
WORDS = ("tide", "moon", "ebb", "tidal", "flood", "harbour")
QUERIES = ("tide", "tid*", '"tide moon"', "moon OR ebb", "tide NOT moon", "flood harbour")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("SCANNED", 3), ("MOST_LOOSE", 8), ("BATCH_ROWS", 24)):
        monkeypatch.setattr(sizes, name, size)
    monkeypatch.setattr(indexer, "MOST_SMALL", 3)
    monkeypatch.setattr(indexer, "_ROWS", 5)


async def search(store: JsonlStore, text: str, *, limit: int = 5_000) -> list[Hit]:
    return await store.search.hits(SearchQuery(text=text, limit=limit))


async def fill(store: JsonlStore, *streams: str, word: str = "word", count: int = MANY) -> None:
    for stream in streams:
        entries = [said(f"{word} number{number} of {stream}") for number in range(count)]
        await create(store, header(stream, title=f"{word} {stream}"), *entries)


def parts_of(folder: Path) -> list[Path]:
    return sorted((folder / ".perdure" / "search").glob("part-*"))


def leaks_in(folder: Path, word: str = CANARY) -> list[str]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file.name for file in files if word.encode() in file.read_bytes()]


async def faults_of_index(store: JsonlStore) -> list[str]:
    found = (await store.maintenance.verify()).problems
    return [each.problem for each in found if "search index" in each.problem]


# ---------------------------------------------------------------- whoever did what to the files


class Life:
    """A folder to which perdure and a tool do one thing after the other, by chance."""

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
        """Do something; what was done."""
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
        request = EraseRequest(id=id, scope="session", by="me", at=START_MS, name=stream)
        await store.retention.erase(request)

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
        """The tool writes between our reading of the file and our writing to it."""
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
        """Another file of the same content, in its place: as after a restore."""
        path = file_of(self._folder, stream)
        copy = path.with_suffix(".copy")
        shutil.copy(path, copy)
        copy.replace(path)


@pytest.mark.usefixtures("small_parts")
@sampled("seed", range(5), kind=type, each=1)
async def test_whatever_happens_it_finds_what_a_scan_finds(
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
            assert await store.search.hits(query) == scanned(folder, dialect, query), (query, done)
        assert await faults_of_index(store) == [], done
    expected = len(scanned(folder, dialect, SearchQuery(text=" OR ".join(WORDS), limit=5_000)))
    assert await store.search.reindex() == expected
    assert parts_of(folder)


async def test_fresh_process_reads_no_session_but_the_lines_it_shows(
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


async def test_handles_that_search_at_once_make_one_index(open_store: Opener, folder: Path) -> None:
    one, other = await open_store(), await open_store()
    await fill(one, "a", "b", "c")

    found = await asyncio.gather(*(search(each, "word") for each in (one, other, one, other)))

    assert {len(hits) for hits in found} == {3 * MANY + 3}
    assert len(parts_of(folder)) == 1


async def test_what_grows_a_little_at_a_time_is_in_few_parts(
    open_store: Opener, folder: Path, small_parts: None
) -> None:
    store = await open_store()
    await create(store, S)
    for number in range(60):
        await append(store, S, *[said(f"word number{number}") for _ in range(4)])
        assert len(await search(store, "word")) == 4 * (number + 1)
    assert len(parts_of(folder)) < 240 / sizes.MOST_LOOSE + indexer.MOST_SMALL


async def test_text_that_is_too_long_for_any_part_is_found(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "MOST_WORDS", 50)
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
async def test_nothing_is_left_of_the_words_of_what_was_taken_away(
    open_store: Opener, folder: Path, way: str
) -> None:
    store = await open_store()
    await fill(store, "a", "b")
    await fill(store, "s", word=CANARY)
    assert len(await search(store, CANARY)) == MANY + 1
    assert leaks_in(folder / ".perdure")

    if way == "erase":
        request = EraseRequest(id="e", scope="session", by="me", at=START_MS, name=S)
        await store.retention.erase(request)
    else:
        assert await store.retention.remove(S)

    assert leaks_in(folder) == []
    assert await search(store, CANARY) == []
    assert len(await search(await open_store(), "word")) == 2 * MANY + 2
    assert await faults_of_index(store) == []


async def test_nothing_is_put_in_of_what_is_erased_while_it_is_indexed(
    open_store: Opener, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = await open_store(), await open_store()
    await fill(store, "a")
    await fill(store, "s", word=CANARY)
    put = indexer.Step.put
    erased: list[bool] = []

    def erase_first(step: indexer.Step) -> int:
        if not erased:
            request = EraseRequest(id="e", scope="session", by="me", at=START_MS, name=S)
            asyncio.run(
                other.retention.erase(request)
            )  # on a thread of the first, as by another process
            erased.append(True)
        return put(step)

    monkeypatch.setattr(indexer.Step, "put", erase_first)
    assert await search(store, CANARY) == []
    assert erased
    assert leaks_in(folder) == []
    assert len(await search(store, "word")) == MANY + 1


# ---------------------------------------------------------------- what is damaged, or cannot be


async def test_a_damaged_part_is_said_and_named_and_mended(
    open_store: Opener, folder: Path
) -> None:
    store = await open_store()
    await fill(store, "a")
    await search(store, "word")
    [part] = parts_of(folder)
    content = part.read_bytes()
    part.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))

    with pytest.raises(SearchIndexDamaged):
        await search(store, "word number7")
    assert await faults_of_index(store)
    assert await store.search.reindex() == MANY + 1
    assert len(await search(store, "word")) == MANY + 1
    assert await faults_of_index(store) == []


async def test_each_byte_that_changes_in_a_part_is_named(open_store: Opener, folder: Path) -> None:
    store = await open_store()
    await fill(store, "a", count=60)
    await search(store, "word")
    [part] = parts_of(folder)
    content = bytearray(part.read_bytes())
    for place in range(0, len(content), max(1, len(content) // 60)):
        content[place] ^= 0x11
        part.write_bytes(content)
        assert await faults_of_index(store), place
        content[place] ^= 0x11
    part.write_bytes(content)
    assert await faults_of_index(store) == []


@pytest.mark.parametrize("lost", ["part-*", "catalogue", "*"])
async def test_what_is_lost_of_it_is_made_again(
    open_store: Opener, folder: Path, lost: str
) -> None:
    store = await open_store()
    await fill(store, "a")
    await search(store, "word")
    for path in (folder / ".perdure" / "search").glob(lost):
        path.unlink()

    assert len(await search(store, "word")) == MANY + 1
    assert await faults_of_index(store) == []
    assert len(parts_of(folder)) == 1


@pytest.mark.parametrize("content", [b"", b"not what it was"])
async def test_damaged_catalogue_is_named_and_made_again(
    open_store: Opener, folder: Path, content: bytes
) -> None:
    store = await open_store()
    await fill(store, "a")
    await search(store, "word")
    (folder / ".perdure" / "search" / "catalogue").write_bytes(content)

    assert await faults_of_index(store)
    assert len(await search(store, "word")) == MANY + 1
    assert await faults_of_index(store) == []


async def test_a_feed_that_was_begun_anew_makes_the_index_anew(
    open_store: Opener, folder: Path, dialect: DialectName
) -> None:
    await fill(await open_store(), "a", "b")
    await search(await open_store(), "word")
    (folder / ".perdure" / "feed").unlink()

    store = await open_store()
    query = SearchQuery(text="word", limit=5_000)
    assert await store.search.hits(query) == scanned(folder, dialect, query)
    assert await faults_of_index(store) == []


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("operation", ["write", "replace"])
async def test_where_it_cannot_be_written_a_search_goes_without(
    open_store: Opener, folder: Path, error: int, operation: str
) -> None:
    store = await open_store()
    await fill(store, "a")
    for number in (1, 2):
        with planned(failing_at(number, error, "write" if operation == "write" else "replace")):
            assert len(await search(store, "word")) == MANY + 1
    assert len(await search(store, "word")) == MANY + 1
    assert await faults_of_index(store) == []
    assert len(parts_of(folder)) == 1


async def test_it_says_how_far_it_is(open_store: Opener, small_parts: None) -> None:
    store = await open_store()
    await fill(store, "a")
    told: list[tuple[int, int]] = []
    await store.search.index(lambda done, all: told.append((done, all)))
    assert told == sorted(told)
    assert len(told) > 5
    assert told[-1] == (MANY + 1, MANY + 1)
    await store.search.index(lambda done, all: told.append((done, all)))
    assert told[-1] == (MANY + 1, MANY + 1)


# ---------------------------------------------------------------- what strangers do to a folder


async def test_a_file_whose_name_is_no_text_is_indexed_or_passed_over(
    open_store: Opener, folder: Path, dialect: DialectName
) -> None:
    store = await open_store()
    await fill(store, "a", "s")
    file_of(folder, "s").rename(folder / os.fsdecode(b"x\xff_s.jsonl"))
    (folder / os.fsdecode(b"\xfe.jsonl")).write_bytes(b"no session\n")

    query = SearchQuery(text="word", limit=5_000)
    found = await (await open_store()).search.hits(query)
    assert len(found) == 2 * MANY + 2
    assert found == scanned(folder, dialect, query)
    assert parts_of(folder)


async def test_who_is_cancelled_as_it_takes_the_lock_lets_go_of_it(
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


async def test_a_text_that_was_changed_in_its_place_is_not_found_as_it_was(
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


async def test_a_full_disk_keeps_nobody_from_erasing(open_store: Opener, folder: Path) -> None:
    store = await open_store()
    await fill(store, "a")
    await fill(store, "s", word=CANARY)
    await store.search.index()

    def is_full(_: Folder, path: Path, content: bytes) -> None:
        raise StoreFull(f"{path}: {len(content)}")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Folder, "put_beside", is_full)
        request = EraseRequest(id="e", scope="session", by="me", at=START_MS, name=S)
        assert (await store.retention.erase(request)).is_complete

    assert leaks_in(folder) == []
    assert len(await search(store, "word")) == MANY + 1


async def test_what_could_not_be_written_takes_no_room(open_store: Opener, folder: Path) -> None:
    store = await open_store()
    await fill(store, "a")

    with planned(failing_at(1, errno.ENOSPC, "write", kept=0.5)):
        assert len(await search(store, "word")) == MANY + 1
    assert list((folder / ".perdure" / "search").glob("*.new")) == []


async def test_erasing_takes_the_words_of_deleted_files_too(
    open_store: Opener, folder: Path
) -> None:
    store = await open_store()
    await fill(store, "a", "b")
    await fill(store, "s", word=CANARY)
    await store.search.index()
    file_of(folder, "s").unlink()
    (folder / ".perdure" / "search" / "of a stranger").mkdir()

    await store.retention.erase(
        EraseRequest(id="e", scope="session", by="me", at=START_MS, name="a")
    )
    assert leaks_in(folder) == []
    assert len(await search(store, "word")) == MANY + 1


async def test_a_part_that_says_it_is_huge_takes_no_memory(
    open_store: Opener, folder: Path
) -> None:
    store = await open_store()
    await fill(store, "a")
    await store.search.index()
    (part,) = parts_of(folder)
    content = bytearray(part.read_bytes())
    content[8:24] = b"\xff" * 16
    part.write_bytes(content)

    with pytest.raises(SearchIndexDamaged):
        await search(await open_store(), "word")
    assert await faults_of_index(store) != []


async def test_folder_is_not_listed_for_each_session_that_tool_wrote(
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


async def test_what_the_index_takes_is_counted_and_no_quota_is_used_by_it(
    store: JsonlStore, folder: Path
) -> None:
    await fill(store, "s", count=2 * sizes.MOST_LOOSE)
    before = await store.info()
    assert await store.search.hits(SearchQuery(text="word"))
    after = await store.info()

    index = sum(file.stat().st_size for file in (folder / ".perdure" / "search").iterdir())
    assert after.size_bytes == before.size_bytes + index > before.size_bytes
    assert after.payload_bytes == before.payload_bytes


async def test_a_process_that_was_stopped_while_it_indexed_keeps_nobody_from_searching(
    store: JsonlStore, folder: Path, dialect: DialectName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.stores.jsonl.search.search.STUCK_S", 0.2)
    await fill(store, "s", count=sizes.MOST_LOOSE + MANY)
    (folder / ".perdure" / "search").mkdir()
    lock = Folder(folder, is_synced=False).try_lock(BUILDING, "")
    assert lock is not None

    wanted = SearchQuery(text="word", limit=5_000)
    assert await store.search.hits(wanted) == scanned(folder, dialect, wanted)
    monkeypatch.setattr("perdure.stores.jsonl.search.search.STUCK_S", 3_600)
    with pytest.raises(StoreUnavailable, match="if that process was stopped"):  # it may be another
        await store.search.reindex()  # at once: nobody is waited for twice
    os.close(lock)
    await store.search.reindex()
    assert await faults_of_index(store) == []
