"""An erasure reads only a few forks. The result is the same as if the erasure read all forks."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Literal

import pytest

from perdure.errors import SessionHasForks
from perdure.session.codec import ENTRY_NOTES, new_side, new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.kinds import Compaction
from perdure.session.messages import user
from perdure.session.notes import Label
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.cascade import (
    Reach,
    VisibleEntries,
    kept_for,
    reach_of,
    streams_to_read,
    summaries_of,
    takings,
)
from perdure.stores.retention.erase import EraseRequest, Relation, in_ranges, seqs_in
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.samples import case

ROOT = StreamId("root")
STREAMS = 12


async def appended(store: MemoryStore, stream: StreamId, *entries: NewEntry) -> None:
    await store.commit(Commit(writes=(Write(stream=stream, entries=entries),), at=START_MS))


async def forked(
    store: MemoryStore, origin: StreamId, stream: StreamId, chance: random.Random
) -> None:
    """Create a random fork of `origin`. The fork contains the tree or one branch.

    The fork begins at the head of `origin` or at an earlier entry.
    """
    state = await store.state(origin)
    tree = [each for each in await store.tree(origin) if each.stream == origin]
    is_path = bool(tree) and chance.random() < 0.4
    leaf = chance.choice(tree).id if is_path else state.leaf
    head = state.head
    if not is_path and tree and chance.random() < 0.5:
        leaf = chance.choice(tree).id
        head = int(leaf.rpartition("/")[2])
    point = ForkPoint(origin, leaf, head, "path" if is_path else "tree")
    header = StreamHeader(stream, START_MS, parent=origin, fork=point)
    write = Write(stream=stream, create=header)
    await store.commit(Commit(writes=(write,), at=START_MS))


async def written(store: MemoryStore, stream: StreamId, chance: random.Random) -> None:
    """Append messages on several branches, labels and a compaction."""
    for number in range(chance.randrange(4)):
        tree = await store.tree(stream)
        entry = new_tree(user(str(number)))
        if tree and chance.random() < 0.4:
            parent = chance.choice(tree).id
            entry = NewEntry(kind=entry.kind, body=entry.body, v=entry.v, parent=parent)
        await appended(store, stream, entry)
    tree = await store.tree(stream)
    if tree and chance.random() < 0.4:
        await appended(store, stream, new_side(Label("named"), about=chance.choice(tree).id))
    if tree and chance.random() < 0.3:
        await appended(store, stream, new_tree(Compaction("short", tree[-1].id, 1)))


async def forest(chance: random.Random) -> tuple[MemoryStore, list[Relation]]:
    """Return a store with forks of forks, some of them erased, and their relations."""
    store = MemoryStore(clock=ManualClock(), random=SeededRandom(1))
    header = StreamHeader(ROOT, START_MS)
    await store.commit(Commit(writes=(Write(stream=ROOT, create=header),), at=START_MS))
    streams, relations = [ROOT], list[Relation]()
    for number in range(STREAMS):
        await written(store, streams[-1], chance)
        origin, stream = chance.choice(streams), StreamId(f"f{number}")
        await forked(store, origin, stream, chance)
        streams.append(stream)
    gone = [each for each in streams[1:] if chance.random() < 0.2]
    for stream in gone:
        request = EraseRequest(
            id=stream, scope="session", by="x", at=START_MS, name=stream, forks="keep"
        )
        await store.retention.erase(request)
    for stream in streams[1:]:
        fork = (await store.state(stream)).header.fork
        assert fork is not None
        is_path = fork.scope == "path"
        relations.append(Relation(stream, fork.stream, "fork", stream in gone, fork.head, is_path))
    return store, relations


async def seen_by(store: MemoryStore, stream: StreamId) -> VisibleEntries:
    return VisibleEntries(await store.tree(stream), await store.notes(stream, ENTRY_NOTES))


def expected(
    reach: Reach, seen: Mapping[StreamId, VisibleEntries]
) -> tuple[set[EntryId], list[StreamId], dict[StreamId, object]]:
    """Return the expected result of an erasure, computed from all forks.

    Shape: the kept entries, the forks that share entries, and the summaries that each fork loses.
    """
    kept = kept_for((seen[fork] for fork in reach.forks), reach.targets)
    every: dict[StreamId, list[Entry]] = {id_: list(each.tree) for id_, each in seen.items()}
    erased = {
        entry.id
        for tree in every.values()
        for entry in tree
        if entry.stream == ROOT and entry.id not in kept
    }
    derived = summaries_of(erased, every)
    lost: dict[StreamId, object] = {
        fork: in_ranges(seqs_in(derived, fork)) for fork in reach.forks if seqs_in(derived, fork)
    }
    sharing = [fork for fork in reach.forks if any(e.stream == ROOT for e in seen[fork].tree)]
    return kept - derived, sharing, lost


async def test_entries_kept_for_forks_are_found_by_reading_few_forks() -> None:
    for seed in range(30):
        with case(seed):
            store, relations = await forest(random.Random(seed))
            reach = reach_of([ROOT], relations, "keep")
            heads = {ROOT: (await store.state(ROOT)).head}
            everything = {id_: await seen_by(store, id_) for id_ in (ROOT, *reach.forks)}
            few = {id_: await seen_by(store, id_) for id_ in streams_to_read(reach, relations)}

            found = takings(reach, heads, relations, few)
            if found is None:
                found = takings(reach, heads, relations, {**everything, **few})

            assert found is not None
            if reach.forks:
                kept, sharing, lost = expected(reach, everything)
                assert found[0].kept == in_ranges(seqs_in(kept, ROOT))
                assert list(found[0].kept_for) == (sharing if found[0].kept else [])
                assert {each.stream: each.erased for each in found[1:]} == lost


def test_erasure_with_a_long_fork_chain_reads_only_two_streams() -> None:
    chain = [StreamId(f"f{number}") for number in range(1_000)]
    parents = [ROOT, *chain[:-1]]
    relations = [
        Relation(stream, parent, "fork", head=5)
        for stream, parent in zip(chain, parents, strict=True)
    ]

    assert streams_to_read(reach_of([ROOT], relations, "keep"), relations) == (ROOT, "f0")


def test_erasure_with_many_forks_reads_only_one_fork() -> None:
    relations = [Relation(StreamId(f"f{n}"), ROOT, "fork", head=n % 700) for n in range(1_000)]

    assert streams_to_read(reach_of([ROOT], relations, "keep"), relations) == (ROOT, "f699")


def test_erased_forks_and_copies_do_not_prevent_an_erasure() -> None:
    kinds: tuple[Literal["fork", "copy"], ...] = ("fork", "copy")
    for how in kinds:
        with case(how):
            other = StreamId("other")
            live, erased = (Relation(other, ROOT, how, is_erased=each) for each in (False, True))
            with pytest.raises(SessionHasForks):
                reach_of([ROOT], [live], "refuse")
            assert reach_of([ROOT], [erased], "refuse") == Reach((ROOT,))
