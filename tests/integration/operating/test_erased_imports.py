"""An erased session stays erased when its file is imported again."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure.client.store import Store
from perdure.errors import Erased, SessionNotFound
from perdure.interop.exports import export_session
from perdure.interop.imports import import_source
from perdure.interop.reports import ImportReport
from tests.fakes.sources import PI, claude_file, pi_file


async def imported(store: Store, content: bytes, *, again: bool = False) -> ImportReport:
    clock, random = store.outside.clock, store.outside.random
    return await import_source(store.backend, content, clock=clock, random=random, again=again)


@pytest.mark.parametrize("place", ["memory:", "sqlite:///{}/store.db", "jsonl:///{}/sessions"])
@pytest.mark.parametrize("format", ["pi", "perdure"])
async def test_erased_session_is_imported_only_with_again_option(
    tmp_path: Path, place: str, format: str
) -> None:
    content = pi_file(PI[-1])
    async with perdure.open("memory:") as other:
        if format == "perdure":
            session = (await imported(other, content)).session
            content = (await export_session(other.backend, session)).content
    async with perdure.open(place.format(tmp_path)) as store:
        first = await imported(store, content)
        assert first.is_new
        assert first.entries > 5
        await store.erase(first.session)
        grown = content if format == "perdure" else content + b"\n"
        for again in (content, grown):
            report = await imported(store, again)
            assert (report.session, report.entries) == (first.session, 0)
            assert report.is_erased
            assert not report.is_new
            assert report.warnings == (f"session {first.session} was erased; nothing was imported",)
        with pytest.raises((Erased, SessionNotFound)):
            await store.open(first.session)
        assert await store.recent(scope="all") == []
        second = await imported(store, content, again=True)
        assert second.session == f"{first.session}.2"
        assert second.entries == first.entries
        assert second.warnings[0].startswith(f"session {first.session} was erased; this")
        # Found again under its new id, whether asked for or not.
        for is_again in (False, True):
            report = await imported(store, content, again=is_again)
            assert (report.session, report.entries) == (second.session, 0)
        await store.erase(second.session)
        assert (await imported(store, content)).is_erased


@pytest.mark.parametrize("place", ["memory:", "sqlite:///{}/store.db"])
@pytest.mark.parametrize("which", [0, -1])
async def test_file_with_erased_entry_is_imported_only_with_again_option(
    tmp_path: Path, place: str, which: int
) -> None:
    content = claude_file("tools.jsonl")
    async with perdure.open(place.format(tmp_path)) as store:
        first = await imported(store, content)
        session = await store.open(first.session)
        messages = [entry for entry in await session.path() if entry.message is not None]
        done = await session.erase_entries([messages[which]])
        assert ("original", first.session) in [(copy.kind, copy.session) for copy in done.copies]
        before = (await session.info()).messages
        for again in (content, content + b"\n"):
            report = await imported(store, again)
            assert (report.session, report.entries) == (first.session, 0)
            assert (report.is_erased, report.is_new) == (True, False)
            told = f"entries of session {first.session} were erased; nothing was imported"
            assert report.warnings[0] == told
        assert (await session.info()).messages == before
        assert len(await store.recent(scope="all")) == 1
        second = await imported(store, content, again=True)
        assert (second.session, second.entries) == (f"{first.session}.2", first.entries)
        assert (await imported(store, content)).session == second.session
