"""Other processes change the stores during a copy or a retention run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.apps.maintenance.copy import copy_sessions
from perdure.apps.maintenance.stats import figures
from perdure.client.open import open as open_store
from perdure.client.retention import apply_retention
from perdure.client.store import Store
from perdure.session.ids import StreamId
from perdure.session.messages import user
from perdure.stores.retention.policy import Retention
from tests.fakes.sealing import as_sealing

KINDS = ("sqlite", "jsonl")
SESSIONS = ("s0", "s1", "s2")


def address(kind: str, place: Path) -> str:
    return f"{kind}:///{place}"


async def fill(store: Store) -> None:
    for id in SESSIONS:
        session = await store.create(id=id)
        for text in ("one", "two", "three"):
            await session.append(user(text))


def first(act: Callable[[], Awaitable[object]], real: Any) -> Any:
    """Return a function that calls `act` once, then `real`, and later only `real`."""
    was_called = False

    async def call(*arguments: Any, **named: Any) -> Any:
        nonlocal was_called
        if not was_called:
            was_called = True
            await act()
        return await real(*arguments, **named)

    return call


async def remove(store: Store, session: str) -> None:
    assert await store.backend.retention.remove(StreamId(session))


@pytest.mark.parametrize("into", KINDS)
@pytest.mark.parametrize("kind", KINDS)
async def test_two_concurrent_copies_both_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, into: str
) -> None:
    """One copy runs before each segment that the other transfers, so the segment already exists."""
    there = address(into, tmp_path / "there")
    async with (
        open_store(address(kind, tmp_path / "here")) as source,
        open_store(there) as target,
        open_store(there) as again,
    ):
        await fill(source)

        async def rival() -> None:
            assert (await copy_sessions(source, again)).is_whole

        taking = as_sealing(target.backend)
        monkeypatch.setattr(taking.maintenance, "receive", first(rival, taking.maintenance.receive))
        report = await copy_sessions(source, target)

        assert report.is_whole, report
        assert [each.outcome for each in report.streams] == ["present"] * len(SESSIONS)
        assert (await target.verify()).problems == ()


@pytest.mark.parametrize("kind", KINDS)
async def test_session_removed_during_copy_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with (
        open_store(address(kind, tmp_path / "here")) as source,
        open_store("memory:") as target,
    ):
        await fill(source)

        async def rival() -> None:
            await remove(source, "s0")

        giving = as_sealing(source.backend)
        monkeypatch.setattr(
            giving.maintenance, "read_segment", first(rival, giving.maintenance.read_segment)
        )
        report = await copy_sessions(source, target)

        assert report.is_whole, report
        outcomes = {each.stream: each.outcome for each in report.streams}
        assert outcomes == {"s0": "erased", "s1": "copied", "s2": "copied"}


@pytest.mark.parametrize("kind", KINDS)
async def test_retention_continues_after_concurrent_removal_of_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with open_store(address(kind, tmp_path / "here")) as store:
        await fill(store)
        backend = store.backend
        real = backend.retention.remove

        async def rival() -> None:
            assert await real(StreamId("s0"))

        monkeypatch.setattr(backend.retention, "remove", first(rival, real))
        done = await apply_retention(store, Retention(max_sessions=1))

        assert (len(done.plan.expiring), done.sessions) == (2, 1)
        assert [info.id for info in await store.recent()] == ["s2"]


async def test_statistics_omit_sessions_removed_during_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(address("jsonl", tmp_path / "here")) as store:
        await fill(store)

        async def rival() -> None:
            await remove(store, "s1")

        giving = as_sealing(store.backend)
        monkeypatch.setattr(
            giving.maintenance, "read_segment", first(rival, giving.maintenance.read_segment)
        )
        (found,) = (await figures(store)).namespaces
        assert found.entries == 6


@pytest.mark.parametrize("into", KINDS)
async def test_copy_without_new_entries_queries_each_store_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, into: str
) -> None:
    source = open_store(address("sqlite", tmp_path / "from.db"))
    target = open_store(address(into, tmp_path / "to"))
    async with source as giving, target as taking:
        await fill(giving)
        await (await giving.open("s0")).fork() if into == "sqlite" else None
        before = await copy_sessions(giving, taking)
        asked: list[str] = []

        def counted(name: str, real: Any) -> Any:
            async def call(*arguments: Any, **named: Any) -> Any:
                asked.append(name)
                return await real(*arguments, **named)

            return call

        for backend in (giving.backend, taking.backend):
            for owner, names in (
                (backend, ("state", "entries", "blob")),
                (backend.maintenance, ("segment_states", "read_segment", "receive")),
            ):
                for name in names:
                    monkeypatch.setattr(owner, name, counted(name, getattr(owner, name)))
        again = await copy_sessions(giving, taking)

    assert before.added_entries > 0
    assert {each.outcome for each in again.streams} == {"present"}
    assert len(again.streams) == len(before.streams)
    assert asked == ["segment_states", "segment_states"]
