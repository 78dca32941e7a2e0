"""Sessions that pi's own session manager made at random: the same context, the same bytes."""

from __future__ import annotations

from pathlib import Path

import perdure
from perdure.interop.exporting import export_session
from perdure.interop.importing import import_source
from tests.acceptance.pi.contexts import require_same
from tests.fakes.real_pi import RealPi

SESSIONS = 200
STEPS = 28


async def test_random_session_of_pi_keeps_its_context_and_bytes(pi: RealPi, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    paths = [pi.make(folder, "/harbour", seed, STEPS) for seed in range(SESSIONS)]
    async with (
        perdure.open(f"sqlite:///{tmp_path}/store.db", durability="normal") as store,
        perdure.open(f"jsonl:///{folder}?dialect=pi", durability="normal") as files,
    ):
        for seed, path in enumerate(paths):
            before = path.read_bytes()
            seen = pi.look(path)
            report = await import_source(
                store.backend, path, clock=store.outside.clock, random=store.outside.random
            )
            imported = await store.open(report.session)
            for session in (imported, await files.open(seen["id"])):
                await require_same(session, seen, f"seed {seed}")
            exported = await export_session(store.backend, imported.id, "pi")
            assert exported.content == before, f"seed {seed}"
            assert path.read_bytes() == before, f"seed {seed}"
