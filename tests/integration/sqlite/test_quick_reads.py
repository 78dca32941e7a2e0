"""Quick reads for shell completion equal the reads of the opened store and leave no trace."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.session.codec import new_side
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint, Origin, SessionInfo
from perdure.session.notes import Question, SessionEnded
from perdure.stores.key import StoreKey
from perdure.stores.sqlite.quick_reads import QuickReads, read_quickly
from perdure.stores.sqlite.store import SqliteStore
from tests.conformance.store.building import append, create, erasure, header, said
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.raw_database import raw_database
from tests.fakes.samples import case
from tests.integration.sqlite.conftest import Opener

TYPED = (None, "a", "A1", "tide", "ÜBER", "über", "hello", "nothing", "\ud800", "[redacted]")
ORIGINS: Sequence[Origin] = ("user", "role", "subagent", "import", "knowledge")
LIMIT = 20


def quick_list(
    path: Path, namespace: str = "default", query: str | None = None
) -> list[SessionInfo] | None:
    async def look(log: QuickReads) -> list[SessionInfo]:
        return await log.sessions(limit=LIMIT, scope="all", query=query)

    return read_quickly(path, namespace, look)


def files_in(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


async def fill(store: SqliteStore) -> None:
    """Create sessions of every origin and status, with and without titles, and a flow."""
    for number, origin in enumerate(ORIGINS):
        title = f"Tide {number}" if number % 2 else None
        await create(store, header(f"a{number}", origin=origin, title=title), said("Hello über"))
    for number in range(2 * LIMIT):
        await create(store, header(f"b{number}", title="many"), said(at=1_000 * number))
    await create(store, header("gone", title="a tide of the past"), said())
    await store.retention.erase(erasure("gone"))
    await create(store, header("ended", title="a tide at its end"), said())
    await append(store, StreamId("ended"), new_side(SessionEnded(reason="done")))
    await create(store, header("secret"), said("use sk-ant-api03-QRSTUVWXYZabcdefghij please"))
    await create(store, header("a-flow", kind="flow", title="tide of work"))


async def both(store: SqliteStore, path: Path, typed: str | None) -> tuple[object, object]:
    quick = quick_list(path, store.namespace, typed)
    return quick, await store.sessions(limit=LIMIT, scope="all", query=typed)


async def test_quick_read_of_an_open_store_returns_the_same_list(
    open_store: Opener, path: Path
) -> None:
    store, other = await open_store(), await open_store(namespace="other")
    await fill(store)
    await create(other, header("a-other", title="tide elsewhere"), said())
    before = files_in(path.parent)
    for each in (store, other):
        for typed in TYPED:
            with case(typed):
                quick, listed = await both(each, path, typed)
                assert quick == listed
    assert files_in(path.parent).keys() == before.keys()


async def test_quick_read_of_a_closed_store_returns_the_same_list(
    open_store: Opener, path: Path
) -> None:
    store = await open_store()
    await fill(store)
    listed = {typed: await store.sessions(limit=LIMIT, scope="all", query=typed) for typed in TYPED}
    await store.close()
    before = files_in(path.parent)
    assert list(before) == [path.name]
    for typed in TYPED:
        with case(typed):
            assert quick_list(path, query=typed) == listed[typed]
            assert files_in(path.parent) == before


async def test_quick_read_through_a_link_to_an_open_store_returns_its_list(
    open_store: Opener, path: Path
) -> None:
    store = await open_store()
    await create(store, header("a"), said())
    await store.close()
    again = await open_store()
    await create(again, header("b"), said())
    (path.parent / "links").mkdir()
    link = path.parent / "links" / "link.db"
    link.symlink_to(path)
    quick, listed = await both(again, link, None)
    assert quick == listed


async def test_quick_read_returns_no_list_while_the_file_is_locked(
    open_store: Opener, path: Path
) -> None:
    store = await open_store()
    await create(store, header("a"), said())
    await store.close()
    with raw_database(path) as db:  # as maintenance that has the file alone
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("BEGIN EXCLUSIVE")
        db.execute("DELETE FROM entry")
        assert path.with_name(f"{path.name}-journal").exists()
        assert quick_list(path) is None
        db.execute("ROLLBACK")


@pytest.mark.parametrize("missing", ["file", "folder", "namespace", "index of the log", "version"])
async def test_quick_read_of_an_unusual_file_returns_none(
    missing: str, open_store: Opener, path: Path
) -> None:
    store = await open_store()
    await fill(store)
    place, namespace = path, "default"
    if missing == "file":
        place = path.with_name("none.db")
    elif missing == "folder":
        place = path.parent
    elif missing == "namespace":
        namespace = "nowhere"
    elif missing == "index of the log":  # as after a kill
        (path.parent / "killed").mkdir()
        place = path.parent / "killed" / path.name
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{place}{end}")
    else:
        await store.close()
        with raw_database(path) as db:
            db.execute("PRAGMA user_version = 99")
    before = sorted(path.parent.rglob("*"))
    assert quick_list(place, namespace) is None
    assert sorted(path.parent.rglob("*")) == before


async def test_quick_read_returns_no_list_during_an_unfinished_erasure(
    open_store: Opener, path: Path
) -> None:
    store = await open_store()
    await fill(store)
    await store.close()
    with raw_database(path) as db:
        db.execute("UPDATE erasure SET is_done = 0")
    assert quick_list(path) is None


async def test_quick_read_of_an_encrypted_or_foreign_file_returns_none(path: Path) -> None:
    found: list[list[SessionInfo] | None] = []
    store = await SqliteStore.open(
        path, clock=ManualClock(), random=SeededRandom(1), key=StoreKey(b"k" * 32)
    )
    await create(store, header("a"), said())
    found.append(quick_list(path))
    await store.close()
    found.append(quick_list(path))
    other = path.with_name("other.db")
    with raw_database(other) as db:
        db.execute("CREATE TABLE mine (a)")
    found.append(quick_list(other))
    assert found == [None, None, None]


async def test_each_quick_read_equals_the_read_of_the_open_store(
    open_store: Opener, path: Path
) -> None:
    store, session = await open_store(), StreamId("a")
    await create(store, header("a"), said("Hello"), said("again"))
    await append(store, session, new_side(Question("approval", "Deploy?", ("yes", "no"))))
    await create(
        store, header("fork", fork=ForkPoint(session, EntryId("a/1"), 2, "tree")), said("elsewhere")
    )
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("state", (session,)),
        ("entries", (session,)),
        ("entry", (session, EntryId("a/1"))),
        ("visible_ids", (StreamId("fork"), ["a/0", "a/1"])),
        ("branch", (session, EntryId("a/1"))),
        ("context_window", (StreamId("fork"), EntryId("fork/0"))),
        ("around", (session, EntryId("a/1"), [EntryId("a/1")], 1)),
        ("tree", (StreamId("fork"), 1)),
        ("tree", (StreamId("fork"),)),
        ("notes", (session, (Question.kind,))),
        ("open_questions", (session,)),
        ("partial", (session,)),
        ("resolve", (session, "a/1")),
        ("find_entry", (session, "1")),
        ("aliases", (session,)),
        ("find", ("fo",)),
        ("open_of_all", (Question.kind,)),
        ("notes_of_all", ((Question.kind,),)),
    ]
    for name, arguments in calls:
        with case(name):

            async def look(
                log: QuickReads, name: str = name, arguments: tuple[Any, ...] = arguments
            ) -> list[object]:
                return [await getattr(log, name)(*arguments)]

            expected = await getattr(store, name)(*arguments)
            assert read_quickly(path, "default", look) == [expected]


async def test_quick_read_of_a_missing_session_returns_none(open_store: Opener, path: Path) -> None:
    store = await open_store()
    await create(store, header("a"), said("Hello"))

    async def look(log: QuickReads) -> StreamId:
        return await log.find("missing")

    assert read_quickly(path, "default", look) is None
