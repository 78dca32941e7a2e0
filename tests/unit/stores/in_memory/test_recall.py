"""A recall reads its texts from the corpus that it ranked, even if texts are erased meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from perdure.client.clock import Outside
from perdure.client.store import Store
from perdure.session.messages import user
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.search.corpus import Corpus, Counts
from perdure.stores.search.recall_plan import Asked, Ranked
from tests.fakes.clock import ManualClock, SeededRandom


class SlowRanking:
    """A ranking that ranks the first text best, after it is released."""

    def __init__(self) -> None:
        self.begun, self.let = threading.Event(), threading.Event()

    def __call__(self, corpus: Corpus, counts: Sequence[Counts]) -> list[Ranked]:
        self.begun.set()
        assert self.let.wait(60)
        return [Ranked(0, 1.0, {})]


def first_text(corpus: Corpus, counts: Sequence[Counts]) -> list[Ranked]:
    return [Ranked(0, 1.0, {})]


async def test_recall_during_an_erasure_returns_no_text() -> None:
    clock, random = ManualClock(), SeededRandom(1)
    backend = MemoryStore(clock=clock, random=random)
    store, slow = Store(backend, Outside(clock, random)), SlowRanking()
    ana = await store.create(subject="ana")
    await ana.append(user("the moon of ana"))

    waiting = asyncio.create_task(backend.search.recall(Asked((), slow)))
    await asyncio.to_thread(slow.begun.wait, 60)
    await store.erase(ana.id)
    bob = await store.create(subject="bob")
    await bob.append(user("the moon of bob"))
    later = asyncio.create_task(backend.search.recall(Asked((), first_text)))
    await asyncio.wait((later,), timeout=0.2)
    slow.let.set()

    assert await waiting == []
    assert [each.found.what.text for each in await later] == ["the moon of bob"]
