"""Tests of `PerdureSession` beyond the SDK's own tests, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import pytest
from agents import Agent, RunConfig, Runner, SessionSettings
from agents.items import TResponseInputItem
from agents.memory import Session
from agents.testing import ScriptedModel, assistant_message

import perdure
from perdure.adapters.openai_agents import PerdureSession
from perdure.errors import IdempotencyMismatch, WrongArgument
from tests.fakes.rivals import meanwhile


def said(*texts: str) -> list[TResponseInputItem]:
    return [{"role": "user", "content": text} for text in texts]


async def texts_of(session: PerdureSession, limit: int | None = None) -> list[str]:
    return [cast("dict[str, Any]", item)["content"] for item in await session.get_items(limit)]


async def test_popped_items_stay_on_a_branch(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        session = PerdureSession("s", store)
        assert isinstance(session, Session)
        assert await session.pop_item() is None
        await session.add_items(said("a", "b", "c"))
        assert await session.pop_item() == said("c")[0]
        await session.add_items(said("d"))
        assert await texts_of(session) == ["a", "b", "d"]
        stored = await store.open(session.stored_id)
        everything = [entry.message for entry in await stored.tree_entries()]
        assert [message.text for message in everything if message] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("other", ["pop", "add", "clear"])
async def test_pop_during_another_change_returns_the_newest_remaining_item(
    other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with perdure.open("memory:") as store:
        session, rival = PerdureSession("s", store), PerdureSession("s", store)
        await session.add_items(said("a", "b"))
        branch, found = perdure.Session.branch, list[object]()

        async def branched(self: perdure.Session, *values: Any, **options: Any) -> Any:
            monkeypatch.setattr(perdure.Session, "branch", branch)  # only the first time
            if other == "pop":
                found.append(await rival.pop_item())
            else:
                await (rival.add_items(said("c")) if other == "add" else rival.clear_session())
            return await branch(self, *values, **options)

        monkeypatch.setattr(perdure.Session, "branch", branched)
        found.append(await session.pop_item())
        popped = {"pop": [*said("b", "a")], "add": [*said("c")], "clear": [None]}
        assert found == popped[other]
        assert await texts_of(session) == (["a", "b"] if other == "add" else [])


async def test_session_emptied_by_pop_accepts_new_items(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        session = PerdureSession("s", store)
        await session.add_items(said("a"))
        assert await session.pop_item() == said("a")[0]
        assert await session.pop_item() is None
        assert await texts_of(session) == []
        await session.add_items(said("b"))
        assert await texts_of(session) == ["b"]


async def test_cleared_session_keeps_its_items_on_a_branch(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        session = PerdureSession("s", store)
        await session.clear_session()  # there is none yet
        await session.add_items(said("a", "b"))
        await session.clear_session()
        await session.clear_session()
        assert await texts_of(session) == []
        assert len(await (await store.open(session.stored_id)).tree_entries()) == 2


async def test_id_of_a_session_cleared_with_erasure_can_be_used_again(
    store_address: str,
) -> None:
    async with perdure.open(store_address) as store:
        session = PerdureSession("s", store, clear="erase")
        other = PerdureSession("s", store)
        for text in ("one", "two"):
            await session.add_items(said(text))
            assert await texts_of(other) == [text]
            await session.clear_session()
            assert await texts_of(other) == []
            assert await other.pop_item() is None
            assert await store.search(text) == []
        assert len(await store.erasures()) == 2
        await other.add_items(said("three"))
        assert await texts_of(session) == ["three"]


async def test_session_limit_counts_items_but_no_other_entries(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        session = PerdureSession("s", store, session_settings=SessionSettings(limit=2))
        await session.add_items(said("a", "b", "c"))
        stored = await store.open(session.stored_id)
        await stored.append(*(perdure.Custom("other", {"n": n}) for n in range(20)))
        assert await texts_of(session) == ["b", "c"]
        assert await texts_of(session, 3) == ["a", "b", "c"]
        assert await texts_of(session, 0) == []
        assert await texts_of(session, -1) == ["a", "b", "c"]
        assert await session.pop_item() == said("c")[0]


async def test_items_with_an_idempotency_key_are_added_once(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        one, two = PerdureSession("1", store), PerdureSession("2", store)
        assert await one.add_items_once(said("a", "b"), "run-1")
        assert not await one.add_items_once(said("a", "b"), "run-1")
        assert await two.add_items_once(said("a", "b"), "run-1")  # keys belong to a session
        assert await texts_of(one) == ["a", "b"]
        with pytest.raises(IdempotencyMismatch):
            await one.add_items_once(said("c"), "run-1")


async def test_session_is_listed_searched_and_continued(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        session = PerdureSession("user-1", store, subject="ana")
        await session.add_items(said("Where is the lighthouse?"))
        (info,) = await store.recent(subject="ana")
        assert info.id == "oa:user-1" == session.stored_id
        (hit,) = await store.search("lighthouse")
        assert hit.stream == info.id
        stored = await store.open(info.id)
        assert stored.metadata == {"framework": "openai-agents", "session_id": "user-1"}
        await stored.append(perdure.assistant("On the cape."))
        assert await texts_of(session) == ["Where is the lighthouse?", "On the cape."]


async def test_item_with_invalid_unicode_does_not_hide_its_neighbours(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        session = PerdureSession("s", store)
        items = said("plain", "half \ud800", "plain too")
        await session.add_items(items)
        assert await session.get_items() == items
        stored = await store.open(session.stored_id)
        assert [entry.kind for entry in await stored.path()] == ["message", "custom", "message"]


def test_blocking_store_works_on_any_event_loop(store_address: str) -> None:
    with perdure.blocking.open(store_address) as store:
        session = PerdureSession("s", store)
        for number in range(3):  # a loop each, as `Runner.run_sync` in several threads
            model = ScriptedModel([[assistant_message(f"answer {number}")]])
            agent = Agent(name="a", model=model)
            config = RunConfig(tracing_disabled=True)
            run = Runner.run(agent, f"question {number}", session=session, run_config=config)
            asyncio.run(run)
        assert len(asyncio.run(session.get_items())) == 6
        stored = store.open(session.stored_id)
        assert [message.role for message in stored.messages()] == ["user", "assistant"] * 3


async def test_cancelled_call_of_add_items_still_stores_the_items(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        session = PerdureSession("s", store)
        await session.add_items(said("a"))
        task = asyncio.create_task(session.add_items(said("b")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await texts_of(session) == ["a", "b"]


async def test_same_idempotency_key_in_two_sessions_does_not_collide(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        assert await PerdureSession("a", store).add_items_once(said("one"), "b:c")
        assert await PerdureSession("a:b", store).add_items_once(said("two"), "c")


async def test_clear_of_a_session_erased_by_another_process_changes_nothing() -> None:
    async with perdure.open("memory:") as store:
        session, other = PerdureSession("s", store), PerdureSession("s", store, clear="erase")
        await session.add_items(said("a"))
        await other.clear_session()
        await session.clear_session()
        assert await session.get_items() == []


async def test_recreated_session_with_surviving_fork_starts_empty() -> None:
    async with perdure.open("memory:") as store:
        session, other = PerdureSession("s", store, clear="erase"), PerdureSession("s", store)
        for number, text in enumerate(("one", "two", "three")):
            await session.add_items(said(text))
            assert await texts_of(other) == await texts_of(session) == [text]
            fork = await (await store.open(session.stored_id)).fork()
            assert session.stored_id == (f"oa{number}:s" if number else "oa:s")
            await session.clear_session()
            assert await texts_of(other) == []
            assert [message.text for message in await fork.messages()] == [text]


async def test_unknown_value_of_the_clear_option_is_rejected() -> None:
    async with perdure.open("memory:") as store:
        with pytest.raises(WrongArgument, match="branch or erase"):
            PerdureSession("s", store, clear=cast("Any", "delete"))


async def test_item_added_just_before_a_pop_from_a_message_of_several_items_is_popped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with perdure.open("memory:") as store:
        session, rival = PerdureSession("s", store), PerdureSession("s", store)
        await session.add_items(said("a"))
        (kept,) = await store.recent()
        call = perdure.tool_call("c1", "look", {})
        await (await store.open(kept.id)).append(perdure.assistant("b", call))
        assert len(await session.get_items()) == 3
        add = partial(rival.add_items, said("c"))
        meanwhile(monkeypatch, store.backend, "message", add)
        assert await session.pop_item() == said("c")[0]
        assert len(await session.get_items()) == 3
