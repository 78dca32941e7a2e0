"""Sessions that pi's own session manager made at random: the same context, the same bytes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import user
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.interop.exports import export_session
from perdure.interop.imports import import_source
from perdure.interop.reports import ImportReport
from perdure.session.ids import EntryId
from tests.acceptance.pi.comparing import require_same, require_same_context
from tests.acceptance.pi.moves import move
from tests.fakes.real_pi import RealPi
from tests.fakes.sources import pi_file

SESSIONS = 200
STEPS = 28
EXPORTS = 20
MOVES = 6


@pytest.mark.all_only
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
            own = await store.open((await imported(store, path)).session)
            for session in (own, await files.open(seen["id"])):
                await require_same(session, seen, f"seed {seed}")
            exported = await export_session(store.backend, own.id, "pi")
            assert exported.content == before, f"seed {seed}"
            assert path.read_bytes() == before, f"seed {seed}"


async def test_import_of_a_grown_export_adds_only_its_new_entries(
    pi: RealPi, tmp_path: Path
) -> None:
    """pi continues the file that perdure exported; the next import has no warning."""
    path = tmp_path / "export.jsonl"
    async with perdure.open(f"sqlite:///{tmp_path}/store.db", durability="normal") as store:
        for seed in range(EXPORTS):
            what, chance = f"seed {seed}", random.Random(seed)
            made = pi.make(tmp_path / "sessions", "/harbour", seed, STEPS)
            session = await store.open((await imported(store, made)).session)
            for _ in range(MOVES):
                await move(session, chance)
            await session.append(user("the end of what perdure adds"))
            exported = await export_session(store.backend, session.id, "pi")
            path.write_bytes(exported.content)
            assert exported.content.startswith(made.read_bytes()), what
            await require_same_context(session, pi.look(path), f"{what}, exported")
            pi.ask("extend", path=path, seed=1000 + seed, steps=MOVES)
            assert path.read_bytes().startswith(exported.content), what
            lines = path.read_bytes().count(b"\n") - exported.content.count(b"\n")
            report = await imported(store, path)
            assert (report.session, report.entries, report.warnings) == (session.id, lines, ()), (
                what
            )
            seen = pi.look(path)
            session = await store.open(session.id)
            if session.leaf != (leaf := await leaf_of(session, seen)):
                await session.branch(leaf)  # perdure's own leaf is never moved by an import
            await require_same_context(session, seen, f"{what}, imported again")
            report = await imported(store, path)
            assert (report.session, report.entries, report.warnings) == (session.id, 0, ()), what


@pytest.mark.parametrize("name", ["v1.jsonl", "v2.jsonl"])
async def test_import_of_a_file_that_pi_migrated_adds_only_its_new_entries(
    pi: RealPi, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_bytes(pi_file(name))
    async with perdure.open("memory:") as store:
        first = await imported(store, path)
        pi.look(path)  # pi writes a file of an older version anew when it opens it
        assert path.read_bytes() != pi_file(name)
        again = await imported(store, path)
        assert (again.session, again.entries, again.warnings) == (first.session, 0, ())
        pi.ask("say", path=path, texts=["one", "two"])
        grown = await imported(store, path)
        assert (grown.session, grown.messages, grown.warnings) == (first.session, 2, ())
        await require_same_context(await store.open(first.session), pi.look(path), name)


async def leaf_of(session: Session, seen: dict[str, Any]) -> EntryId:
    """Return the entry of the conversation at which pi continues."""
    records = {record["id"]: record for record in seen["entries"]}
    record = records[seen["leaf"]]
    while record["type"] in ("label", "session_info"):
        record = records[record["parent"]]
    return await session.find(record["id"])


async def imported(store: Store, path: Path) -> ImportReport:
    clock, chance = store.outside.clock, store.outside.random
    return await import_source(store.backend, path, clock=clock, random=chance)
