"""Usage and activity of a store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Usage, assistant, user
from perdure.testing import ScriptedModel
from tests.fakes.clock import START_MS, ManualClock

USED = Usage(100, 20, 5, 0, 7)
START = datetime.fromtimestamp(START_MS / 1000, UTC)


def answered(text: str, usage: Usage = USED) -> perdure.Message:
    return msgspec.structs.replace(assistant(text), model="a:b", usage=usage)


async def test_usage_counts_each_model_call_once() -> None:
    model = ScriptedModel([answered("one"), answered("two")])
    price = {"x:y": perdure.Price(1, 1)}
    agent = perdure.Agent("helper", model="x:y")
    async with (
        perdure.open("memory:", clock=ManualClock()) as store,
        perdure.Runtime(store, agents=[agent], models=model, prices=price) as runtime,
    ):
        chat = await runtime.start("helper")
        await chat.send("go")
        await chat.send("on")
        imported = await store.create()
        await imported.append(user("hi"), answered("hello", Usage(10, 1)))
        ours, theirs = await store.usage()
        assert (ours.key, ours.calls, ours.sessions) == ("x:y", 2, 1)
        assert (ours.usage.input_tokens, ours.usage.output_tokens) == (200, 40)
        assert theirs == perdure.types.UsageTotal("a:b", 1, Usage(10, 1), 1, 1)
        assert [each.key for each in await store.usage("agent")] == ["helper", ""]
        assert {each.key for each in await store.usage("session")} == {chat.id, imported.id}
        (day,) = await store.usage("day")
        assert (day.key, day.calls, day.sessions) == (f"{START:%Y-%m-%d}", 3, 2)
        (active,) = await store.activity()
        assert (active.messages, active.turns, active.sessions) == (6, 2, 2)
        assert active.tokens == 2 * 125 + 11


async def test_usage_is_grouped_by_local_day_and_project(tmp_path: Path) -> None:
    clock = ManualClock()
    async with perdure.open(f"sqlite:///{tmp_path / 'a.db'}", clock=clock) as store:
        session = await store.create(cwd=tmp_path, subject="ana")
        for _ in range(3):
            await session.append(user("hi"), answered("hello"))
            clock.advance(86_400)
        assert [each.key for each in await store.usage("project")] == [str(tmp_path)]
        assert [each.key for each in await store.usage("subject")] == ["ana"]
        assert [each.key for each in await store.usage("source")] == [""]
        daily = await store.usage("subject", daily=True)
        days = [f"{START + timedelta(days=n):%Y-%m-%d}" for n in range(3)]
        assert [(each.day, each.key, each.calls) for each in daily] == [(d, "ana", 1) for d in days]
        days = [f"{START + timedelta(days=n):%Y-%m-%d}" for n in range(3)]
        assert [each.key for each in await store.usage("day")] == days
        east = timezone(timedelta(hours=23, minutes=45))
        shifted = [f"{START + timedelta(days=n, hours=23, minutes=45):%Y-%m-%d}" for n in range(3)]
        assert [each.key for each in await store.usage("day", zone=east)] == shifted
        hours = [f"{START + timedelta(days=n):%Y-%m-%dT%H}" for n in range(3)]
        assert [each.key for each in await store.activity("hour")] == hours
        since, until = START + timedelta(hours=12), START + timedelta(days=1, hours=12)
        (one,) = await store.usage(since=since, until=until)
        assert (one.calls, one.usage) == (1, USED)


async def test_second_usage_query_reads_only_new_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    async with perdure.open("memory:") as store:
        sessions = [await store.create() for _ in range(5)]
        for each in sessions:
            await each.append(user("hi"), answered("hello"))
        session = sessions[-1]
        asked: list[tuple[Any, ...]] = []
        entries = store.backend.entries

        async def counted(*given: Any) -> Any:
            asked.append(given)
            return await entries(*given)

        monkeypatch.setattr(store.backend, "entries", counted)
        (before,) = await store.usage()
        assert len({stream for stream, *_ in asked}) == 5
        asked.clear()
        await session.append(answered("more"))
        (after,) = await store.usage()
        assert {(stream, upto) for stream, upto, _ in asked} == {(session.id, 1), (session.id, 2)}
        assert (before.calls, after.calls) == (5, 6)
        await store.erase(session.id)
        assert (await store.usage())[0].calls == 4
