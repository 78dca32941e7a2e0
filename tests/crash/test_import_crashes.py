"""``kill -9`` during an import: the session is marked, and the same import completes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.interop.bundle import bundle_of
from perdure.interop.exports import export_session
from perdure.interop.formats import native
from perdure.interop.formats.logs import LogFile
from perdure.interop.formats.native import Bundle
from perdure.interop.formats.sources.content import Held
from perdure.interop.reports import FormatName
from perdure.interop.restore import LEASE_MS
from perdure.session.notes import ImportSource
from perdure.stores.protocol import EMPTY
from perdure.stores.session_store import SessionStore
from tests.crash.children import importer
from tests.crash.children.importer import PIECES, import_file, opened
from tests.fakes.clock import START_MS
from tests.fakes.forked import preload, run_forked
from tests.fakes.samples import ALL_ONLY
from tests.fakes.sources import claude_file, empty_store, pi_file
from tests.fakes.streams import say
from tests.unit.interop.test_append_items import contents, parts
from tests.unit.interop.test_restore import S, with_turn

preload(importer.__name__)

STEPS = [7, pytest.param(3, marks=ALL_ONLY)]  # a commit is more operations: none is passed over
FILES: dict[FormatName, bytes] = {
    "pi": pi_file("v3.jsonl"),
    "claude-code": claude_file("tools.jsonl"),
}


def kill_at_each(format: str, folder: Path, step: int) -> None:
    assert run_forked(importer.kill_at_each, format, folder, step).code == 0


async def stage_of(store: SessionStore) -> tuple[str, int]:
    """Return the progress of the import: the session's status, and the number of stored pieces."""
    assert (await store.maintenance.verify()).is_ok
    found = await store.sessions(scope="all")
    if not found:
        return "nothing", 0
    [session] = found
    pieces = parts(await store.notes(session.id, (ImportSource.kind,)))
    assert (session.status == "importing") == pieces[-1].has_more
    return session.status, len(pieces)


@pytest.mark.all_only
@pytest.mark.timeout(400)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("format", ["pi", pytest.param("claude-code", marks=ALL_ONLY)])
async def test_killed_import_is_marked_incomplete_and_then_completed(
    format: FormatName, tmp_path: Path, step: int
) -> None:
    file, folder = tmp_path / "work" / "file", tmp_path / "work"
    folder.mkdir()
    file.write_bytes(FILES[format])
    expected_store = await opened(folder)
    report = await import_file(expected_store, file, format)
    expected = contents(await expected_store.entries(report.session))
    pieces = parts(await expected_store.entries(report.session))
    await expected_store.close()

    kill_at_each(format, folder, step)
    stages: set[tuple[str, int]] = set()
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        store = await opened(place)
        try:
            stages.add(await stage_of(store))
            again = await import_file(store, file, format)
            assert contents(await store.entries(report.session)) == expected
            assert await stage_of(store) == ("active", len(pieces))
            assert (await import_file(store, file, format)).entries == 0
            if format == "pi":
                assert (await export_session(store, again.session, "pi")).content == FILES[format]
        finally:
            await store.close()
    # Killed between every two commits.
    assert stages >= {("nothing", 0)} | {("importing", n) for n in range(1, len(pieces))}


async def a_session_of_our_own() -> tuple[bytes, Bundle]:
    store = empty_store()
    await with_turn(store)
    for number in range(6):
        await say(store, f"{number} and on " * 40)
    bundle = await bundle_of(store, S)
    return native.write_bundle(bundle), bundle


@pytest.mark.timeout(400)
@pytest.mark.parametrize("step", STEPS)
async def test_killed_import_of_a_perdure_file_is_completed_by_the_next_import(
    tmp_path: Path, step: int
) -> None:
    file, folder = tmp_path / "work" / "file", tmp_path / "work"
    folder.mkdir()
    content, bundle = await a_session_of_our_own()
    file.write_bytes(content)
    ends = {
        each.entries[-1].seq for each in LogFile(Held(content)).stretches(0, S, PIECES.piece_bytes)
    }
    assert len(ends) > 2

    kill_at_each("perdure", folder, step)
    heads: set[int | None] = set()
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        store = await opened(place, START_MS + 2 * LEASE_MS)  # the dead one's lease ran out
        try:
            heads.add(await head_of(store, bundle))
            await import_file(store, file, "perdure")
            assert await bundle_of(store, S) == bundle
            assert (await export_session(store, S)).content == content
            assert (await store.maintenance.verify()).is_ok
            assert (await import_file(store, file, "perdure")).entries == 0
        finally:
            await store.close()
    assert heads == {None, EMPTY, *ends}


async def head_of(store: SessionStore, bundle: Bundle) -> int | None:
    """Check that the stored entries are the first entries of `bundle`; return the newest seq."""
    assert (await store.maintenance.verify()).is_ok
    if not await store.sessions(scope="all"):
        return None
    entries = await store.entries(S)
    assert tuple(entries) == bundle.entries[: len(entries)]
    return len(entries) - 1
