"""Copies between every two kinds of stores: the same entries with the same hashes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from perdure.apps.maintenance.copy import copy_of
from perdure.errors import Erased
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.kinds import OPAQUE
from perdure.session.messages import MediaPart, Message, TextPart
from perdure.session.notes import ImportSource
from perdure.session.search.values import SearchQuery
from perdure.stores.copy import CopyReport
from perdure.stores.maintenance.segments import SegmentState
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.erase import EraseRequest
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import BACKENDS, Backend
from tests.conformance.store.building import (
    MINUTE_MS,
    S,
    append,
    create,
    fork,
    header,
    labelled,
    moved,
    replied,
    said,
    turn_finished,
    turn_started,
)
from tests.fakes.clock import START_MS, ManualClock

PICTURE = b"a picture" * 100
ORIGINAL = b'{"line": 1}\n'
"""The bytes of a file from which the session was imported."""


@pytest.fixture(params=BACKENDS)
async def target(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[SessionStore]:
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None
    folder = tmp_path / "target"
    folder.mkdir()
    data = Backend(request.param, folder, clock, server).new()
    yield await data.open()
    await data.close()


async def filled(store: SessionStore) -> None:
    """Create two sessions with turns, branches, a fork of a fork, a picture and foreign ids."""
    await create(store, S, said("a", alias="a1"), said("b"))
    lease = await store.acquire_lease(S, "me", MINUTE_MS)
    await append(store, S, turn_started(), said("c"), lease=lease)
    await append(store, S, replied("d"), turn_finished(), lease=lease)
    await append(store, S, moved(EntryId("s/0")), NewEntry(OPAQUE, b"\xff\n"))
    name = blob_hash(PICTURE)
    shown = Message(
        "user", (TextPart("see"), MediaPart("image/png", f"media://{name}", len(PICTURE)))
    )
    write = Write(stream=S, entries=(new_tree(shown),))
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=(PICTURE,)))
    imported = new_side(
        ImportSource("pi", "old.jsonl", blob_hash(ORIGINAL), 0, len(ORIGINAL), 1, 1)
    )
    write = Write(stream=S, entries=(imported,))
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=(ORIGINAL,)))
    await create(store, header("empty", title="nothing yet"))
    await fork(store, S, "f", said("in f"), labelled("here", EntryId("s/0")))


async def copied(
    source: SessionStore, target: SessionStore, moment: list[SegmentState] | None = None
) -> CopyReport:
    if moment is None:
        moment = await source.maintenance.segment_states()
    return await copy_of(source, target).run(moment)


async def shown(store: SessionStore) -> object:
    """Return the visible data of each session, independent of entry ids."""
    found: dict[str, object] = {}
    for standing in await store.maintenance.segment_states():
        state = await store.state(standing.stream)
        branch = await store.branch(standing.stream, state.leaf)
        window = await store.context_window(standing.stream, state.leaf)
        labels = [entry.body for entry in await store.notes(standing.stream, ("label",))]
        found[standing.stream] = (
            [(entry.kind, entry.body, entry.at) for entry in branch],
            [entry.body for entry in window.entries],
            labels,
            state.info.title,
            state.info.messages,
        )
    return found


def outcomes(report: CopyReport) -> dict[str, str]:
    return {each.stream: each.outcome for each in report.streams}


async def test_copied_store_has_the_same_content_and_passes_verification(
    store: SessionStore, target: SessionStore
) -> None:
    await filled(store)
    report = await copied(store, target)

    assert report.is_whole
    assert await shown(target) == await shown(store)
    assert (await target.maintenance.verify()).problems == ()
    assert await target.blob(blob_hash(PICTURE)) == PICTURE
    assert await target.blob(blob_hash(ORIGINAL)) == ORIGINAL
    assert await target.aliases(S) == await store.aliases(S)
    assert (await target.state(S)).hash == (await store.state(S)).hash
    await append(target, S, said("it goes on"))
    assert (await target.maintenance.verify()).problems == ()


async def test_second_copy_adds_only_new_entries(store: SessionStore, target: SessionStore) -> None:
    await filled(store)
    await copied(store, target)
    again = await copied(store, target)
    assert again.added_entries == 0
    assert set(outcomes(again).values()) == {"present"}

    await append(store, S, said("new"))
    await append(store, StreamId("f"), said("new too"))
    later = await copied(store, target)
    assert later.is_whole
    assert later.added_entries == 2
    assert await shown(target) == await shown(store)
    assert (await target.maintenance.verify()).problems == ()


async def test_store_copy_contains_only_entries_committed_before_it_began(
    store: SessionStore, target: SessionStore
) -> None:
    await create(store, S, said("a"))
    moment = await store.maintenance.segment_states()
    await append(store, S, said("later"))
    await create(store, StreamId("late"))
    await copied(store, target, moment)

    assert [each.stream for each in await target.maintenance.segment_states()] == ["s"]
    assert (await target.state(S)).head == 0
    finished = await copied(store, target)
    assert finished.is_whole
    assert await shown(target) == await shown(store)


async def test_different_session_with_the_same_id_is_not_overwritten(
    store: SessionStore, target: SessionStore
) -> None:
    await filled(store)
    await create(target, S, said("another"))
    report = await copied(store, target)

    assert outcomes(report)["s"] == "conflict"
    assert outcomes(report)["empty"] == "copied"
    assert not report.is_whole
    assert [e.message.text for e in await target.entries(S) if e.message] == ["another"]


async def test_copy_to_a_target_with_other_entries_reports_a_conflict(
    store: SessionStore, target: SessionStore
) -> None:
    await create(store, S, said("a"))
    await copied(store, target)
    await append(target, S, said("there"))
    assert outcomes(await copied(store, target)) == {"s": "present"}

    await append(store, S, said("here"))
    assert outcomes(await copied(store, target)) == {"s": "conflict"}
    await append(store, S, said("and here"))
    assert outcomes(await copied(store, target)) == {"s": "conflict"}
    assert [e.message.text for e in await target.entries(S) if e.message] == ["a", "there"]


async def test_copy_reports_damage_during_the_transfer(backend: Backend) -> None:
    first, second = backend.new(), backend.new()
    store, target = await first.open(), await second.open()
    await create(store, S, said("a"))
    await append(store, S, said("b"))
    (standing,) = await store.maintenance.segment_states()
    lying = msgspec.structs.replace(standing, hash=bytes(32))
    report = await copied(store, target, [lying])

    assert outcomes(report) == {"s": "damaged"}
    assert report.streams[0].added == 2
    await first.close()
    await second.close()


async def erased_in(store: SessionStore) -> None:
    """Erase two sessions: one without a fork, and one whose shared entries its fork keeps."""
    await create(store, header("gone", title="secret"), said("secret", alias="x"))
    for name in ("gone", S):
        request = EraseRequest(
            id=f"e-{name}", scope="session", by="me", at=START_MS, name=name, forks="keep"
        )
        await store.retention.erase(request)


async def test_erased_entries_stay_erased_in_copy(
    store: SessionStore, target: SessionStore
) -> None:
    await filled(store)
    await erased_in(store)
    moment = await store.maintenance.segment_states()

    report = await copied(store, target)
    again = await copied(store, target)

    assert report.is_whole
    assert again.added_entries == 0
    assert (await target.maintenance.verify()).problems == ()
    assert {info.id for info in await target.sessions(scope="all")} == {
        info.id for info in await store.sessions(scope="all")
    }
    if target.capabilities.erase and store.capabilities.erase:
        assert {each.hash for each in await target.maintenance.segment_states()} == {
            each.hash for each in moment
        }
        for name in ("gone", S):
            with pytest.raises(Erased):
                await append(target, StreamId(name), said("on"))
            with pytest.raises(Erased):
                await target.acquire_lease(StreamId(name), "me", MINUTE_MS)
            with pytest.raises(Erased):
                await fork(target, StreamId(name), "late")
    for each in await target.maintenance.segment_states():
        for entry in await target.entries(each.stream):
            assert b"secret" not in entry.body
    if target.capabilities.search:
        assert await target.search.hits(SearchQuery(text="secret")) == []
