"""`PerdureMemoryService` finds added content of its user, and none of other users."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.events import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai import types

import perdure
from perdure.adapters.google_adk import PerdureMemoryService, PerdureSessionService
from tests.fakes.leaks import leaks_in, pages_with
from tests.fakes.parts import make_parts_of_few_texts

APP: dict[str, Any] = {"app_name": "app", "user_id": "ana"}


def said(text: str, **fields: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author="user", content=content, invocation_id="i", **fields)


async def found(service: PerdureMemoryService, query: str, **names: str) -> list[str]:
    response = await service.search_memory(**{**APP, **names}, query=query)
    return [str((memory.content.parts or [])[0].text) for memory in response.memories]


async def test_search_finds_only_events_that_were_added_to_memory(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        sessions, memory = PerdureSessionService(store), PerdureMemoryService(store)
        session = await sessions.create_session(**APP, session_id="s")
        await sessions.append_event(session, said("The lighthouse is on the cape."))
        assert await found(memory, "lighthouse") == []
        await memory.add_session_to_memory(session)
        await sessions.append_event(session, said("Where is the lighthouse?"))
        assert await found(memory, "lighthouse") == ["The lighthouse is on the cape."]
        assert await found(memory, "lighthouse", user_id="ben") == []
        assert await found(memory, "lighthouse", app_name="b") == []
        assert await found(memory, "?!") == []
        await memory.add_session_to_memory(session)
        assert len(await found(memory, "lighthouse")) == 2
        assert [info.id for info in await store.recent()] == ["adk:app:ana:s"]


async def test_session_added_to_memory_twice_is_copied_once(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        memory = PerdureMemoryService(store)
        events = [said("The harbour is closed.", timestamp=86_400.0), Event(author="user")]
        session = Session(**APP, id="elsewhere", events=events)
        await memory.add_session_to_memory(session)
        await memory.add_session_to_memory(session)
        await memory.add_events_to_memory(**APP, events=events, session_id="elsewhere")
        (entry,) = (await memory.search_memory(**APP, query="harbour")).memories
        assert entry.id == events[0].id
        assert entry.author == "user"
        assert entry.timestamp == "1970-01-02T00:00:00+00:00"


async def test_written_memories_keep_their_fields(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        memory = PerdureMemoryService(store)
        content = types.Content(role="user", parts=[types.Part(text="Ana likes lighthouses.")])
        written = MemoryEntry(
            id="m1",
            content=content,
            author="ana",
            timestamp="2026-01-02T03:04:05+00:00",
            custom_metadata={"k": 1},
        )
        vague = MemoryEntry(content=content, timestamp="yesterday")
        await memory.add_memory(**APP, memories=[written, vague])
        response = await memory.search_memory(**APP, query="lighthouses")
        assert written in response.memories
        assert {"timestamp": "yesterday"} in [each.custom_metadata for each in response.memories]


async def test_deleted_memory_is_erased_and_not_added_again(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_parts_of_few_texts(monkeypatch)
    file = tmp_path / "s.db"
    async with perdure.open(f"sqlite:///{file}") as store:
        sessions, memory = PerdureSessionService(store), PerdureMemoryService(store)
        event = said("The SECRET is under the stone.")
        await memory.add_events_to_memory(**APP, events=[event])
        session = await sessions.create_session(**APP, session_id="s")
        stored = said("The stone is on the cape.")
        await sessions.append_event(session, stored)
        await memory.add_session_to_memory(session)
        assert len(await found(memory, "stone")) == 2
        pages = pages_with(file, "SECRET")
        assert pages
        await memory.delete_memory(**APP, memory_id=event.id)
        await memory.delete_memory(**APP, memory_id=stored.id)
        await memory.delete_memory(**APP)
        await memory.add_session_to_memory(session)
        assert await found(memory, "stone") == []
    assert leaks_in(file, "SECRET", pages) == []


async def test_deletion_of_a_memory_shared_with_a_fork_logs_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with perdure.open("memory:") as store:
        memory = PerdureMemoryService(store)
        event = said("The harbour is closed.")
        await memory.add_events_to_memory(**APP, events=[event])
        (info,) = await store.recent(scope="all")
        fork = await (await store.open(info.id)).fork()
        await memory.delete_memory(**APP, memory_id=event.id)
        assert await found(memory, "harbour") == []
        assert [message.text for message in await fork.messages()] == ["The harbour is closed."]
    (warning,) = caplog.messages
    assert f"memory {event.id} " in warning
    assert f"forks ({fork.id}) of session {info.id} share it" in warning


async def test_deleted_event_is_not_restored_by_adding_its_session_again(
    store_address: str,
) -> None:
    event = said("The harbour is closed.")
    session = Session(**APP, id="elsewhere", events=[event])
    async with perdure.open(store_address) as store:
        memory = PerdureMemoryService(store)
        await memory.add_session_to_memory(session)
        for _ in range(2):
            await memory.delete_memory(**APP, memory_id=event.id)
            await memory.add_session_to_memory(session)
            assert await found(memory, "harbour") == []
            for _ in range(2):
                await memory.add_events_to_memory(**APP, events=[event], session_id="elsewhere")
                assert await found(memory, "harbour") == ["The harbour is closed."]


async def test_search_returns_ten_memories_at_most(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        memory = PerdureMemoryService(store)
        events = [said(f"The lighthouse number {number}.") for number in range(15)]
        await memory.add_events_to_memory(**APP, events=events)
        assert len(await found(memory, "lighthouse")) == 10
