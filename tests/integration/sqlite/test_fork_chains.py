"""Erasing the origin of a fork chain has a constant cost per fork, counted in SQLite steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from perdure.session.codec import new_tree
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.messages import user
from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite import reads
from perdure.stores.sqlite.retention.erase_plan import begin
from perdure.stores.sqlite.retention.erase_records import certificate_with
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.store import SqliteStore
from tests.conformance.store.building import erasure, labelled
from tests.fakes.clock import START_MS, SeededRandom
from tests.fakes.streams import S, append, create, say
from tests.integration.sqlite.conftest import Opener
from tests.integration.sqlite.test_neighbours import steps_of


async def chain(store: SqliteStore, length: int) -> StreamId:
    """Create a session and `length` forks, each a fork of the one before; return the last fork.

    Each fork has a word of its own.
    """
    await create(store)
    await say(store, *(str(number) for number in range(20)))
    origin = S
    for number in range(length):
        state = await store.state(origin)
        point = ForkPoint(origin, state.leaf, state.head, "tree")
        stream = StreamId(f"f{number}")
        header = StreamHeader(stream, START_MS, parent=origin, fork=point)
        write = Write(stream=stream, create=header, entries=(new_tree(user(f"fork {number}")),))
        await store.commit(Commit(writes=(write,), at=START_MS))
        origin = stream
    return origin


def steps_of_begin(path: Path) -> int:
    """Return the SQLite steps of the erasure's first transaction, which is rolled back."""
    db = cast("Connection", apsw.Connection(str(path)))
    request = erasure(S, forks="keep")
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    db.execute("BEGIN IMMEDIATE")
    db.set_progress_handler(count, 10)
    try:
        begin(Tables(db), "default", request, SeededRandom(1))
    finally:
        db.set_progress_handler(None, 0)
        db.execute("ROLLBACK")
        db.close()
    return steps


@pytest.mark.full_only
async def test_erasing_origin_of_fork_chain_has_linear_cost(
    open_store: Opener, tmp_path: Path
) -> None:
    steps: dict[int, int] = {}
    for length in (25, 250):
        path = tmp_path / f"{length}.db"
        store = await open_store(path)
        await chain(store, length)
        steps[length] = steps_of_begin(path)
        certificate = await store.retention.erase(erasure(S, forks="keep"))
        assert len(certificate.sessions[0].kept_for) == length
        assert (await store.maintenance.verify()).problems == ()

    assert steps[250] <= steps[25] * 10 * 1.15


async def test_cost_of_reading_the_newest_entries_does_not_grow_with_fork_depth(
    open_store: Opener, tmp_path: Path
) -> None:
    found: list[dict[str, int]] = []
    for depth in (60, 240):
        path = tmp_path / f"{depth}.db"
        store = await open_store(path)
        last = await chain(store, depth)
        leaf = (await store.state(last)).leaf
        looks: dict[str, Callable[[Tables], object]] = {
            "state": partial(reads.state, namespace="default", stream=last),
            "newest": partial(reads.branch, namespace="default", stream=last, leaf=leaf, limit=20),
            "window": partial(
                reads.context_window, namespace="default", stream=last, leaf=leaf, limit=20
            ),
            "tree": partial(reads.tree, namespace="default", stream=last, limit=20),
        }
        found.append({name: steps_of(path, look) for name, look in looks.items()})
    few, many = found
    assert {name: steps for name, steps in many.items() if steps > few[name] * 1.1 + 20} == {}


async def test_erasure_of_a_long_session_uses_only_small_transactions(
    open_store: Opener, tmp_path: Path
) -> None:
    widest: list[int] = []
    for size in (1_000, 4_000):
        changes: list[int] = []

        def hook(db: Any, changes: list[int] = changes) -> None:
            before = 0

            def note() -> bool:
                nonlocal before
                changes.append(db.total_changes() - before)
                before = db.total_changes()
                return False

            db.set_commit_hook(note)

        store = await open_store(tmp_path / f"{size}.db")
        await create(store)
        await say(store, *(str(number) for number in range(size)))
        await store.close()
        apsw.connection_hooks.append(hook)
        try:
            store = await open_store(tmp_path / f"{size}.db")
            await store.retention.erase(erasure(S))
        finally:
            apsw.connection_hooks.remove(hook)
        assert sum(changes) > size
        widest.append(max(changes))
    assert widest[1] <= widest[0]


async def test_lookup_of_an_erasure_certificate_stays_fast_after_many_erasures(
    open_store: Opener, path: Path
) -> None:
    store = await open_store()
    steps: list[int] = []
    for number in range(30):
        name = StreamId(f"s{number}")
        await create(store, name)
        made = await store.retention.erase(erasure(name, id=f"e{number}"))
        look = partial(certificate_with, namespace="default", id_=made.id)
        steps.append(steps_of(path, look))
    assert max(steps) <= steps[1], steps


async def test_reading_labels_of_a_deep_fork_reads_only_streams_with_labels(
    open_store: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(tmp_path / "a.db")
    last = await chain(store, 60)
    await append(store, labelled("first", EntryId("s/0")))
    named: list[int] = []
    stream_id = Tables.stream_id

    def counted(tables: Tables, number: int) -> StreamId:
        named.append(number)
        return stream_id(tables, number)

    monkeypatch.setattr(Tables, "stream_id", counted)
    assert await store.notes(last, ("label",)) == []  # it came after the forks
    assert named == []
    assert len(await store.notes(S, ("label",))) == 1
    assert len(named) == 1
