"""The scope of a recall, as the ranking receives it."""

from __future__ import annotations

import perdure
from perdure import user
from perdure.client.memory.recall_query import recall_in
from perdure.client.memory.statements import Wanted
from perdure.memory.scope import MemoryFilter
from tests.fakes.clock import START_MS


async def test_hits_of_all_kinds_are_limited_and_sorted_best_first() -> None:
    async with perdure.open("memory:") as store:
        for number in range(3):
            session = await store.create()
            await session.append(user(f"the hotel {number}"))
            await store.memory.remember(f"a hotel {number}")
        wanted = Wanted(("text", "fact"), MemoryFilter())
        hits = await recall_in(store.backend, None, "hotel", wanted, 4, now=START_MS * 2)
    assert len(hits) == 4
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert {hit.kind for hit in hits} == {"said", "fact"}
