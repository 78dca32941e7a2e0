"""Facts and summaries among the hits of a recall."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import perdure
from perdure import MemoryHit, Store, assistant, user
from perdure.client.memory import embedding
from perdure.errors import WrongArgument
from perdure.memory.hits import RecallKind
from tests.fakes.clock import START_MS, ManualClock
from tests.fakes.embedders import WordEmbedder

STATEMENTS: tuple[RecallKind, ...] = ("episode", "fact")
NOW = datetime.fromtimestamp(START_MS / 1000, UTC)


def kinds(hits: list[MemoryHit]) -> set[tuple[str, str]]:
    return {(hit.kind, hit.text) for hit in hits}


async def with_trip(store: Store) -> str:
    """Append a session about ana that ended with a summary; return its id."""
    session = await store.create(subject="ana")
    await session.append(user("Which hotel should we take?"), assistant("The Aurora."))
    await session.end(summary="We chose the hotel by the river.")
    return session.id


async def test_recall_finds_texts_summaries_and_facts_with_reasons() -> None:
    async with perdure.open("memory:") as store:
        trip = await with_trip(store)
        entry = await store.entry(f"{trip}/0")
        fact = await store.memory.remember("Ana wants a quiet hotel", subject="ana", source=entry)
        hits = await store.memory.recall("Which hotel by the river?", subject="ana")
        (episode,) = await store.memory.episodes(subject="ana")
        found = {hit.kind: hit for hit in hits}
        assert found.keys() == {"said", "episode", "fact"}
        assert hits == sorted(hits, key=lambda hit: -hit.score)
        assert hits[0].kind == "episode"
        assert all("hotel" in hit.why.terms for hit in hits if hit.kind != "said")
        assert found["episode"].sources == (episode.id,)
        assert found["episode"].session_id == trip
        assert (found["fact"].entry_id, found["fact"].sources) == (fact.id, (entry.id,))
        assert (
            await store.memory.recall("Which hotel by the river?", subject="ana", limit=1)
            == (hits[:1])
        )
        expected: dict[RecallKind, str] = {"text": "said", "episode": "episode", "fact": "fact"}
        for kind, name in expected.items():
            some = await store.memory.recall("Which hotel?", subject="ana", kinds=[kind])
            assert {hit.kind for hit in some} == {name}
        with pytest.raises(WrongArgument, match="kinds"):
            await store.memory.recall("Which hotel?", kinds=["facts"])  # type: ignore[list-item] # it is refused


async def test_facts_and_summaries_are_recalled_only_in_their_scope() -> None:
    async with perdure.open("memory:") as store:
        await with_trip(store)
        await store.memory.remember("a hotel for ana", subject="ana", agent="helper")
        await store.memory.remember("a hotel for all", subject="ana")
        recall = store.memory.recall
        assert await recall("hotel", kinds=STATEMENTS) == []
        assert await recall("hotel", subject="bob", kinds=STATEMENTS) == []
        assert len(await recall("hotel", scope="namespace", kinds=STATEMENTS)) == 3
        own = await recall("hotel", subject="ana", agent="helper", kinds=STATEMENTS)
        assert kinds(own) == {("fact", "a hotel for ana")}
        shown = await recall("hotel", subject="ana", knowledge_of="other", kinds=("fact",))
        assert kinds(shown) == {("fact", "a hotel for all")}


async def test_recall_with_session_filter_returns_only_facts_from_those_sessions() -> None:
    async with perdure.open("memory:") as store:
        trip = await with_trip(store)
        entry = await store.entry(f"{trip}/0")
        await store.memory.remember("a quiet hotel", subject="ana", source=entry)
        await store.memory.remember("a loud hotel", subject="ana")
        recall = store.memory.recall
        inside = kinds(await recall("hotel", subject="ana", sessions=[trip], kinds=STATEMENTS))
        assert inside == {
            ("fact", "a quiet hotel"),
            ("episode", "We chose the hotel by the river."),
        }
        outside = kinds(await recall("hotel", subject="ana", without=[trip], kinds=STATEMENTS))
        assert outside == {("fact", "a loud hotel")}


async def test_past_corrected_forgotten_and_erased_facts_are_not_recalled() -> None:
    async with perdure.open("memory:", clock=ManualClock()) as store:
        memory = store.memory
        trip = await with_trip(store)
        entry = await store.entry(f"{trip}/0")
        await memory.remember("an erased hotel", subject="ana", source=entry)
        await memory.remember("an old hotel", subject="ana", valid_to=NOW)
        await memory.remember("a later hotel", subject="ana", valid_from=NOW + timedelta(days=1))
        gone = await memory.remember("a forgotten hotel", subject="ana")
        newer = await memory.remember("a wrong hotel", subject="ana")
        await memory.correct(newer.id, "a right hotel")
        await memory.forget(gone.id)
        await store.erase(trip)
        found = await memory.recall("hotel", subject="ana")
        assert kinds(found) == {("fact", "a right hotel")}


async def test_facts_and_summaries_are_recalled_by_their_meaning() -> None:
    embedder = WordEmbedder(alike=[("inn", "hotel")])
    async with perdure.open("memory:") as store:
        await with_trip(store)
        await store.memory.remember("Ana wants a quiet hotel", subject="ana")
        memory = store.memory.with_embedder(embedder)
        assert await store.memory.recall("inn", subject="ana", kinds=STATEMENTS) == []
        found = await memory.recall("inn", subject="ana", kinds=STATEMENTS)
        assert {hit.kind for hit in found} == {"episode", "fact"}
        assert all(hit.why.vector for hit in found)
        asked = len(embedder.asked)
        await memory.recall("inn", subject="ana", kinds=STATEMENTS)
        assert len(embedder.asked) == asked + 1, "only the question gets a new vector"


async def test_recall_embeds_only_a_limited_number_of_facts_and_summaries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedding, "STATEMENTS", 2)
    embedder = WordEmbedder("few:1", alike=[("inn", "hotel")])
    async with perdure.open("memory:") as store:
        for number in range(4):
            await store.memory.remember(f"hotel {number}")
        memory = store.memory.with_embedder(embedder)
        assert len(await memory.recall("inn", kinds=["fact"])) == 2
        assert len(await memory.recall("inn", kinds=["fact"])) == 4


async def test_session_files_recall_only_summaries_of_matching_sessions(
    tmp_path: Path,
) -> None:
    async with perdure.open(f"jsonl:///{tmp_path}") as store:
        await with_trip(store)
        other = await store.create(subject="ana")
        await other.append(user("Hello"))
        await other.end(summary="A hotel that no text names.")
        found = await store.memory.recall("Which hotel?", subject="ana")
        assert ("episode", "We chose the hotel by the river.") in kinds(found)
        only = await store.memory.recall("Which hotel?", subject="ana", kinds=["episode"])
        assert kinds(only) == {("episode", "We chose the hotel by the river.")}
        assert await store.memory.recall("Which hotel?", kinds=["episode"]) == []
