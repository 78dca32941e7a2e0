"""Episodes in the commit that ends a session, and missing episodes added at the next opening."""

from __future__ import annotations

import asyncio
import logging

import pytest

import perdure
from perdure import assistant, tool_call, user
from perdure.client.store import Store
from perdure.engine.episodes import record_open_ends, with_episode
from perdure.errors import StoreError, StoreFull, StoreReadOnly
from perdure.memory.episodes import Episode, episodes_in
from perdure.session.codec import new_side
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.memory.kinds import EpisodeRecorded
from perdure.session.notes import Label, SessionEnded, SessionReopened, SideBody
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from perdure.testing import ScriptedModel
from tests.fakes.clock import START_MS, ManualClock, SeededRandom


async def write(store: Store, session: str, *bodies: SideBody) -> None:
    """Append `bodies` directly to the backend, without episodes."""
    entries = tuple(new_side(body) for body in bodies)
    commit = Commit(writes=(Write(stream=StreamId(session), entries=entries),), at=START_MS)
    await store.backend.commit(commit)


async def recorded(store: Store) -> list[Episode]:
    notes = await store.backend.notes_of_all((EpisodeRecorded.kind,))
    infos = {note.stream: (await store.backend.state(note.stream)).info for note in notes}
    return sorted(episodes_in(notes, infos), key=lambda episode: (episode.session, episode.last))


async def test_session_end_and_its_episode_are_in_one_commit() -> None:
    async with perdure.open("memory:", clock=ManualClock()) as store:
        session = await store.create(title="Trip", subject="ana")
        await session.append(user("Hello"), assistant("Hi"))
        end = await session.end("done")
        assert end is not None
        (episode,) = await recorded(store)
        assert (episode.id, episode.first, episode.last, episode.by) == (end.id, 0, 2, "user")
        assert (episode.messages, episode.title, episode.subject) == (2, "Trip", "ana")
        assert await session.end() is None
        assert len(await recorded(store)) == 1


async def test_second_episode_of_a_session_starts_after_the_end_of_the_first() -> None:
    async with perdure.open("memory:", clock=ManualClock()) as store:
        session = await store.create()
        await session.append(user("One"))
        await session.end()
        await session.append(user("Two"), assistant("Three"))
        await session.reopen()
        await session.end()
        first, second = await recorded(store)
        assert (second.first, second.messages) == (first.last + 1, 2)


async def test_commit_without_session_end_gets_no_episode() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        entries = (new_side(Label("x")),)
        log, head = store.backend, session.head
        assert await with_episode(log, session.id, head, entries, START_MS) is entries


async def test_each_session_end_gets_exactly_one_episode() -> None:
    async with perdure.open("memory:", clock=ManualClock()) as store:
        clock = store.outside.clock
        ended = await store.create(id="a")
        await ended.append(user("One"))
        await write(store, "a", SessionEnded(by="idle"), SessionReopened(), SessionEnded())
        await store.create(id="b")
        await write(store, "b", SessionEnded(by="agent"))
        counts = await asyncio.gather(*(record_open_ends(store.backend, clock) for _ in range(4)))
        assert sum(counts) == 3
        found = [(each.session, each.first, each.last, each.by) for each in await recorded(store)]
        assert found == [("a", 0, 1, "idle"), ("a", 2, 3, "user"), ("b", 0, 0, "agent")]
        assert await record_open_ends(store.backend, clock) == 0


async def test_episode_of_a_fork_counts_only_messages_of_the_fork() -> None:
    async with perdure.open("memory:", clock=ManualClock()) as store:
        session = await store.create()
        await session.append(user("One"))
        await session.end()
        fork = await session.fork()
        await fork.append(user("Two"))
        await fork.end()
        found = {each.session: each for each in await recorded(store)}
        assert (found[fork.id].first, found[fork.id].messages) == (0, 1)


@pytest.mark.parametrize(
    ("error", "logged"),
    [(StoreFull("memory:"), "no space left"), (StoreReadOnly("memory:"), "")],
)
async def test_failure_to_record_an_episode_is_logged_and_not_raised(
    error: StoreError,
    logged: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock, random=SeededRandom())

    async def fail(_: str) -> list[Entry]:
        raise error

    monkeypatch.setattr(store, "open_of_all", fail)
    with caplog.at_level(logging.WARNING):
        assert await record_open_ends(store, clock) == 0
    assert logged in caplog.text
    assert bool(logged) == bool(caplog.text)


async def test_ended_session_has_one_episode_and_cancelled_session_has_none() -> None:
    clock = ManualClock()
    ends = assistant(tool_call("c1", "end_session", {"reason": "done"}))
    agent = perdure.Agent("helper", model="x:y", tools=["end_session"])
    async with perdure.open("memory:", clock=clock) as store:
        models = ScriptedModel([ends, "Bye."])  # for each session
        async with perdure.Runtime(store, agents=[agent], models=models) as runtime:
            by_agent = await runtime.start("helper", subject="ana")
            await by_agent.send("Bye")
        models = ScriptedModel(["Hi."])
        async with perdure.Runtime(
            store, agents=[agent], models=models, idle_timeout_s=60
        ) as runtime:
            chats = [await runtime.start("helper") for _ in range(4)]
            for chat in chats:
                await chat.send("Hello")
            by_user, cancelled, aborted, _ = chats
            await by_user.end("done")
            await cancelled.cancel()
            await aborted.abort()
            found = {each.session: each for each in await recorded(store)}
            assert set(found) == {by_agent.id, by_user.id}
            clock.advance(100)
            await runtime.end_idle()
            found = {each.session: each for each in await recorded(store)}
    assert [found[chat.id].by for chat in chats] == ["user", "idle", "idle", "idle"]
    ended = found[by_agent.id]
    assert (ended.by, ended.agent, ended.subject) == ("agent", "helper", "ana")
    assert (ended.first, ended.messages, ended.turns, ended.tool_calls) == (0, 4, 1, 1)
