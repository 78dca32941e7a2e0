"""Record folders of imported flows: no file outside gets into a record or is changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.apps.flow.imports import import_folder
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.clock import SystemClock
from perdure.client.flows.flows import Flows
from perdure.errors import ConfigError, FlowRefusal
from perdure.interop.a_society.exports import export_flow
from perdure.interop.a_society.folder import flow_folders, read_folder
from perdure.interop.a_society.imports import import_flow
from perdure.interop.a_society.record import RecordFiles
from perdure.models.scenario import Scenario
from perdure.models.scripted import ScriptedModel
from perdure.session.ids import StreamId
from tests.fakes.a_society import TRIP, TRIP_RECORD, TRIP_WORKFLOW, trip_workspace
from tests.fakes.flow_log import graph

TRIP_ID = StreamId(TRIP)
LINE = graph("owner-intake>curate", "curate>close", **{"owner-intake": "owner", "close": "owner"})


def received(tmp_path: Path, **changes: Any) -> Path:
    """A flow folder with its record beside the state; `changes` are made to its ``flow.json``."""
    folder = trip_workspace(tmp_path / "sent")
    (tmp_path / "sent" / TRIP_RECORD).rename(folder / "record")
    run = json.loads((folder / "flow.json").read_text())
    (folder / "flow.json").write_text(json.dumps({**run, **changes}))
    return folder


def tree(folder: Path) -> dict[str, str]:
    """All files below `folder`, with their content."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def names(folder: Path, pattern: str) -> list[str]:
    """Return the names in `folder` that match `pattern`."""
    return [path.name for path in folder.glob(pattern)]


def linked_record(folder: Path, victim: Path) -> None:
    (folder / "record").rename(folder / "kept")
    (folder / "record").symlink_to(victim)


def linked_files(folder: Path, victim: Path) -> None:
    (folder / "record" / "note.md").symlink_to(victim / "note.md")
    (folder / "record" / "more").symlink_to(victim)


def hidden_files(folder: Path, victim: Path) -> None:
    (folder / "record" / ".env").write_text("private")
    (folder / "record" / ".flow").write_text("another")
    (folder / "record" / "id_rsa").write_text("private")


@pytest.mark.parametrize("prepare", [linked_record, linked_files, hidden_files])
async def test_record_import_reads_only_the_files_of_the_record(
    prepare: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "note.md").write_text("private")
    (victim / "workflow.yaml").write_text(TRIP_WORKFLOW)
    folder = received(tmp_path)
    prepare(folder, victim)
    record = read_folder(folder).record
    assert b"private" not in record.files.values()
    assert set(record.files) <= {"workflow.yaml", "record.yaml", "01-plan.md"}


SECRET = "text-of-another-project"
OUTSIDE: dict[str, dict[str, str]] = {
    "its workspace is a project of this machine": {"workspaceRoot": "{victim}"},
    "its project is a folder of this machine": {"workspaceRoot": "{root}"},
    "its project is named by an absolute path": {"projectNamespace": "{victim}"},
    "its project leads up": {"workspaceRoot": "{root}/sent", "projectNamespace": "../victim"},
    "its record is in a workspace above it": {
        "workspaceRoot": "{root}",
        "recordFolderPath": "{victim}/record",
    },
    "its record is below the root of all": {
        "workspaceRoot": "/",
        "recordFolderPath": "{victim}/record",
    },
    "its record is beside the folder of its state": {
        "recordFolderPath": "/home/ana/trips/../victim/record"
    },
    "its record is at a path of its real workspace": {
        "recordFolderPath": "/home/ana/trips/private"
    },
}


def holds_secret(folder: Path) -> bool:
    """Return True if the store in `folder` has the text of another project."""
    return any(SECRET.encode() in path.read_bytes() for path in folder.glob("store.db*"))


