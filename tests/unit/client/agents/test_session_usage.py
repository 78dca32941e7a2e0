"""Results of a session's turns; revoked grants; closed idle sessions."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from perdure.client.agents import session_usage
from perdure.client.agents.agent import Agent
from perdure.client.agents.session_usage import (
    SessionUsage,
    end_if_idle,
    grants_by_session,
    revoke,
    standing_of,
)
from perdure.client.store import Store
from perdure.errors import RateLimited
from perdure.session.ids import StreamId
from perdure.session.ledger import Spending
from perdure.session.messages import user
from perdure.session.notes import SessionEnded
from perdure.stores.protocol import StreamState
from perdure.tools.decorator import tool
from perdure.tools.spec import Subject, ToolSpec
from tests.fakes.players import Hold, Theatre, asks, words
from tests.fakes.rivals import meanwhile
from tests.fakes.sources import claude_file


async def test_session_without_turns_has_no_usage() -> None:
    theatre = Theatre()
    await theatre.store.create(id="s")
    assert await standing_of(theatre.store, "s") == SessionUsage(Spending(), (), None, {})


async def test_session_usage_contains_spending_and_paused_providers() -> None:
    theatre = Theatre(main=[words("one"), (RateLimited("p:main", "slow"),)])
    chat = await theatre.chat(fallbacks=["q:other"])
    await chat.send("one")
    await chat.send("two")
    standing = await standing_of(theatre.store, "s")
    assert standing.spent == Spending(220)
    assert standing.parked == {"p": theatre.clock.now_ms() + 30_000}


async def test_usage_of_a_new_fork_is_zero() -> None:
    theatre = Theatre()
    chat = await theatre.chat()
    await chat.send("one")
    fork = await chat.session.fork()
    assert (await standing_of(theatre.store, fork.id)).spent == Spending()


async def test_grant_applies_to_later_turns_until_revoked() -> None:
    @tool(effect="write")
    async def strike() -> str:
        """Strike."""
        return "struck"

    agent = Agent("a", model="p:main", tools=[asking(strike)])
    theatre = Theatre(main=[asks("strike"), words("one"), asks("strike"), words("two")])
    chat = await theatre.runtime(agent).start(agent, id="s")
    turn = chat.send("go")
    async for event in turn:
        if event.type == "inbox:question":
            (asked,) = await chat.session.questions()
            await chat.session.answer(asked.id, "always", by="me")
    assert (await standing_of(theatre.store, "s")).grants == ("strike it",)
    assert (await chat.send("again")).text == "two"
    await revoke(theatre.store, "s")
    assert (await standing_of(theatre.store, "s")).grants == ()


def asking(spec: ToolSpec) -> ToolSpec:
    """Return `spec` as a tool that needs approval first."""
    return ToolSpec(
        spec.name,
        spec.description,
        spec.parameters,
        spec.run,
        action="os",
        examine=lambda args, permissions: Subject("it", grant="it"),
    )


async def test_only_idle_sessions_are_closed() -> None:
    hold = Hold()
    theatre = Theatre(main=[words("one"), words("two"), (hold,)])
    agent = Agent("a", model="p:main")
    runtime = theatre.runtime(agent, idle_timeout_s=60)
    for name in ("idle", "fresh"):
        await (await runtime.start(agent, id=name)).send("hi")
        theatre.clock.advance(50)
    busy = await runtime.start(agent, id="busy")
    busy.send("hi")
    await hold.entered.wait()
    assert await runtime.end_idle() == ["idle"]
    assert await runtime.end_idle() == []
    assert await theatre.bodies(SessionEnded, "idle") == [SessionEnded("idle")]
    theatre.clock.advance(100)
    assert await runtime.end_idle() == ["fresh"]
    hold.leave.set()
    await asyncio.wait_for(busy.abort(), 60)


async def test_search_for_idle_sessions_reads_only_sessions_that_can_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theatre = Theatre(main=[words("one") for _ in range(51)])
    agent = Agent("a", model="p:main")
    runtime = theatre.runtime(agent, idle_timeout_s=60)
    for number in range(50):
        await (await runtime.start(agent, id=f"s{number}")).send("hi")
        await runtime.start(agent, id=f"none{number}")  # without a turn it cannot end
    theatre.clock.advance(100)
    await (await runtime.start(agent, id="fresh")).send("hi")
    read: list[str] = []
    state = theatre.store.backend.state

    async def counted(stream: StreamId) -> StreamState:
        read.append(stream)
        return await state(stream)

    monkeypatch.setattr(theatre.store.backend, "state", counted)
    assert len(await runtime.end_idle()) == 50
    assert len(read) == 50
    assert await runtime.end_idle() == []
    assert len(read) == 50


async def test_imported_sessions_and_sessions_without_a_turn_never_end_as_idle(
    tmp_path: Path,
) -> None:
    agent = Agent("a", model="p:main")
    elsewhere = await Theatre(main=[words("one")]).runtime(agent).start(agent, id="received")
    await elsewhere.send("hi")
    await elsewhere.session.export(path=tmp_path / "received.jsonl")
    theatre = Theatre(main=[words("two")])
    (tmp_path / "claude.jsonl").write_bytes(claude_file("chain.jsonl"))
    imported = await theatre.store.import_files([tmp_path])
    await (await theatre.store.create(id="recorded")).append(user("noted by a program"))
    runtime = theatre.runtime(agent, idle_timeout_s=60)
    theatre.clock.advance(100)
    assert await runtime.end_idle() == []
    sessions = {"recorded", "received", *(each.session for each in imported.reports)}
    assert len(sessions) == 3
    for session in sorted(sessions):
        chat = await runtime.resume(session, agent)
        assert (await chat.session.info()).status == "active", session
        assert await theatre.bodies(SessionEnded, session) == []
    await (await runtime.resume("received", agent)).send("a turn of this machine")
    theatre.clock.advance(100)
    assert await runtime.end_idle() == ["received"]


async def test_session_with_a_scheduled_message_is_not_idle() -> None:
    theatre = Theatre(main=[words("one")])
    agent = Agent("a", model="p:main")
    runtime = theatre.runtime(agent, idle_timeout_s=60)
    chat = await runtime.start(agent, id="s")
    await chat.send("hi")
    later = chat.send("later", at=theatre.clock.now_ms() + 86_400_000)
    await later.stored()
    theatre.clock.advance(100)
    assert await runtime.end_idle() == []
    assert not await end_if_idle(theatre.store, await theatre.store.backend.state(chat.id), 60)
    later.abort()
    assert (await later).end == "aborted"
    theatre.clock.advance(100)
    assert await runtime.end_idle() == ["s"]


async def test_end_of_idle_sessions_skips_a_removed_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theatre = Theatre(main=[words("one"), words("two")])
    agent = Agent("a", model="p:main")
    runtime = theatre.runtime(agent, idle_timeout_s=60)
    for name in ("stays", "goes"):
        await (await runtime.start(agent, id=name)).send("hi")
    theatre.clock.advance(100)
    backend = theatre.store.backend
    idle_sessions = backend.idle_sessions

    async def then_removed(upto: int) -> list[StreamId]:
        found = await idle_sessions(upto)
        assert await backend.retention.remove(StreamId("goes"))
        return found

    monkeypatch.setattr(backend, "idle_sessions", then_removed)
    assert await runtime.end_idle() == ["stays"]


async def test_idle_session_is_ended_when_it_is_resumed() -> None:
    theatre = Theatre()
    chat = await theatre.chat()
    await chat.send("one")
    theatre.clock.advance(3_600)
    agent = Agent("helper", model="p:main")
    resumed = await theatre.runtime(agent, idle_timeout_s=1_800).resume("s")
    assert (await resumed.session.info()).status == "ended"
    await resumed.send("two")
    assert (await resumed.session.info()).status == "active"
    assert (await theatre.runtime(agent, idle_timeout_s=None).resume("s")).id == "s"


async def test_search_for_grants_reads_only_sessions_with_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @tool(effect="write")
    async def strike() -> str:
        """Strike."""
        return "struck"

    theatre = Theatre(main=[asks("strike"), words("one")])
    for number in range(20):
        await theatre.store.create(id=f"other-{number}")
    agent = Agent("a", model="p:main", tools=[asking(strike)])
    chat = await theatre.runtime(agent).start(agent, id="s")
    async for event in chat.send("go"):
        if event.type == "inbox:question":
            (asked,) = await chat.session.questions()
            await chat.session.answer(asked.id, "always", by="me")
    read: list[str] = []

    async def counted(store: Store, session: str) -> SessionUsage:
        read.append(session)
        return await standing_of(store, session)

    monkeypatch.setattr(session_usage, "standing_of", counted)
    assert await grants_by_session(theatre.store) == {"s": ("strike it",)}
    assert read == ["s"]


async def test_session_used_just_before_its_end_as_idle_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theatre = Theatre()
    agent = Agent("a", model="p:main")
    runtime = theatre.runtime(agent, idle_timeout_s=60)
    chat = await runtime.start(agent, id="s")
    await chat.send("hi")
    theatre.clock.advance(100)
    append = partial(chat.session.append, user("still here"))
    meanwhile(monkeypatch, theatre.memory, SessionEnded.kind, append)
    assert await runtime.end_idle() == []
    assert await theatre.bodies(SessionEnded) == []
