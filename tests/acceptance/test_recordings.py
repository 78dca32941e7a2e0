"""Sessions recorded by other agents, imported, read, exported and imported again.

The recordings belong to other people and are not in this repository. If the recordings are missing,
the tests of this module are skipped, and the summary of the test run counts them.
`tests/unit/interop` covers every format with fixtures of our own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest

from perdure.codecs.lines import lines_of
from perdure.context.build import build_context
from perdure.interop.exports import export_session
from perdure.interop.imports import import_source
from perdure.interop.reports import ImportReport
from perdure.session.codec import body_of, new_tree
from perdure.session.ids import EntryId, StreamId
from perdure.session.messages import ToolCallPart, ToolResultPart, user
from perdure.session.notes import ImportSource, source_of
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.places import Place
from tests.fakes.provider_rules import all_problems

Folder = Literal["pi", "claude-code"]


@pytest.fixture(params=["memory", pytest.param("sqlite", marks=pytest.mark.all_only)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    """A store on each backend."""
    place = Place(request.param, tmp_path)
    yield (await place.open()).backend
    await place.close()


def files(recordings: Path, folder: Folder) -> list[Path]:
    """The recordings of one program; there is at least one."""
    found = sorted((recordings / folder).glob("*.jsonl"))
    assert found, f"no recording of {folder}"
    return found


async def imported(store: SessionStore, source: Path | bytes) -> ImportReport:
    return await import_source(store, source, clock=ManualClock(), random=SeededRandom(1))


async def context_problems(
    store: SessionStore, stream: StreamId, leaf: EntryId | None
) -> list[str]:
    context = build_context(await store.context_window(stream, leaf))
    return all_problems([each.message for each in context.messages])


@pytest.mark.parametrize("folder", ["pi", "claude-code"])
async def test_every_imported_line_has_an_entry_or_is_recorded_as_malformed(
    recordings: Path, store: SessionStore, folder: Folder
) -> None:
    for path in files(recordings, folder):
        stream = (await imported(store, path)).session
        content = path.read_bytes()
        entries = await store.entries(stream)
        [part] = [entry for entry in entries if entry.kind == ImportSource.kind]
        kept = body_of(part)
        assert isinstance(kept, ImportSource)
        assert await store.blob(kept.blob) == content
        sources = [source_of(entry.body) for entry in entries]
        told = {source.offset for source in sources if source is not None}
        for line in lines_of(content):
            is_header = b'"type":"session"' in line.content
            is_told = line.offset in told or line.number in kept.malformed
            assert is_told or line.is_blank or is_header, f"{path.name}:{line.number}"


@pytest.mark.parametrize("leaves", [20, pytest.param(60, marks=pytest.mark.all_only)])
@pytest.mark.parametrize("folder", ["pi", "claude-code"])
async def test_context_at_every_entry_is_valid_for_every_provider(
    recordings: Path, store: SessionStore, folder: Folder, leaves: int
) -> None:
    for path in files(recordings, folder):
        stream = (await imported(store, path)).session
        tree = await store.tree(stream)
        step = max(1, len(tree) // leaves)
        for leaf in [*tree[::step], tree[-1]]:
            assert await context_problems(store, stream, leaf.id) == [], f"{path.name} {leaf.id}"


async def test_every_tool_result_of_a_recording_is_in_the_context(
    recordings: Path, store: SessionStore
) -> None:
    """In a transcript with parallel calls only one result is on the chain of parents."""
    for path in files(recordings, "claude-code"):
        stream = (await imported(store, path)).session
        state = await store.state(stream)
        on_branch = await store.branch(stream, state.leaf)
        everywhere = await store.tree(stream)
        assert len(on_branch) == len(everywhere), path.name
        parts = [part for e in on_branch if e.message is not None for part in e.message.parts]
        calls = [part.id for part in parts if isinstance(part, ToolCallPart)]
        results = [part.call_id for part in parts if isinstance(part, ToolResultPart)]
        unanswered = set(calls) - set(results)
        # Written by hand: one result is misspelt, and the last call is another session's.
        expected = {"tool_edge_002", "toolu_todowrite_002", "toolu_todowrite_003"}
        assert unanswered <= expected, path.name


@pytest.mark.parametrize("folder", ["pi", "claude-code"])
async def test_second_import_of_a_recording_adds_nothing(
    recordings: Path, store: SessionStore, folder: Folder
) -> None:
    for path in files(recordings, folder):
        first = await imported(store, path)
        before = await store.state(first.session)
        again = await imported(store, path)
        assert (again.session, again.entries, again.is_new) == (first.session, 0, False)
        assert await store.state(first.session) == before
    assert (await store.maintenance.verify()).is_ok


async def test_unchanged_pi_session_is_exported_with_identical_bytes(
    recordings: Path, store: SessionStore
) -> None:
    for path in files(recordings, "pi"):
        stream = (await imported(store, path)).session
        assert (await export_session(store, stream, "pi")).content == path.read_bytes()


@pytest.mark.parametrize("folder", ["pi", "claude-code"])
async def test_session_moves_to_another_store_and_back_unchanged(
    recordings: Path, store: SessionStore, folder: Folder
) -> None:
    other = MemoryStore(clock=ManualClock(), random=SeededRandom(2))
    for path in files(recordings, folder):
        stream = (await imported(store, path)).session
        exported = await export_session(store, stream)
        report = await imported(other, exported.content)
        assert report.session == stream
        assert await other.entries(stream) == await store.entries(stream)
        assert (await export_session(other, stream)).content == exported.content


async def test_pi_session_is_continued_and_exported_back(
    recordings: Path, store: SessionStore
) -> None:
    for path in files(recordings, "pi"):
        stream = (await imported(store, path)).session
        write = Write(stream=stream, entries=(new_tree(user("And now?")),))
        await store.commit(Commit(writes=(write,), at=START_MS))
        content = (await export_session(store, stream, "pi")).content
        assert (await imported(store, content)).entries == 0
        other = MemoryStore(clock=ManualClock(), random=SeededRandom(2))
        await imported(other, content)
        theirs = await other.branch(stream, (await other.state(stream)).leaf)
        ours = await store.branch(stream, (await store.state(stream)).leaf)
        assert [entry.message for entry in theirs] == [entry.message for entry in ours]


async def test_growing_recording_is_imported_in_steps_without_differences(
    recordings: Path, store: SessionStore
) -> None:
    for path in [*files(recordings, "pi"), *files(recordings, "claude-code")]:
        content = path.read_bytes()
        whole = MemoryStore(clock=ManualClock(), random=SeededRandom(2))
        stream = (await imported(whole, content)).session
        for share in (3, 2, 1):
            await imported(store, content[: len(content) // share])
        ours = await store.branch(stream, (await store.state(stream)).leaf)
        theirs = await whole.branch(stream, (await whole.state(stream)).leaf)
        assert [e.message for e in ours if e.message] == [e.message for e in theirs if e.message]
