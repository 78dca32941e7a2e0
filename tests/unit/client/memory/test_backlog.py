"""Vectors computed in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

import perdure
from perdure import Store, user
from perdure.client.memory.backlog import Backlog
from tests.fakes.embedders import WordEmbedder


async def fill(store: Store) -> None:
    session = await store.create()
    await session.append_many([user(f"text number {n}") for n in range(70)])


async def sizes(store: Store) -> list[int]:
    return [state.size for state in (await store.backend.search.vector_models()).values()]


class Counting(WordEmbedder):
    """An embedder that counts its concurrent calls."""

    running = most = 0

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.001)
        self.running -= 1
        return await super().embed(texts)


async def test_repeated_wake_calls_embed_each_text_once() -> None:
    embedder = Counting()
    async with perdure.open("memory:") as store:
        await fill(store)
        backlog = Backlog(store.backend)
        for _ in range(3):
            backlog.wake(embedder, embedder.dimension)
        await backlog.settle()
        assert await sizes(store) == [70]
    assert embedder.most == 1
    assert len(embedder.asked) == 70


async def test_stopped_embedding_continues_after_the_next_wake_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    embedder = Counting()
    async with perdure.open("memory:") as store:
        await fill(store)
        backlog = Backlog(store.backend)
        backlog.wake(embedder, embedder.dimension)
        await asyncio.sleep(0)
        await backlog.stop()
        assert await sizes(store) in ([], [32], [64])
        embedder.failure = OSError("down")
        with caplog.at_level(logging.WARNING):
            backlog.wake(embedder, embedder.dimension)
            await backlog.settle()
        assert "not all texts got their vectors" in caplog.text
        embedder.failure = None
        backlog.wake(embedder, embedder.dimension)
        await backlog.settle()
        assert await sizes(store) == [70]
