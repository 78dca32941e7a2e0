"""Vectors of a store's texts: computed in steps, with recalls between them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

import perdure
from perdure import Store, user
from perdure.client.memory import embedding
from perdure.errors import ConfigError, EmbedderUnavailable, WrongArgument
from tests.fakes.embedders import WordEmbedder
from tests.fakes.tiny_models import static_folder

TEXT = "hotel Aurora"
LODGING = WordEmbedder(dimension=64, alike=[("hotel", "lodging")])


async def fill(store: Store, count: int = 1) -> None:
    session = await store.create()
    await session.append(user(TEXT))
    await session.append_many([user(f"something else number {n}") for n in range(count)])


async def test_text_in_other_words_is_recalled_by_its_meaning() -> None:
    async with perdure.open("memory:") as store:
        await fill(store)
        assert await store.memory.recall("lodging?") == []
        hit = (await store.memory.with_embedder(LODGING).recall("lodging?"))[0]
    assert hit.text == TEXT
    assert hit.why.vector is not None
    assert hit.why.vector > 0.3
    assert hit.why.terms == ()


async def test_texts_with_a_distant_meaning_are_not_recalled() -> None:
    async with perdure.open("memory:") as store:
        await fill(store)
        memory = store.memory.with_embedder(WordEmbedder(dimension=512))
        assert await memory.recall("unrelated") == []


async def test_embedder_is_loaded_from_folder_by_name(tmp_path: Path) -> None:
    static_folder(tmp_path / "words")
    async with perdure.open("memory:") as store:
        await fill(store)
        memory = store.memory.with_embedder(f"static:{tmp_path / 'words'}")
        assert (await memory.recall("Which lodging?"))[0].text == TEXT
        assert await memory.embed() == 0


async def test_recall_embeds_only_a_limited_number_of_texts() -> None:
    async with perdure.open("memory:") as store:
        await fill(store, 3 * embedding.AT_ONCE)
        memory = store.memory.with_embedder(LODGING)
        await memory.recall("hotel")
        assert await sizes(store) == [embedding.AT_ONCE]
        assert await memory.embed() == 2 * embedding.AT_ONCE + 1
        assert await memory.embed() == 0
        assert await sizes(store) == [3 * embedding.AT_ONCE + 1]


async def sizes(store: Store) -> list[int]:
    return [state.size for state in (await store.backend.search.vector_models()).values()]


async def test_vectors_of_other_embedders_are_removed_only_on_request() -> None:
    async with perdure.open("memory:") as store:
        await fill(store)
        first = store.memory.with_embedder(LODGING)
        second = store.memory.with_embedder(WordEmbedder("words:2", 8))
        assert await first.embed() == 2
        assert await second.embed() == 2
        assert await sizes(store) == [2, 2]
        assert await second.embed(is_only=True) == 0
        assert await sizes(store) == [2]
        assert await first.embed() == 2


class Slow(WordEmbedder):
    """An embedder that lets other tasks run before each answer."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        await asyncio.sleep(0.001)
        return await super().embed(texts)


async def test_texts_are_embedded_during_concurrent_appends_and_recalls(tmp_path: Path) -> None:
    async with perdure.open(f"sqlite:///{tmp_path}/s.db") as store:
        await fill(store, 200)
        old = store.memory.with_embedder(LODGING)
        await old.embed()
        session = await store.create()
        changed = asyncio.create_task(store.memory.with_embedder(Slow("words:3", 8)).embed())
        for number in range(20):
            await session.append(user(f"a storm number {number}"))
            assert (await old.recall("lodging?"))[0].text == TEXT
        assert await changed >= 201
        await store.memory.with_embedder(Slow("words:3", 8)).embed()
        await old.embed()
        assert await sizes(store) == [221, 221]


async def test_failing_embedder_raises_one_error_and_loses_nothing() -> None:
    embedder = WordEmbedder()
    async with perdure.open("memory:") as store:
        await fill(store, 100)
        memory = store.memory.with_embedder(embedder)
        await memory.recall("hotel")
        embedder.failure = OSError("down")
        with pytest.raises(EmbedderUnavailable, match="words:1: OSError"):
            await memory.recall("hotel")
        with pytest.raises(EmbedderUnavailable):
            await memory.embed()
        assert await store.memory.recall("hotel")
        embedder.failure = None
        await memory.embed()
        assert await sizes(store) == [101]


async def test_vectors_of_another_length_than_that_of_the_model_are_not_stored() -> None:
    class Uneven(WordEmbedder):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            found = await super().embed(texts)
            return [vector[:8] for vector in found] if TEXT in texts else found

    async with perdure.open("memory:") as store:
        await fill(store)
        memory = store.memory.with_embedder(Uneven())
        await memory.embed()
        assert await sizes(store) == [0]
        assert TEXT in [hit.text for hit in await memory.recall("hotel")]


async def test_invalid_embedders_are_rejected() -> None:
    async with perdure.open("memory:") as store:
        with pytest.raises(ConfigError, match="names no embedder"):
            store.memory.with_embedder("words")
        with pytest.raises(WrongArgument, match="takes Embedder or str or None"):
            store.memory.with_embedder(object())  # pyright: ignore[reportArgumentType] - a program without types
        with pytest.raises(WrongArgument, match=r"use store\.memory\.with_embedder"):
            await store.memory.embed()
        with pytest.raises(ConfigError, match="does not exist"):
            await store.memory.with_embedder("static:/nowhere").recall("hotel")


async def test_missing_numpy_raises_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_numpy(_name: str) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", without_numpy)
    async with perdure.open("memory:") as store:
        with pytest.raises(ConfigError, match=r"pip install 'perdure\[memory\]'"):
            await store.memory.with_embedder(WordEmbedder()).recall("hotel")
