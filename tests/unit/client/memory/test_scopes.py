"""Facts and episodes of a store, by scope."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import user
from perdure.client.store import Store
from perdure.session.clock import ms_of
from perdure.session.codec import new_side
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.memory.kinds import FactRemembered, memory_stream
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import START_MS, ManualClock

NOW = datetime.fromtimestamp(START_MS / 1000, UTC)
DAY = timedelta(days=1)


async def test_facts_are_listed_newest_first_by_scope(store: Store, clock: ManualClock) -> None:
    memory = store.memory
    tea = await memory.remember("likes tea", subject="ana")
    clock.advance(1)
    milk = await memory.remember("likes milk", subject="ana", agent="helper")
    rain = await memory.remember("it rains")
    assert await memory.facts(subject="ana") == [milk, tea]
    assert await memory.facts(subject="ana", limit=1) == [milk]
    assert await memory.facts(subject="ana", agent="helper") == [milk]
    assert await memory.facts() == [rain]
    assert await memory.facts(subject="bob") == []
    assert await memory.facts(scope="agent", agent="helper") == [milk]
    assert {fact.id for fact in await memory.facts(scope="namespace")} == {tea.id, milk.id, rain.id}
    assert await memory.fact(tea.id) == tea


async def test_expired_and_future_facts_are_listed_on_request(store: Store) -> None:
    memory = store.memory
    past = await memory.remember("lived in Rome", valid_to=NOW)
    future = await memory.remember("moves to Oslo", valid_from=NOW + DAY)
    present = await memory.remember("lives in Bonn", valid_from=NOW - DAY, valid_to=NOW + DAY)
    assert await memory.facts() == [present]
    found = await memory.facts(include_past=True)
    assert {fact.id for fact in found} == {past.id, future.id, present.id}
    assert past.valid_to == ms_of(NOW)


async def test_corrected_fact_keeps_id_scope_and_history(store: Store, clock: ManualClock) -> None:
    memory = store.memory
    fact = await memory.remember("likes tea", subject="ana", agent="helper")
    clock.advance(1)
    newer = await memory.correct(fact.id, "likes coffee", said_by="inferred")
    assert (newer.id, newer.subject, newer.agent) == (fact.id, "ana", "helper")
    assert (newer.text, newer.said_by, newer.at) == ("likes coffee", "inferred", fact.at + 1000)
    assert [version.text for version in newer.history] == ["likes tea"]
    assert await memory.facts(subject="ana") == [newer]


async def test_forgotten_fact_and_its_history_are_erased(store: Store) -> None:
    memory = store.memory
    fact = await memory.remember("likes tea", subject="ana")
    other = await memory.remember("likes milk", subject="ana")
    await memory.correct(fact.id, "likes green tea")
    await memory.forget(fact.id, by="ana")
    assert await memory.facts(subject="ana", include_past=True) == [other]
    bodies = [entry.body for entry in await store.backend.entries(memory_stream("ana"))]
    assert not any(b"tea" in body for body in bodies)
    assert (await store.verify()).is_ok
    (certificate,) = await store.erasures()
    assert (certificate.by, certificate.entries) == ("ana", 2)
    for call in (memory.fact(fact.id), memory.forget(fact.id), memory.correct(fact.id, "x")):
        with pytest.raises(perdure.errors.FactNotFound, match="no fact"):
            await call


async def test_episodes_are_listed_with_the_latest_end_first(
    store: Store, clock: ManualClock
) -> None:
    for subject, day in (("ana", 1), (None, 2), ("ana", 3)):
        session = await store.create(subject=subject, title=f"day {day}")
        await session.append(user("Hello"))
        clock.advance(86_400)
        await session.end()
    memory = store.memory
    newest, oldest = await memory.episodes(subject="ana")
    assert (newest.title, oldest.title) == ("day 3", "day 1")
    assert [each.title for each in await memory.episodes()] == ["day 2"]
    assert len(await memory.episodes(scope="namespace")) == 3
    assert await memory.episodes(subject="ana", limit=1) == [newest]
    before = datetime.fromtimestamp(newest.ended_at / 1000, UTC)
    assert await memory.episodes(subject="ana", before=before) == [oldest]
    assert await memory.episodes(session=newest.session) == [newest]
    assert await memory.episodes(session=newest.session, agent="x") == []
    with pytest.raises(perdure.errors.SessionNotFound):
        await memory.episodes(session="nothing")


async def test_memory_streams_are_not_listed_as_sessions(store: Store) -> None:
    fact = await store.memory.remember("likes tea", subject="ana")
    assert await store.recent(scope="all") == []
    assert await store.search("tea") == []
    stream = StreamId(fact.id.rpartition("/")[0])
    assert (await store.backend.state(stream)).header.kind == "memory"
    with pytest.raises(perdure.errors.SessionNotFound):
        await store.open(stream)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"subject": " "}, "subject is empty"),
    ({"scope": "agent"}, "needs an agent"),
    ({"scope": "namespace", "subject": "ana"}, "covers every subject"),
    ({"limit": -1}, "limit"),
]


@pytest.mark.parametrize(("arguments", "reason"), WRONG)
async def test_invalid_memory_scope_raises_an_error(
    store: Store, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        await store.memory.facts(**arguments)
    with pytest.raises(ValueError, match=reason):
        await store.memory.episodes(**arguments)
    with pytest.raises(ValueError, match=reason):
        await store.memory.recall("tea", **arguments)


async def test_stored_facts_have_their_documented_kind(store: Store) -> None:
    fact = await store.memory.remember("likes tea")
    stream = StreamId(fact.id.rpartition("/")[0])
    assert [entry.kind for entry in await store.backend.entries(stream)] == [FactRemembered.kind]


async def test_imported_episode_has_the_subject_given_at_import(
    store: Store, tmp_path: Path
) -> None:
    session = await store.create(subject="ana")
    await session.append(user("Hello"))
    await session.end()
    await session.export("perdure", tmp_path / "s.jsonl")
    await session.erase()
    await store.import_files([tmp_path / "s.jsonl"], subject="bob", again=True)
    assert await store.memory.episodes(subject="ana") == []
    assert await store.memory.episodes() == []
    (episode,) = await store.memory.episodes(subject="bob")
    assert (episode.subject, episode.title, episode.messages) == ("bob", "Hello", 1)


async def test_memory_stream_of_another_subject_is_not_used(store: Store) -> None:
    header = StreamHeader(memory_stream("ana"), START_MS, "memory", subject="bob")
    said = new_side(FactRemembered("likes tea"))
    write = Write(stream=header.id, create=header, entries=(said,))
    await store.backend.commit(Commit(writes=(write,), at=START_MS))
    assert await store.memory.facts(subject="ana") == []
    assert await store.memory.facts(subject="bob") == []
    with pytest.raises(perdure.errors.SessionExists):
        await store.memory.remember("likes tea", subject="ana")
