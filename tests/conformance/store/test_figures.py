"""The statistics of a store equal the sums over all commits that can be read from the store."""

from __future__ import annotations

from collections import defaultdict

import pytest

from perdure.errors import Unsupported
from perdure.session.ids import StreamId
from perdure.stores.maintenance.stats import DAY_MS, NamespaceFigures, day_of
from perdure.stores.protocol import EMPTY, Commit, Write
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import (
    S,
    append,
    create,
    fork,
    header,
    said,
    said_to_old_version,
)
from tests.fakes.clock import START_MS, ManualClock

OLD = "x" * 700


async def filled(store: SessionStore, clock: ManualClock) -> None:
    await create(store, S, said("a"))
    await store.commit(Commit(writes=(Write(stream=S, entries=(said(OLD),)),), at=START_MS))
    for day in (1, 1, 3, 2):  # the clock of a machine may be set back
        at = START_MS + day * DAY_MS
        write = Write(stream=S, entries=(said(f"on day {day}"), said("and another")))
        await store.commit(Commit(writes=(write,), at=at))
    await append(store, S, said("large " + "y" * 20_000))
    if store.capabilities.pointer_fork:
        await fork(store, S, "f", said("in the fork"))
    flow = Write(stream=StreamId("flow"), create=header("flow", kind="flow"))
    await store.commit(Commit(writes=(flow,), at=clock.now_ms(), blobs=(b"blob", b"another")))


async def counted(store: SessionStore, since: int) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Return bytes by stream, and entries and bytes by day, from reading every commit."""
    sizes: dict[str, int] = {}
    days: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for each in await store.maintenance.segment_states():
        share = await store.maintenance.read_segment(
            each.stream, after=EMPTY, upto=each.head, limit=1_000
        )
        sizes[each.stream] = sum(len(row.entry.body) for row in share.entries())
        for commit in share.commits:
            if commit.at >= since:
                days[day_of(commit.at)][0] += len(commit.rows)
                days[day_of(commit.at)][1] += sum(len(row.entry.body) for row in commit.rows)
    return sizes, dict(days)


@pytest.mark.parametrize("since", [0, START_MS + DAY_MS, START_MS + 2 * DAY_MS + 1])
async def test_stats_match_values_computed_from_the_log(
    store: SessionStore, clock: ManualClock, since: int
) -> None:
    try:
        await store.maintenance.measure(since)
    except Unsupported:
        pytest.skip("its figures are read")
    await filled(store, clock)
    sizes, days = await counted(store, since)

    found = await store.maintenance.measure(since)

    (own,) = (each for each in found.namespaces if each.namespace == store.namespace)
    assert {each.stream: each.bytes for each in own.largest} == sizes
    assert own.bytes == sum(sizes.values())
    assert {each.day: [each.entries, each.bytes] for each in own.growth} == days
    assert _counts(own) == (2, 1, 1, 2, 11)
    assert own.entries == sum(each.entries for each in own.largest) == 12


def _counts(own: NamespaceFigures) -> tuple[int, ...]:
    return (own.sessions, own.flows, own.forks, own.contents, own.content_bytes)


async def test_secrets_in_stream_names_are_masked_in_statistics(store: SessionStore) -> None:
    key = "sk-ant-api03-QRSTUVWXYZabcdefghij"
    await create(store, S)
    await said_to_old_version(store, f"use {key} please")
    try:
        (found,) = (await store.maintenance.measure(0)).namespaces
    except Unsupported:
        pytest.skip("its figures are read")
    assert [each.name for each in found.largest] == ["use [redacted] please"]
