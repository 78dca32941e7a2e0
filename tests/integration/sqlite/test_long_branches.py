"""Only the entries that are shown or sent are read, however long the branch is.

The tests count reads instead of measuring time.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

import perdure
from perdure.apps.terminal.reports import MOST_READ, report_of
from perdure.client.agents.chat import Chat
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, When
from perdure.models.scripted import ScriptedModel
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction
from perdure.session.messages import Message, assistant, tool_call, tool_result, user
from perdure.stores.sqlite.rows import Tables
from perdure.tools.decorator import tool

SIZES = (2_000, 12_000)
COUNTED = (2_000, 6_000)
"""Sizes of sessions whose costs must be equal; memory is compared with a tolerance."""

Act = Callable[[], Awaitable[object]]


class Counts:
    """The numbers of rows that became entries and of decoded message bodies."""

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
    await say(session, size)
    return session


async def say(session: Session, size: int) -> None:
    for first in range(0, size, 1_000):
        numbers = range(first, min(size, first + 1_000))
        said = [f"number {n} says what all the others say" for n in numbers]
        messages = [assistant(text) if n % 2 else user(text) for n, text in enumerate(said)]
        await session.append_many(messages)


@tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing in {where}"


AGENT = perdure.Agent("reader", model="scripted:test", tools=(look,))


@asynccontextmanager
async def working(store: Store, session: Session) -> AsyncGenerator[Chat]:
    """Return an agent in `session` with two tool calls per turn; its answers report all usage."""

    def calling(number: int) -> Reply:
        call = ScriptedCall("look", f'{{"where": "place {number}"}}')
        return Reply(when=When(round=number), steps=(Say("hm"), CallTools((call,))))

    rules = (calling(1), calling(2), Reply(steps=(Say("nothing"),)))
    model = ScriptedModel(Scenario(name="test", rules=rules), clock=store.outside.clock)
    async with perdure.Runtime(store, models=model) as runtime:
        yield await runtime.resume(session.id, AGENT)


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


@pytest.mark.parametrize("has_worked", [False, True])
async def test_views_of_a_session_read_equally_many_rows_at_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_worked: bool
) -> None:
    counts = Counts(monkeypatch)
    found: dict[str, list[tuple[int, int]]] = {}
    for size in COUNTED:
        async with perdure.open(f"sqlite:///{tmp_path}/{size}.db", durability="normal") as store:
            session = await long_session(store, size)
            if has_worked:
                async with working(store, session) as chat:
                    await chat.send("go on")
                    await chat.send("and?")
            for name, look in (await looks(store, session, size)).items():
                found.setdefault(name, []).append(await counts.of(look))
    for name, (small, large) in found.items():
        assert small == large, name
        assert max(large) < COUNTED[0] * 3, name
    assert max(found["context"][0]) < 800
    assert max(found["labels"][0]) < 10


@pytest.mark.parametrize("pinned", ["none", "shown", "hidden"])
async def test_cost_of_a_later_turn_does_not_grow_with_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pinned: str
) -> None:
    counts = Counts(monkeypatch)
    found: list[tuple[int, int]] = []
    peaks: list[int] = []
    for size in SIZES:
        async with perdure.open(f"sqlite:///{tmp_path}/{size}.db", durability="normal") as store:
            session = await long_session(store, size)
            if pinned != "none":
                await session.pin(f"{session.id}/5")
            if pinned == "hidden":
                await session.append(Compaction("gist", EntryId(f"{session.id}/{size - 20}")))
            async with working(store, session) as chat:
                for _ in range(4):
                    await chat.send("go on")
                found.append(await counts.of(partial(settled, chat)))
                tracemalloc.start()
                await settled(chat)
                peaks.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
    small, large = peaks
    assert found[0] == found[1]
    assert found[0][0] == 0
    assert large < small * 1.3 + 50_000


async def settled(chat: Chat) -> None:
    await chat.send("again")


async def test_context_with_old_pinned_entries_does_not_read_the_whole_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counts(monkeypatch)
    found: list[list[tuple[int, int]]] = []
    for size in COUNTED:
        async with perdure.open(f"sqlite:///{tmp_path}/{size}.db", durability="normal") as store:
            session = await store.create()
            call, result = assistant(tool_call("far", "read", {})), tool_result("far", "it is red")
            await session.append_many([user("look"), call, result, assistant("red")])
            await say(session, size)
            await session.pin(f"{session.id}/2")
            await session.pin(f"{session.id}/40")
            costs = [await counts.of(partial(session.context, 500))]
            sent = await sent_seqs(session, 500)
            assert (sent[:3], sent[-1]) == ([1, 2, 40], size + 3)
            await session.append(Compaction("gist", EntryId(f"{session.id}/{size - 20}")))
            costs.append(await counts.of(session.context))
            assert (await sent_seqs(session))[1:4] == [1, 2, 40]
            costs.append(await counts.of(partial(session.context, 500)))
        found.append(costs)
    assert found[0] == found[1]
    assert all(rows < 400 for rows, _ in found[0])


async def sent_seqs(session: Session, budget_tokens: int | None = None) -> list[int]:
    messages = (await session.context(budget_tokens)).messages
    ids = [each.entry_id for each in messages if each.entry_id is not None]
    return [int(entry.rpartition("/")[2]) for entry in ids]


async def test_all_labels_of_a_fork_are_read_with_one_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with perdure.open(f"sqlite:///{tmp_path}/a.db", durability="normal") as store:
        session = await store.create()
        await say(session, 300)
        for seq in range(200):
            await session.label(f"{session.id}/{seq}", f"label {seq}")
        await session.append(user("beside"), parent=f"{session.id}/20")
        beside = session.leaf
        assert beside is not None
        await session.label(beside, "beside")
        fork = await session.fork(f"{session.id}/299")
        reads: list[str] = []
        for name in ("entry", "entries", "notes", "visible_ids", "branch", "state"):
            monkeypatch.setattr(store.backend, name, counting(reads, name, store.backend))
        assert len(await fork.labels()) == 200
        assert reads == ["notes", "visible_ids"]


def counting(reads: list[str], name: str, backend: object) -> Callable[..., object]:
    read = getattr(backend, name)

    def counted(*values: object) -> object:
        reads.append(name)
        return read(*values)

    return counted


async def test_memory_use_of_session_views_does_not_grow_with_the_session(tmp_path: Path) -> None:
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


async def test_reading_newest_tree_entries_includes_the_current_branch(tmp_path: Path) -> None:
    async with perdure.open(f"sqlite:///{tmp_path}/a.db") as store:
        session = await store.create(id="s")
        await session.append(*(user(str(n)) for n in range(6)))
        await session.append(*(user(f"other {n}") for n in range(6)), parent="s/1")
        await session.branch("s/4")
        assert [entry.seq for entry in await session.tree_entries(3)] == [2, 3, 4, 9, 10, 11]
        assert len(await session.tree_entries()) == 12
        report = await report_of(session, store.backend, 3)
        assert (report.earlier, [entry.seq for entry in report.branch]) == (2, [2, 3, 4])
