"""Vectors: how every backend stores them, and their effect on the scores of a recall."""

from __future__ import annotations

import random
from math import sqrt

import pytest

from perdure.memory.arrays import ArraySums
from perdure.memory.question import Meaning, question_of
from perdure.memory.ranking import Scope, ranking
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.messages import user
from perdure.stores.retention.erase import EraseRequest
from perdure.stores.search.index_keys import subject_key
from perdure.stores.search.recall_plan import Asked, Recalled
from perdure.stores.search.vectors import VectorModel, VectorState, stored
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import S, append, create, header
from tests.conformance.store.test_recall import small_parts
from tests.fakes.clock import START_MS
from tests.fakes.embedders import WordEmbedder
from tests.fakes.recall_reference import AFTER, BEFORE, SaidText, reference_scores
from tests.fakes.samples import case

pytestmark = pytest.mark.needs("erase")

WORDS = ("tide", "moon", "boat", "harbour", "nets", "storm")
WORDY = WordEmbedder()
MODEL = VectorModel(WORDY.model, WORDY.dimension)


async def embed(store: SessionStore, model: VectorModel = MODEL, most: int = 1_000) -> int:
    """Store vectors for the next texts; return their number."""
    read = await store.search.unembedded(model)
    texts = read.texts[:most]
    if not texts:
        return 0
    end = read.end if len(texts) == len(read.texts) else texts[-1][1]
    embedder = WordEmbedder(model.name, model.dimension)
    rows = {found.position: stored(embedder.vector(found.what.text)) for found, _ in texts}
    assert await store.search.add_vectors(model, (read.before, end), rows)
    return len(texts)


async def recalled(
    store: SessionStore, question: str, model: VectorModel = MODEL
) -> list[Recalled]:
    embedder = WordEmbedder(model.name, model.dimension)
    meaning = Meaning(model, embedder.vector(question))
    asked = question_of(question, START_MS)._replace(meaning=meaning)
    rank = ranking(asked, Scope(subjects=(subject_key(None),)), 1_000, ArraySums)
    return await store.search.recall(Asked(asked.words, rank, model))


