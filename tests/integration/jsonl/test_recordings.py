"""A recorded session reads the same in place as after an import."""

from __future__ import annotations

import shutil
from pathlib import Path

from perdure.interop.imports import import_source
from perdure.session.messages import ToolResultPart
from perdure.stores.in_memory.store import MemoryStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.session_files import context_of
from tests.integration.jsonl.conftest import opened


async def test_recorded_pi_session_has_same_context_as_import(
    tmp_path: Path, recordings: Path
) -> None:
    source = recordings / "pi" / "large-session.jsonl"
    shutil.copyfile(source, tmp_path / source.name)
    imported = MemoryStore(clock=ManualClock(), random=SeededRandom())
    report = await import_source(imported, source, clock=ManualClock(), random=SeededRandom())
    assert report.session is not None

    async with opened(tmp_path, "pi") as store:
        (info,) = await store.sessions()
        ours, theirs = await context_of(store, info.id), await context_of(imported, report.session)

        assert info.id == report.session
        assert ours == theirs
        assert len(ours) > 100
        messages = [entry.message for entry in await store.tree(info.id)]
        results = [p for m in messages if m for p in m.parts if isinstance(p, ToolResultPart)]
        assert len(results) > 100
        assert (await store.maintenance.verify()).problems == ()
    assert (tmp_path / source.name).read_bytes() == source.read_bytes()