@pytest.mark.parametrize("changes", OUTSIDE.values(), ids=OUTSIDE.keys())
@pytest.mark.parametrize("has_record", [True, False])
async def test_import_reads_nothing_outside_its_folder(
    has_record: bool, changes: dict[str, str], tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    for place in (victim / "record", tmp_path / "sent" / "private"):
        place.mkdir(parents=True)
        (place / "workflow.yaml").write_text(TRIP_WORKFLOW.replace("Plan the trip.", SECRET))
        (place / "diary.md").write_text(SECRET)
    (victim / "a-docs" / "workflow").mkdir(parents=True)
    below = TRIP_WORKFLOW.replace("work: [Curate the plan.]", f"guidance: [{SECRET}]")
    (victim / "a-docs" / "workflow" / "main.yaml").write_text(below)
    named = {name: value.format(root=tmp_path, victim=victim) for name, value in changes.items()}
    folder = received(tmp_path, **{"projectNamespace": "victim", **named})
    if not has_record:
        (folder / "record").rename(tmp_path / "away")
    async with perdure.open(f"sqlite:///{tmp_path}/store.db") as store:
        outcome = await import_folder(store, folder)
        assert (outcome.error is None) == has_record
        assert SECRET not in str(outcome.error)
        if has_record:
            files = (await export_flow(store.backend, TRIP_ID)).files
            assert files["record/01-plan.md"] == b"By train.\n"
    assert not holds_secret(tmp_path)


async def test_link_in_place_of_a_state_folder_is_not_searched_for_flows(tmp_path: Path) -> None:
    folder, given = received(tmp_path), tmp_path / "given"
    given.mkdir()
    (given / ".a-society").symlink_to(folder.parents[2])
    assert flow_folders(given) == ()
    assert flow_folders(tmp_path / "sent") == (folder,)


async def test_project_outside_of_workspace_is_refused_when_flow_runs(tmp_path: Path) -> None:
    victim, work = tmp_path / "victim", tmp_path / "work"
    main = victim / "a-docs" / "roles" / "curator" / "main.md"
    main.parent.mkdir(parents=True)
    main.write_text(SECRET)
    work.mkdir()
    folder = received(tmp_path, projectNamespace="../victim")
    async with (
        perdure.open(f"sqlite:///{tmp_path}/store.db") as store,
        Flows(Runtime(store)) as flows,
    ):
        assert (await import_folder(store, folder)).error is None
        flow = await flows.open(TRIP, workspace=work)
        with pytest.raises(ConfigError, match="not a folder in the workspace"):
            await flow.run()


@pytest.mark.parametrize(
    "place",
    ["/home/ana/trips/src", "/home/ana/trips/../victim", "/home/ana/trips", "/etc", "../victim"],
)
async def test_imported_record_is_written_below_perdure_records_only(
    place: str, tmp_path: Path
) -> None:
    work, victim = tmp_path / "work", tmp_path / "victim"
    for folder in (work / "src", victim):
        folder.mkdir(parents=True)
        (folder / "mine.txt").write_text("mine")
    folder = received(tmp_path, recordFolderPath=place)
    async with (
        perdure.open(f"sqlite:///{tmp_path}/store.db") as store,
        Flows(Runtime(store)) as flows,
    ):
        assert (await import_folder(store, folder)).error is None
        await flows.open(TRIP, workspace=work)
    assert tree(victim) == {"mine.txt": "mine"}
    assert {name for name in tree(work) if not name.startswith(f".perdure/records/{TRIP}/")} == {
        "src/mine.txt"
    }


@pytest.mark.parametrize("name", ["../../../../evil", "/tmp/perdure-evil", ".git/hooks/pre-commit"])
async def test_hostile_path_in_imported_record_is_not_written(name: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    read = read_folder(received(tmp_path))
    files = RecordFiles({"workflow.yaml": TRIP_WORKFLOW.encode(), name: b"evil"})
    hostile = type(read)(read.run, read.roles, read.record_folder, files)
    async with (
        perdure.open(f"sqlite:///{tmp_path}/store.db") as store,
        Flows(Runtime(store)) as flows,
    ):
        await import_flow(store.backend, hostile, LINE, at=5)
        with pytest.raises(ConfigError, match="cannot be written"):
            await flows.open(TRIP, workspace=work)
        assert not (await flows.state(TRIP)).is_place_in_force
    assert "evil" not in tree(work).values()
    assert not names(tmp_path, "*evil*")


@pytest.mark.parametrize("id", ["../../x", "a/b", "", "."])
async def test_flow_id_that_is_a_path_is_refused(id: str, tmp_path: Path) -> None:
    folder = received(tmp_path, flowId=id)
    async with perdure.open(f"sqlite:///{tmp_path}/store.db") as store:
        outcome = await import_folder(store, folder)
        assert outcome.error is not None
        assert "flowId" in str(outcome.error)


async def test_export_of_an_imported_flow_ignores_the_record_folder_in_its_log(
    tmp_path: Path,
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "diary.md").write_text("private")
    folder = received(tmp_path, workspaceRoot=str(tmp_path), recordFolderPath=str(victim))
    async with perdure.open(f"sqlite:///{tmp_path}/store.db") as store:
        assert (await import_folder(store, folder)).error is None
        files = (await export_flow(store.backend, TRIP_ID)).files
    assert b"private" not in files.values()
    assert files["record/01-plan.md"] == b"By train.\n"


@pytest.mark.parametrize("place", ["src", ".", "docs", "docs/deep", "new"])
@pytest.mark.parametrize("is_looking_back", [True, False])
async def test_imported_flow_does_not_write_to_the_folder_named_in_its_file(
    is_looking_back: bool, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user is in the folder that the flow names as its workspace."""
    work = tmp_path / "work"
    for name in ("src/mine.txt", "docs/workflow.yaml", "docs/deep/01-plan.md"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("mine")
    before = tree(work)
    changes: dict[str, Any] = {"workspaceRoot": str(work), "recordFolderPath": str(work / place)}
    if is_looking_back:
        phase = {"status": "running", "mode": "graph-based"}
        changes |= {"status": "running", "improvementPhase": phase, "awaitingHumanNodes": {}}
    folder = received(tmp_path, **changes)
    monkeypatch.chdir(work)
    scenario = Scenario(name="test", sequence=())
    models = ScriptedModel(scenario, clock=SystemClock())
    agents = [Agent(role, model="scripted:test", tools=[]) for role in ("owner", "curator")]
    async with (
        perdure.open(f"sqlite:///{tmp_path}/store.db") as store,
        Runtime(store, agents, models=models) as runtime,
        Flows(runtime) as flows,
    ):
        outcome = await import_folder(store, folder)
        assert outcome.error is None
        heads = [(await store.backend.state(id)).head for id in SESSIONS]
        for act in (
            lambda: flows.open(TRIP),
            lambda: flows.look(TRIP_ID).run(),
            lambda: flows.look(TRIP_ID).compact("owner"),
        ):
            with pytest.raises(FlowRefusal, match=r"not in force; name .*workspace=DIR"):
                await act()
        assert tree(work) == before
        flow = await flows.open(TRIP, workspace=work)
        assert tree(work).items() >= before.items()
        written = set(tree(work)) - set(before)
        assert all(name.startswith(f".perdure/records/{TRIP}/") for name in written), written
        assert [(await store.backend.state(id)).head for id in SESSIONS] == heads
        await flow.run()
        assert tree(work).items() >= before.items()
        written = set(tree(work)) - set(before)
        assert all(name.startswith(f".perdure/records/{TRIP}/") for name in written), written


SESSIONS = (StreamId(f"{TRIP}__owner"), StreamId(f"{TRIP}__curator_2"))


async def test_record_folder_of_an_imported_flow_cannot_be_deleted(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / "src" / "workflow.yaml").write_text("mine")
    folder = received(tmp_path, workspaceRoot=str(work), recordFolderPath=str(work / "src"))
    async with (
        perdure.open(f"sqlite:///{tmp_path}/store.db") as store,
        Flows(Runtime(store)) as flows,
    ):
        assert (await import_folder(store, folder)).error is None
        with pytest.raises(FlowRefusal, match="not in force"):
            await flows.delete(TRIP, record="remove")
        gone = await flows.delete(TRIP)
    assert gone.is_record_left
    assert tree(work) == {"src/workflow.yaml": "mine"}
