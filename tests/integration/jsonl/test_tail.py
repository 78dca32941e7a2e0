"""The newest entries of an unread session are read from the end of its file."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from unittest import mock

from perdure.session.ids import EntryId, StreamId
from perdure.stores.jsonl import index
from perdure.stores.jsonl.store import JsonlStore
from tests.conformance.store.building import append, create, labelled, moved, replied, said
from tests.fakes.samples import case
from tests.fakes.session_files import file_of
from tests.fakes.session_tools import tool
from tests.integration.jsonl.conftest import Opener

S = StreamId("s")


async def long_session(store: JsonlStore, asked: int = 120) -> None:
    chance = random.Random(7)
    await create(store, S, said("first"))
    for number in range(asked):
        await append(store, S, said(f"ask {number}"), labelled("x", None), replied(f"say {number}"))
        if number % 10 == 0:
            tree = await store.tree(S)
            await append(store, S, moved(chance.choice(tree[-30:]).id))


async def test_state_read_from_the_tail_equals_state_read_from_the_whole_file(
    store: JsonlStore, open_store: Opener
) -> None:
    await long_session(store, 40)
    tree = await store.tree(S)
    leaves = (tree[-1].id, tree[-7].id, tree[17].id)

    for tail_bytes in (500, 5_000, 20_000, 2**20):
        with case(tail_bytes), mock.patch.object(index, "TAIL_BYTES", tail_bytes):
            await check_tail_reads(store, open_store, leaves)


async def check_tail_reads(
    store: JsonlStore, open_store: Opener, leaves: Sequence[EntryId]
) -> None:
    """Compare reads of the end of the file with reads of a store that has read the whole file."""
    for leaf, kind, limit in product(leaves, (None, "message", "absent"), (1, 5, 50, 500)):
        fresh = await open_store()
        expected = await store.branch(S, leaf, limit=limit, kind=kind)
        found = await fresh.branch(S, leaf, limit=limit, kind=kind)
        assert found == expected, (leaf, kind, limit)
        await fresh.close()


async def test_only_the_end_of_the_file_is_read(
    store: JsonlStore, open_store: Opener, folder: Path
) -> None:
    await long_session(store)
    leaf = (await store.state(S)).leaf
    expected = await store.branch(S, leaf, limit=5)
    path = file_of(folder, S)
    whole = path.read_bytes()
    half = len(whole) // 2
    start = whole.index(b"\n") + 1
    path.write_bytes(whole[:start] + b"#" * (half - start) + whole[half:])
    fresh = await open_store()

    with mock.patch.object(index, "TAIL_BYTES", 20_000):
        assert await fresh.branch(S, leaf, limit=5) == expected
    # Earlier lines were not needed.
    assert fresh._handle.shelf.logs() == ()  # pyright: ignore[reportPrivateUsage] - looks behind


async def test_file_changed_by_another_program_is_read_whole(
    store: JsonlStore, open_store: Opener, folder: Path, dialect: str
) -> None:
    await create(store, S, said("a"), said("b"))
    await append(store, S, said("c"))
    tool(dialect, file_of(folder, S)).say("user", "theirs")
    await append(store, S, said("d"))
    leaf = (await store.state(S)).leaf
    fresh = await open_store()

    assert leaf is not None
    assert await fresh.branch(S, leaf, limit=3) == await store.branch(S, leaf, limit=3)