async def test_similarity_scores_of_vectors_match_the_documented_formula(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    chance = random.Random(3)
    sessions: dict[str, list[SaidText]] = {f"s{number}": [] for number in range(4)}
    for step in range(5):
        for stream, said in sessions.items():
            texts = [
                SaidText(f"{stream}-{len(said) + n}", None, " ".join(chance.choices(WORDS, k=5)), 0)
                for n in range(chance.randint(1, 4))
            ]
            entries = [
                new_tree(user(f"{each.text} {each.name}", said_at=START_MS), at=START_MS)
                for each in texts
            ]
            if said:
                await append(store, StreamId(stream), *entries)
            else:
                await create(store, header(stream), *entries)
            said += [each._replace(text=f"{each.text} {each.name}") for each in texts]
        await embed(store)
        for question in ("What about the moon and a boat?", "the harbour at night"):
            with case((step, question)):
                await _check(store, list(sessions.values()), question)


async def _check(store: SessionStore, sessions: list[list[SaidText]], question: str) -> None:
    by_words = reference_scores(sessions, question, START_MS)
    wanted = {name: by_words.get(name, 0.0) + part for name, part in _parts(sessions, question)}
    got = {
        each.found.what.text.split()[-1]: each.ranked.score
        for each in await recalled(store, question)
    }
    assert by_words.keys() <= got.keys()
    assert got == pytest.approx({name: wanted[name] for name in got}, abs=2e-2)


def _parts(sessions: list[list[SaidText]], question: str) -> list[tuple[str, float]]:
    """Return the score that vectors add to each text."""
    asked, found = _unit(WORDY.vector(question)), list[tuple[str, float]]()
    for session in sessions:
        vectors = [_unit(WORDY.vector(said.text)) for said in session]
        for index, said in enumerate(session):
            window = list(vectors[index])
            near = [(index - d, weight) for d, weight in enumerate(BEFORE, 1)]
            near += [(index + d, weight) for d, weight in enumerate(AFTER, 1)]
            for other, weight in near:
                if 0 <= other < len(session):
                    window = [a + weight * b for a, b in zip(window, vectors[other], strict=True)]
            cosines = _dot(asked, _unit(window)), _dot(asked, vectors[index])
            found.append((said.name, 5.0 * cosines[0] + 2.0 * cosines[1]))
    return found


def _unit(vector: list[float]) -> list[float]:
    length = sqrt(_dot(vector, vector))
    return [each / length for each in vector]


def _dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_vectors_stored_by_another_process_are_not_stored_twice(store: SessionStore) -> None:
    await create(store, S, *[new_tree(user(f"moon {n}"), at=1) for n in range(4)])
    first = await store.search.unembedded(MODEL)
    assert [found.what.text for found, _ in first.texts] == ["moon 0", "moon 1", "moon 2", "moon 3"]

    assert await embed(store, most=3) == 3

    assert not await store.search.add_vectors(MODEL, (first.before, first.end), {})
    assert [found.what.text for found, _ in (await store.search.unembedded(MODEL)).texts] == [
        "moon 3"
    ]
    assert await embed(store) == 1
    assert await embed(store) == 0
    ((model, state),) = (await store.search.vector_models()).items()
    assert (model, state.size) == (MODEL, 4)


async def test_vectors_of_each_model_are_stored_and_dropped_separately(store: SessionStore) -> None:
    other = VectorModel("words:2", 8)
    await create(store, S, new_tree(user("the moon rose"), at=1), new_tree(user("a boat"), at=2))
    for model in (MODEL, other):
        await embed(store, model)
        (best, *_) = await recalled(store, "moon", model)
        assert best.found.what.text == "the moon rose"
        assert "vector" in best.ranked.reasons

    await store.search.drop_vectors(MODEL)

    models = await store.search.vector_models()
    assert {model: state.size for model, state in models.items()} == {other: 2}
    assert "vector" not in (await recalled(store, "moon"))[0].ranked.reasons
    assert "vector" in (await recalled(store, "moon", other))[0].ranked.reasons
    assert await embed(store) == 2


async def test_vectors_of_erased_texts_are_deleted(
    store: SessionStore,
) -> None:
    for stream in ("kept", "gone"):
        await create(store, header(stream), *[new_tree(user(f"moon {n}"), at=n) for n in range(5)])
    await embed(store, most=8)
    late = await store.search.unembedded(MODEL)
    assert len(late.texts) == 2
    assert len(await recalled(store, "moon")) == 10

    await store.retention.erase(
        EraseRequest(id="e", scope="session", by="test", at=START_MS, name="gone")
    )

    (before,) = (await store.search.vector_models()).values()
    assert before.size == 5
    rows = {found.position: stored(WORDY.vector("moon")) for found, _ in late.texts}
    assert await store.search.add_vectors(MODEL, (late.before, late.end), rows)
    (after,) = (await store.search.vector_models()).values()
    assert after.size == 5, "a text that was erased meanwhile got a vector"
    assert {each.found.stream for each in await recalled(store, "moon")} == {"kept"}


async def test_vectors_of_a_removed_session_are_deleted(store: SessionStore) -> None:
    for stream in ("gone", "kept"):
        await create(store, header(stream), *[new_tree(user(f"moon {n}"), at=n) for n in range(3)])
    await embed(store)
    assert await store.retention.remove(StreamId("gone"))
    (state,) = (await store.search.vector_models()).values()
    assert state.size == 3
    assert {each.found.stream for each in await recalled(store, "moon")} == {"kept"}


async def test_store_without_texts_has_no_vectors(store: SessionStore) -> None:
    assert await store.search.vector_models() == {}
    assert not (await store.search.unembedded(MODEL)).texts
    await store.search.drop_vectors(MODEL)
    assert await store.search.vector_models() == {}
    assert VectorState() == (0, 0, 0)
