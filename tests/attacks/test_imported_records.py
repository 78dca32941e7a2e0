"""Record folders of imported flows: nothing outside is read into one, or written from one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import perdure
from perdure.apps.flow.importing import import_folder
from perdure.client.agents.runtime import Runtime
from perdure.client.flows.flows import Flows
from perdure.errors import ConfigError
from perdure.interop.a_society.exporting import export_flow
from perdure.interop.a_society.folder import read_folder
from perdure.interop.a_society.importing import import_flow
from perdure.interop.a_society.record import RecordFiles
from perdure.session.ids import StreamId
from tests.fakes.a_society import TRIP, TRIP_RECORD, TRIP_WORKFLOW, trip_workspace
from tests.fakes.flow_log import graph

TRIP_ID = StreamId(TRIP)
LINE = graph("owner-intake>curate", "curate>close", **{"owner-intake": "owner", "close": "owner"})


def received(tmp_path: Path, **changes: str) -> Path:
    """A flow folder with its record beside the state; `changes` are of its ``flow.json``."""
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
    """The names of what is in `folder` that match `pattern`."""
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
async def test_import_reads_only_own_files_of_record(
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


async def test_export_of_received_flow_does_not_read_the_folder_it_names(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "diary.md").write_text("private")
    folder = received(tmp_path, workspaceRoot=str(tmp_path), recordFolderPath=str(victim))
    async with perdure.open(f"sqlite:///{tmp_path}/store.db") as store:
        assert (await import_folder(store, folder)).error is None
        files = (await export_flow(store.backend, TRIP_ID)).files
    assert b"private" not in files.values()
    assert files["record/01-plan.md"] == b"By train.\n"
