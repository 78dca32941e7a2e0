"""Import of an A-Society flow: a re-export returns the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.engine.flows.runner import FlowRunner
from perdure.errors import SessionExists
from perdure.interop.a_society.exports import export_flow
from perdure.interop.a_society.folder import read_folder
from perdure.interop.a_society.imports import import_flow
from perdure.session.codec import body_of
from perdure.session.flows.fold import flow_state
from perdure.session.messages import MESSAGE
from perdure.stores.in_memory.store import MemoryStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.flow_log import FLOW, graph
from tests.fakes.scripted_roles import ScriptedRoles, begun, ground, hand, signal

LINE = graph("owner-intake>build", "build>end", **{"owner-intake": "owner", "end": "owner"})


def memory() -> MemoryStore:
    return MemoryStore(clock=ManualClock(), random=SeededRandom(1))


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


async def ran(tmp_path: Path) -> dict[str, bytes]:
    """Return the files of a flow that waits for a person."""
    clock, store = ManualClock(), memory()
    script = {
        "owner": [hand(tmp_path, "build", name="plan.md")],
        "build": ["Nothing.", signal("prompt-human")],
    }
    place = await begun(store, clock, LINE, tmp_path)
    await FlowRunner(place, ScriptedRoles(store, clock, script), clock, store.changes).run()
    return (await export_flow(store, FLOW)).files


async def test_reexported_import_has_same_bytes(tmp_path: Path) -> None:
    files = await ran(tmp_path)
    store = memory()
    folder = read_folder(written(tmp_path / "out", files))
    assert await import_flow(store, folder, LINE, at=5) == FLOW
    assert (await export_flow(store, FLOW)).files == files


async def test_imported_flow_can_continue_running(tmp_path: Path) -> None:
    files, clock, store = await ran(tmp_path), ManualClock(), memory()
    await import_flow(store, read_folder(written(tmp_path / "out", files)), LINE, at=5)
    state = flow_state((entry, body_of(entry)) for entry in await store.entries(FLOW))
    assert list(state.run.awaiting_human_nodes) == ["build"]
    session = state.sessions["build"]
    said = await store.branch(session, (await store.state(session)).leaf, kind=MESSAGE)
    assert len(said) == 4
    roles = ScriptedRoles(store, clock, {"build": [hand(tmp_path, "end", name="b.md")]})
    flow = ground(store, clock, tmp_path)
    await FlowRunner(flow, roles, clock, store.changes).run()
    assert not roles.told  # no reply yet


async def test_existing_flow_is_not_imported_again(tmp_path: Path) -> None:
    folder = read_folder(written(tmp_path / "out", await ran(tmp_path)))
    store = memory()
    await import_flow(store, folder, LINE, at=5)
    with pytest.raises(SessionExists):
        await import_flow(store, folder, LINE, at=6)
