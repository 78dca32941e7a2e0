"""Rows of a list of sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import perdure
from perdure.apps.session_rows import RowFilter, newest_rows, short_ids, states_of

ALL = RowFilter()
AGENTS = tuple(perdure.Agent(name, model="scripted:echo") for name in ("clerk", "guide"))


async def test_ended_session_has_the_state_ended() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(title="Trip")
        assert (await newest_rows(store, ALL, 1))[0].state == "idle"
        await session.end()
        assert (await states_of(store, [await session.info()])) == {session.id: "ended"}


async def test_sessions_of_an_agent_are_found_although_many_others_are_newer() -> None:
    async with perdure.open("memory:") as store, perdure.Runtime(store, AGENTS) as runtime:
        first = await runtime.start("guide", title="the first")
        others = [await runtime.start("clerk", title="another") for _ in range(120)]
        guides = RowFilter(agents=frozenset({"guide"}))
        (row,) = await newest_rows(store, guides, 2, has_models=True)
        assert (row.info.id, row.agent, row.info.model) == (first.id, "guide", "scripted:echo")
        assert await newest_rows(store, guides, 2, row.info) == []
        clerks = RowFilter(agents=frozenset({"clerk"}), model="ECHO")
        assert len(await newest_rows(store, clerks, 100)) == 100
        assert len(await newest_rows(store, clerks, None)) == len(others)
        assert await newest_rows(store, RowFilter(model="gpt"), 5) == []


async def test_agents_of_all_rows_are_read_with_one_query(monkeypatch: pytest.MonkeyPatch) -> None:
    async with perdure.open("memory:") as store, perdure.Runtime(store, AGENTS) as runtime:
        started = [await runtime.start("guide", title="guided") for _ in range(20)]
        fork = await started[0].session.fork()
        await runtime.start("clerk", title="another")
        imported = await store.create(title="without an agent")
        reads = list[str]()
        for name in ("notes", "notes_of_all"):
            read = getattr(store.backend, name)

            def counted(*args: object, read: Any = read, name: str = name) -> Any:
                reads.append(name)
                return read(*args)

            monkeypatch.setattr(store.backend, name, counted)

        guided = await newest_rows(store, RowFilter(agents=frozenset({"guide"})), None)
        few = RowFilter(among=frozenset({imported.id, fork.id}))
        agents = {row.info.id: row.agent for row in await newest_rows(store, few, None)}

    assert {row.info.id for row in guided} == {*(each.id for each in started), fork.id}
    assert agents == {imported.id: None, fork.id: "guide"}
    assert sorted(reads) == ["notes", "notes", "notes_of_all", "notes_of_all"]  # notes: of the fork


async def test_session_rows_are_filtered_by_start_and_end_time() -> None:
    async with perdure.open("memory:") as store:
        await store.create(title="Trip")
        past, future = datetime(2001, 1, 1, tzinfo=UTC), datetime(2201, 1, 1, tzinfo=UTC)
        assert len(await newest_rows(store, RowFilter(since=past, until=future), 5)) == 1
        assert await newest_rows(store, RowFilter(since=future), 5) == []
        assert await newest_rows(store, RowFilter(until=past), 5) == []


async def test_each_short_id_identifies_exactly_one_session() -> None:
    async with perdure.open("memory:") as store:
        ids = ["abcdefghij-1", "abcdefghij-2", "abcdefghij-22", "abcdefgx", "zz"]
        for id in ids:
            await store.create(id=id, title=id)
        short = await short_ids(store, ids)
        assert [await store.find(short[id]) for id in ids] == ids
        assert short["abcdefgx"] == "abcdefgx"
        assert short["abcdefghij-1"] == "abcdefghij-1"
        assert (short["zz"], short["abcdefghij-22"]) == ("zz", "abcdefghij-22")
        await store.create(id="zzzzzzzzzzzz-last", title="last")
        assert await short_ids(store, ["zzzzzzzzzzzz-last"]) == {"zzzzzzzzzzzz-last": "zzzzzzzz"}


async def test_session_with_only_a_planned_message_has_the_state_scheduled() -> None:
    green = perdure.Recurring("0 9 * * *", "Is the build green?")
    daily = perdure.Agent("daily", model="scripted:echo", recurring=[green])
    async with perdure.open("memory:") as store, perdure.Runtime(store, [daily]) as runtime:
        await store.create(title="Trip")
        await perdure.Scheduler(runtime).plan()
        (message,) = await store.schedule.list()
        scheduled = RowFilter(state="scheduled")
        (row,) = await newest_rows(store, scheduled, 5)
        assert (row.info.id, row.agent, row.state) == (message.session, "daily", "scheduled")
        assert len(await newest_rows(store, RowFilter(state="idle"), 5)) == 1
        await store.schedule.cancel(message.id)
        assert await newest_rows(store, scheduled, 5) == []
