"""Episodes and facts on every backend: stored, listed if unfinished, erased with their source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure import Agent, MemoryConfig, Runtime, user
from perdure.client.clock import Outside
from perdure.client.retention import apply_retention
from perdure.client.store import Store
from perdure.errors import FactNotFound, Unsupported
from perdure.memory.episodes import Episode
from perdure.memory.extraction import ExtractedFact
from perdure.session.codec import new_side
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.memory.facts import Fact
from perdure.session.memory.kinds import EpisodeRecorded, memory_stream
from perdure.session.notes import SessionEnded
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.policy import Retention
from perdure.stores.session_store import SessionStore
from perdure.testing import ScriptedModel
from tests.fakes.clock import START_MS, ManualClock, SeededRandom


@pytest.fixture
def handle(store: SessionStore, clock: ManualClock) -> Store:
    return Store(store, Outside(clock, SeededRandom(3)))


async def texts(store: Store, stream: str) -> bytes:
    entries: list[Entry] = await store.backend.entries(StreamId(stream))
    return b" ".join(entry.body for entry in entries)


async def test_session_end_is_listed_as_open_until_episode_is_recorded(
    handle: Store, store: SessionStore
) -> None:
    session = await handle.create(id="s")
    await session.append(user("Hello"))
    ended = Commit(
        writes=(Write(stream=StreamId("s"), entries=(new_side(SessionEnded()),)),),
        at=START_MS,
    )
    end = (await store.commit(ended)).entries[0][0]
    assert await store.open_of_all("session_ended") == [end]
    assert await store.open_of_all("question") == []
    body = new_side(EpisodeRecorded(0, START_MS, START_MS), end.id)
    write = Write(stream=StreamId("s"), entries=(body,))
    await store.commit(Commit(writes=(write,), at=START_MS))
    assert await store.open_of_all("session_ended") == []
    await session.reopen()
    await session.end()
    assert await store.open_of_all("session_ended") == []
    assert (await store.maintenance.verify()).is_ok


async def test_ended_session_without_an_episode_can_be_removed(
    handle: Store, store: SessionStore
) -> None:
    await handle.create(id="s")
    write = Write(stream=StreamId("s"), entries=(new_side(SessionEnded()),))
    await store.commit(Commit(writes=(write,), at=START_MS))
    assert await store.retention.holder(StreamId("s")) is None


async def test_store_without_erasure_rejects_facts(handle: Store) -> None:
    session = await handle.create(subject="ana")
    await session.append(user("Hello"))
    await session.end()
    (episode,) = await handle.memory.episodes(subject="ana")
    assert (episode.session, episode.messages) == (session.id, 1)
    if not handle.capabilities.erase:
        with pytest.raises(Unsupported, match="facts"):
            await handle.memory.remember("likes tea")


@pytest.mark.needs("erase")
async def test_fact_is_deleted_after_the_last_source_is_erased(handle: Store) -> None:
    one = await handle.create(subject="ana")
    other = await handle.create(subject="ana")
    tea, milk = await one.append(user("I like tea"), user("and milk"))
    both = await other.append(user("tea with milk"))
    memory = handle.memory
    fact = await memory.remember("likes tea", source=[tea, both])
    alone = await memory.remember("likes milk", source=milk)
    free = await memory.remember("is here", subject="ana")
    await one.erase_entries([tea])
    assert (await memory.fact(fact.id)).sources == (both.id,)
    assert {each.id for each in await memory.facts(subject="ana")} == {fact.id, alone.id, free.id}
    await one.erase()
    assert {each.id for each in await memory.facts(subject="ana")} == {fact.id, free.id}
    await other.erase()
    assert await memory.facts(subject="ana") == [free]
    stored = await texts(handle, memory_stream("ana"))
    assert b"likes" not in stored
    assert b"is here" in stored
    assert (await handle.verify()).problems == ()


@pytest.mark.needs("erase")
async def test_repeated_remember_call_does_not_restore_a_forgotten_fact(
    handle: Store, store: SessionStore
) -> None:
    memory = handle.memory
    fact = await memory.remember("likes tea", subject="ana")
    for _ in range(2):
        assert await memory.remember("likes tea", subject="ana", idempotency_key="k") == fact
    assert (await store.state(memory_stream("ana"))).head == 1
    await memory.forget(fact.id)
    with pytest.raises(FactNotFound):
        await memory.remember("likes tea", subject="ana", idempotency_key="k")
    assert (await store.maintenance.verify()).is_ok


@pytest.mark.needs("erase")
async def test_fact_version_is_deleted_when_the_source_is_erased(handle: Store) -> None:
    session = await handle.create()
    old, new = await session.append(user("I like tea"), user("No, coffee"))
    memory = handle.memory
    fact = await memory.remember("likes tea", source=old)
    await memory.correct(fact.id, "likes coffee", source=new)
    await session.erase_entries([old])
    left = await memory.fact(fact.id)
    assert (left.text, left.history) == ("likes coffee", ())
    assert b"tea" not in await texts(handle, memory_stream(None))
    await session.erase_entries([new])
    assert await memory.facts(include_past=True) == []
    assert b"coffee" not in await texts(handle, memory_stream(None))
    assert (await handle.verify()).problems == ()


@pytest.mark.needs("erase")
async def test_fact_is_kept_while_a_fork_keeps_the_source(handle: Store) -> None:
    session = await handle.create()
    shared = await session.append(user("I like tea"))
    fork = await session.fork()
    own = await session.append(user("and milk"))
    memory = handle.memory
    kept = await memory.remember("likes tea", source=shared)
    await memory.remember("likes milk", source=own)
    await session.erase(forks="keep")
    assert await memory.facts() == [kept]
    await fork.erase()
    await handle.erase(session.id)
    assert await memory.facts() == []


@pytest.mark.needs("erase")
async def test_retention_removes_facts_and_episodes_of_a_session(handle: Store) -> None:
    session = await handle.create()
    entry = await session.append(user("I like tea"))
    await session.end()
    plain = await handle.create()
    await plain.append(user("Hello"))
    await handle.memory.remember("likes tea", source=entry)
    free = await handle.memory.remember("is here")
    report = await apply_retention(handle, Retention(max_sessions=0))
    assert report.sessions == 2
    assert await handle.memory.facts() == [free]
    assert await handle.memory.episodes(scope="namespace") == []
    assert await handle.recent(scope="all") == []
    assert (await handle.verify()).problems == ()


@pytest.mark.needs("erase")
async def test_erasing_entry_deletes_summary_of_its_episode(handle: Store) -> None:
    session = await handle.create()
    said = await session.append(user("I like tea"))
    await session.end(summary="They like tea.")
    await session.reopen()
    await session.append(user("Bye"))
    await session.end(summary="They left.")
    await session.erase_entries([said])
    later, first = await handle.memory.episodes()
    assert (first.summary, first.messages, later.summary) == (None, 1, "They left.")
    assert b"tea" not in await texts(handle, session.id)
    assert await handle.backend.open_of_all("session_ended") == []
    await session.erase()
    assert await handle.memory.episodes() == []
    assert (await handle.verify()).problems == ()


@pytest.mark.needs("erase")
async def test_erasing_a_subject_deletes_the_facts_of_the_subject(handle: Store) -> None:
    session = await handle.create(subject="ana")
    said = await session.append(user("I like tea"))
    await session.end()
    memory = handle.memory
    await memory.remember("likes tea", subject="ana")
    await memory.remember("knows one who likes tea", subject="bob", source=said)
    other = await memory.remember("is here", subject="bob")
    await handle.erase(subject="ana")
    assert await memory.facts(subject="ana") == []
    assert await memory.episodes(scope="namespace") == []
    assert await memory.facts(subject="bob") == [other]
    again = await memory.remember("likes coffee", subject="ana")
    assert await memory.facts(subject="ana") == [again]
    newer = await memory.correct(again.id, "likes milk")
    await memory.forget(newer.id)
    assert await memory.facts(scope="namespace") == [other]
    for stream in (memory_stream("ana"), memory_stream("bob")):
        assert b"likes" not in await texts(handle, stream)
    assert (await handle.verify()).problems == ()


@pytest.mark.needs("erase")
async def test_fact_extraction_is_listed_as_open_until_it_ends(
    handle: Store, tmp_path: Path
) -> None:
    async def extract(
        _: Episode, entries: Sequence[Entry], known: Sequence[Fact]
    ) -> list[ExtractedFact]:
        if known:
            raise ZeroDivisionError
        return [ExtractedFact(text="likes tea", sources=(entries[0].id,))]

    agent = Agent("helper", model="scripted:any", memory=MemoryConfig(extractor=extract))
    for _ in range(2):
        async with Runtime(handle, agents=[agent], models=ScriptedModel(["Hello"])) as runtime:
            chat = await runtime.start("helper", subject="ana")
            await chat.send("I like tea")
            await chat.session.end()
            (due,) = await handle.backend.open_of_all("facts_due")
            assert due.stream == chat.id
    assert await handle.backend.open_of_all("facts_due") == []
    episodes = await handle.memory.episodes(subject="ana")
    assert {(each.extraction, each.extraction_problem) for each in episodes} == {
        ("done", None),
        ("failed", "ZeroDivisionError"),
    }
    assert [fact.text for fact in await handle.memory.facts(subject="ana")] == ["likes tea"]
    assert (await handle.export("perdure", tmp_path / "all"))[-1].error is None
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Hotels\n\nWe book the Aurora.\n")
    assert (await handle.memory.import_folder(tmp_path / "docs", subject="ana")).files == 1
    (hit, *_) = await handle.memory.recall("Which hotel do we book?", subject="ana")
    assert hit.kind == "knowledge"
    assert (await handle.memory.import_folder(tmp_path / "docs", subject="ana")).changed == ()
    await handle.erase(subject="ana")
    assert await handle.memory.recall("Which hotel do we book?", subject="ana") == []
    assert (await handle.import_files([tmp_path / "all"])).is_ok
    assert await handle.memory.facts(subject="ana") == []
    assert (await handle.verify()).problems == ()
