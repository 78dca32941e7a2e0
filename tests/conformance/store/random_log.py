"""A log of random words, and queries that every backend must answer as the memory store does."""

from __future__ import annotations

import random

import msgspec

from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.messages import user
from perdure.session.search.values import SearchQuery
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import append, create, fork, header, labelled
from tests.fakes.clock import ManualClock, SeededRandom

WORDS = ("tide", "tides", "moon", "a", "foo_bar", "foo", "été", "ete", "酒店", "店", "👍", "x" * 70)
QUERIES = (
    *("tide", "ti*", '"tide moon"', '"a foo"*', "moon OR a", "a NOT moon", '"a a"', "酒店", "ete"),
    *("foo_bar", "x* tide", 'a NOT "tide moon"', "👍 OR 店", "x" * 70, "tide tides moon"),
)

BATCHES = 18
FILTERED = (
    SearchQuery(text=""),
    SearchQuery(text="", is_on_branch=True),
    SearchQuery(text="", is_on_branch=False, sessions=(StreamId("s1"), StreamId("none"))),
    SearchQuery(text="", roles=("label", "title"), since=100),
    SearchQuery(text="", since=200, until=500),
)


async def check_it_finds_what_memory_finds(
    store: SessionStore, seed: int, step: int = 1, batch: int = 30
) -> None:
    """Write the same log into `store` and into memory, and run the same queries on both.

    For each filter, only every `step`th query runs; each filter begins with a different query. The
    log has `BATCHES` commits of `batch` entries.
    """
    plain = MemoryStore(clock=ManualClock(), random=SeededRandom(1))
    for each in (plain, store):
        has_forks = store.capabilities.pointer_fork
        await _write(each, random.Random(seed), batch, has_forks=has_forks)
    limits = [10, *(5_000 for _ in FILTERED[1:])]
    for number, (limit, filtered) in enumerate(zip(limits, FILTERED, strict=True)):
        for text in QUERIES[number % step :: step]:
            query = msgspec.structs.replace(filtered, text=text, limit=limit)
            assert await store.search.hits(query) == await plain.search.hits(query), query
    assert await store.search.reindex() == await plain.search.reindex()
    assert (await store.maintenance.verify()).problems == ()


async def _write(
    store: SessionStore, chance: random.Random, batch: int, *, has_forks: bool
) -> None:
    def text() -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(1, 6)))

    for number in range(3):
        await create(store, header(f"s{number}", title=text(), created_at=number))
    names = ["s0", "s1", "s2"]
    if has_forks:
        names.append(await fork(store, StreamId("s0"), "f"))
    for at in range(0, BATCHES * 30, 30):
        stream = StreamId(chance.choice(names))
        new = [new_tree(user(text()), at=at + n) for n in range(batch - 1)]
        new[chance.randrange(batch - 1)] = new_tree(user(text()), None, at=at)
        entries = await append(store, stream, *new)
        await append(store, stream, labelled(text(), chance.choice(entries).id))
