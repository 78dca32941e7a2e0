"""Erased text is in no byte of the files of a plain or an encrypted store.

A plain store shows every byte. The pages of an encrypted store are decrypted first, because
encrypted pages would hide the text.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.session.codec import new_side, new_tree
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.messages import assistant, user
from perdure.session.notes import SessionInfoChanged
from perdure.session.search.parts.builder import make_part
from perdure.session.search.values import SearchQuery
from perdure.stores.key import StoreKey
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.erase import Certificate, EraseRequest, EraseScope
from perdure.stores.sqlite.maintenance.rekey import rekey
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.leaks import leaks_in, pages_with
from tests.fakes.parts import make_parts_of_few_texts, text
from tests.fakes.planted import FLOW, STREAMS, plant
from tests.fakes.raw_database import raw_database

WORD = "canary7f3a9c"
KEY = StoreKey(b"\x0a" * 32)


async def opened(path: Path, key: StoreKey | None = None) -> SqliteStore:
    return await SqliteStore.open(
        path, clock=ManualClock(), random=SeededRandom(1), key=key, durability="normal"
    )


async def erase(store: SqliteStore, name: str | None, scope: EraseScope = "session") -> Certificate:
    request = EraseRequest(
        id=f"e-{name}", scope=scope, by="me", at=START_MS, name=name, forks="erase"
    )
    return await store.retention.erase(request)


@pytest.fixture(autouse=True)
def parts_of_few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    make_parts_of_few_texts(monkeypatch)


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
async def test_erased_session_leaves_none_of_its_planted_text_in_the_files(
    path: Path, key: StoreKey | None
) -> None:
    store = await opened(path, key)
    await plant(store, WORD)
    assert await store.search.hits(
        SearchQuery(text=WORD)
    )  # indexed: the words are in the file, too
    pages = pages_with(path.parent, WORD)
    assert pages or key is not None
    for stream in STREAMS:
        await erase(store, stream)
    assert key is not None or leaks_in(path.parent, WORD, pages) == []

    assert (await store.maintenance.verify()).problems == ()
    assert await store.search.hits(SearchQuery(text=WORD)) == []
    await store.close()
    if key is not None:
        rekey(path, key, None, lambda _done, _total: None)
    assert leaks_in(path.parent, WORD, pages) == []


async def test_erased_namespace_leaves_none_of_its_planted_text_in_the_files(path: Path) -> None:
    store = await opened(path)
    await plant(store, WORD)
    await store.search.reindex()
    pages = pages_with(path.parent, WORD)
    assert pages

    certificate = await erase(store, None, "namespace")

    assert {session.session for session in certificate.sessions} == set(STREAMS)
    assert FLOW in {session.session for session in certificate.sessions}
    assert certificate.is_complete
    assert leaks_in(path.parent, WORD, pages) == []
    await store.close()
    assert leaks_in(path.parent, WORD, pages) == []


@pytest.mark.all_only
async def test_erased_text_does_not_remain_in_split_or_refilled_pages(path: Path) -> None:
    """Rows that grow move between pages; the old bytes in each page are overwritten, too."""
    store = await opened(path)
    names = [StreamId(f"s{number:03}") for number in range(120)]
    for name in names:
        header = StreamHeader(name, START_MS, title=f"{WORD} {name}", cwd=f"/{WORD}/{name}")
        await store.commit(Commit(writes=(Write(stream=name, create=header),), at=START_MS))
    for turn in range(6):
        for number, name in enumerate(names):
            text = f"{WORD} " + "x" * (37 * (number % 50) * (turn + 1) % 7_000)
            blob = f"{WORD} {name} {turn}".encode() * (1 + number % 90)
            entries = (
                new_tree(user(text), alias=f"{WORD}-{turn}"),
                new_tree(assistant(f"{WORD} see {blob_hash(blob)}")),
                new_side(SessionInfoChanged(title=f"{WORD} {'y' * (number + turn)}")),
            )
            write = Write(stream=name, entries=entries)
            key = f"{WORD} {name} {turn}"
            await store.commit(
                Commit(writes=(write,), at=START_MS, idempotency_key=key, blobs=(blob,))
            )
        await store.search.hits(SearchQuery(text=WORD))
    pages = pages_with(path.parent, WORD)
    assert pages
    assert leaks_in(path.parent, WORD)

    for name in names:
        await erase(store, name)

    assert (await store.maintenance.verify()).problems == ()
    assert leaks_in(path.parent, WORD, pages) == []
    await store.close()
    assert leaks_in(path.parent, WORD, pages) == []


async def test_erasure_waits_for_older_reader_or_reports_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.stores.sqlite.database.TRUNCATE_LIMIT_S", 0.05)
    store, other = await opened(path), await opened(path)
    await plant(store, WORD)
    await store.search.reindex()
    pages = pages_with(path.parent, WORD)
    assert pages
    begun, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def read(tables: Tables) -> None:
        tables.value("SELECT count(*) FROM stream")
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

    reading = asyncio.ensure_future(other.handle.opened.read(read))
    await begun.wait()
    certificate = await erase(store, None, "namespace")
    assert not certificate.is_complete
    assert "log" in {copy.kind for copy in certificate.copies}
    go_on.set()
    await reading
    await other.close()

    again = await opened(path)
    (finished,) = await again.retention.erasures()
    assert finished.is_complete
    assert "log" not in {copy.kind for copy in finished.copies}
    assert leaks_in(path.parent, WORD, pages) == []
    await again.close()
    await store.close()


def test_erased_text_in_a_free_page_is_detected(path: Path) -> None:
    part = make_part([text(1, f"before {WORD} behind")])
    with raw_database(path) as db:
        db.execute("PRAGMA secure_delete = OFF")
        db.execute("CREATE TABLE search_page (part, first, body)")
        for page in part.pages:
            db.execute("INSERT INTO search_page VALUES (1, ?, ?)", page)
        pages = pages_with(path, WORD)
        assert leaks_in(path, WORD) == [path.name]
        db.execute("DELETE FROM search_page")
    assert leaks_in(path, WORD) == []
    assert leaks_in(path, WORD, pages) == [path.name]
