"""Long branches: what is shown or sent is read, whatever the length; counted, not timed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import perdure
from perdure.apps.terminal.reports import MOST_READ, report_of
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.session.entries import Entry
from perdure.session.messages import Message, assistant, user
from perdure.stores.sqlite.rows import Tables

SIZES = (2_000, 12_000)
Act = Callable[[], Awaitable[object]]


class Counts:
    """How many rows became entries, and how many bodies of messages were decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.bodies = 0
        made, decoded = Tables.entry, Entry.message.fget
        assert decoded is not None

        def counted_row(tables: Tables, *values: object) -> Entry:
            self.rows += 1
            return made(tables, *values)  # pyright: ignore[reportArgumentType] - as it was called

        def counted_body(entry: Entry) -> Message | None:
            self.bodies += 1
            return decoded(entry)

        monkeypatch.setattr(Tables, "entry", counted_row)
        monkeypatch.setattr(Entry, "message", property(counted_body))

    async def of(self, act: Act) -> tuple[int, int]:
        self.rows = self.bodies = 0
        await act()
        return self.rows, self.bodies


async def long_session(store: Store, size: int) -> Session:
    session = await store.create()
    for first in range(0, size, 1_000):
        said = [f"number {n} says what all the others say" for n in range(first, first + 1_000)]
        messages = [assistant(text) if n % 2 else user(text) for n, text in enumerate(said)]
        await session.append_many(messages)
    return session


async def looks(store: Store, session: Session, size: int) -> dict[str, Act]:
    middle = f"{session.id}/{size // 2}"
    await session.label(middle, "here")
    fork = await session.fork(middle)
    assert await fork.labels() == {middle: "here"}
    return {
        "context": lambda: session.context(500),
        "info": session.info,
        "show": lambda: report_of(session, store.backend, MOST_READ),
        "tree": lambda: session.tree(1_000),
        "labels": fork.labels,
    }


async def test_looks_at_long_session_read_same_rows_at_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counts(monkeypatch)
    found: dict[str, list[tuple[int, int]]] = {}
    for size in SIZES:
        async with perdure.open(f"sqlite:///{tmp_path}/{size}.db", durability="normal") as store:
            session = await long_session(store, size)
            for name, look in (await looks(store, session, size)).items():
                found.setdefault(name, []).append(await counts.of(look))
    for name, (small, large) in found.items():
        assert small == large, name
        assert max(large) < SIZES[0] * 3, name
    assert max(found["context"][0]) < 800
    assert max(found["labels"][0]) < 10


async def test_looks_at_long_session_need_same_memory_at_any_length(tmp_path: Path) -> None:
    peaks: dict[str, list[int]] = {}
    for size in SIZES:
        async with perdure.open(f"sqlite:///{tmp_path}/{size}.db", durability="normal") as store:
            session = await long_session(store, size)
            for name, look in (await looks(store, session, size)).items():
                await look()
                tracemalloc.start()
                await look()
                peaks.setdefault(name, []).append(tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
    for name, (small, large) in peaks.items():
        assert large < small * 1.3 + 50_000, (name, small, large)


async def test_tree_of_newest_entries_keeps_branch_of_older_leaf(tmp_path: Path) -> None:
    async with perdure.open(f"sqlite:///{tmp_path}/a.db") as store:
        session = await store.create(id="s")
        await session.append(*(user(str(n)) for n in range(6)))
        await session.append(*(user(f"other {n}") for n in range(6)), parent="s/1")
        await session.branch("s/4")
        assert [entry.seq for entry in await session.tree_entries(3)] == [2, 3, 4, 9, 10, 11]
        assert len(await session.tree_entries()) == 12
        report = await report_of(session, store.backend, 3)
        assert (report.earlier, [entry.seq for entry in report.branch]) == (2, [2, 3, 4])
