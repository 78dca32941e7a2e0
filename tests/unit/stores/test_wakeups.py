"""The iterators that a commit wakes; dropped iterators leave no data behind."""

from __future__ import annotations

import asyncio
import gc

from perdure.session.ids import StreamId
from perdure.stores.wakeups import Changes, Watches

A, B = StreamId("a"), StreamId("b")


async def is_woken(changes: Changes) -> bool:
    try:
        await asyncio.wait_for(anext(changes), 0.01)
    except TimeoutError:
        return False
    return True


async def test_commit_wakes_the_watchers_of_its_streams_and_namespace() -> None:
    watches = Watches()
    of_a, of_b, whole = watches.add("n", A), watches.add("n", B), watches.add("n")
    elsewhere, other = watches.add("m", A), watches.add("m")

    watches.wake([("n", A)])

    woken = [await is_woken(each) for each in (of_a, of_b, whole, elsewhere, other)]
    assert woken == [True, False, True, False, False]


async def test_garbage_collected_watchers_and_their_empty_groups_are_removed() -> None:
    watches = Watches()
    kept = watches.add("n", A)
    for number in range(100):
        watches.add("n", StreamId(f"s{number}"))

    gc.collect()
    watches.wake([("n", A)])
    assert await is_woken(kept)
    del kept
    gc.collect()

    assert not watches


async def test_closing_the_watches_ends_every_iterator() -> None:
    watches = Watches()
    iterators = [watches.add("n", A), watches.add("m")]

    watches.end()

    assert [[_ async for _ in each] for each in iterators] == [[], []]
