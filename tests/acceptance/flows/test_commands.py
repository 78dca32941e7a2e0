"""``perdure flow`` as a process: create a project, read, decide, export."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.stores.maintenance.file_lock import alone_in
from tests.acceptance.cli.conftest import PATIENCE_S, PERDURE, Ended, World
from tests.fakes.a_society import TRIP, trip_workspace

FIRST = ("workflow.yaml", "--scenario", "scenario.yaml", "--record", "record", "--id", "f")
ALLOWED = (*FIRST, "--consent", "partial-access")


def flow(world: World, *words: str, code: int = 0) -> Ended:
    ended = world.run("flow", *words)
    assert ended.code == code, (words, ended.out, ended.err)
    return ended


@pytest.fixture
def project(world: World) -> World:
    """A project that `flow init` created."""
    flow(world, "init")
    return world


def test_scaffold_is_valid_and_runs_to_its_end(project: World) -> None:
    told = flow(project, "validate", "workflow.yaml", "--json").json
    assert told == {"ok": True, "faults": [], "warnings": []}
    told = flow(project, "run", *ALLOWED, "--json", code=1).json
    assert told["status"] == "awaiting_improvement_choice"
    flow(project, "improve", "f", "graph-based")
    told = flow(project, "resume", "f", "--json", code=1).json
    assert told["status"] == "awaiting_feedback_consent"
    flow(project, "feedback", "f", "deny")
    assert flow(project, "resume", "f", "--json").json["status"] == "completed"


def test_scaffold_in_another_folder_prints_the_change_of_folder(world: World) -> None:
    printed = flow(world, "init", "new site").out
    assert printed.splitlines()[-3] == "cd 'new site'"
    assert "cd " not in flow(world, "init").out


def test_scaffold_never_replaces_a_file(project: World) -> None:
    (project.folder / "workflow.yaml").write_text("mine")
    made = flow(project, "init", "--takeover", "--json").json
    assert not any(each["is_new"] for each in made["files"])
    assert (project.folder / "workflow.yaml").read_text() == "mine"
    context = flow(project, "show", made["flow"], "--json").json["feedbackContext"]
    assert context == {"kind": "initialization", "initializationMode": "takeover"}


def test_all_errors_of_workflow_are_reported_with_lines(world: World) -> None:
    (world.folder / "bad.yaml").write_text(
        "workflow:\n  name: x\n  nodez: 1\n"
        "  nodes:\n    - {id: a, role: owner}\n  edges: [{to: b}]\n"
    )
    told = flow(world, "validate", "bad.yaml", code=2).out
    assert "bad.yaml: 2 errors" in told
    assert "line 3: 'nodez' is unknown here" in told
    assert "line 6: 'from' is missing" in told


def test_missing_required_reading_is_an_error_with_file_and_line(project: World) -> None:
    (project.folder / "a-docs" / "conventions.md").unlink()
    (fault,) = flow(project, "validate", "workflow.yaml", "--json", code=2).json["faults"][:1]
    assert "a-docs/index.yaml, line 3" in fault


def test_graph_is_drawn_in_every_format(project: World) -> None:
    assert "─▶ build" in flow(project, "graph", "workflow.yaml").out
    assert flow(project, "graph", "workflow.yaml", "--format", "mermaid").out.startswith(
        "flowchart"
    )
    flow(project, "run", *ALLOWED, code=1)
    assert 'fillcolor="#b7e4c7"' in flow(project, "graph", "f", "--format", "dot").out


def test_role_asks_before_a_write_and_continues_after_permission(project: World) -> None:
    began = flow(project, "run", *FIRST, "--json", code=1).json
    (asked,) = began["waiting"]
    assert asked["topic"] == "consent"
    assert asked["answer"].startswith("perdure inbox answer ")
    assert flow(project, "show", "f").out.count("awaiting human") == 1
    flow(project, "consent", "f", "partial-access")
    resumed = flow(project, "resume", "f", "--scenario", "scenario.yaml", "--json", code=1).json
    assert resumed["status"] == "awaiting_improvement_choice"


def test_answer_to_a_flow_that_waits_for_nothing_is_rejected(project: World) -> None:
    flow(project, "run", *ALLOWED, code=1)
    for words in (
        ("reply", "f", "hello"),
        ("approve", "f"),
        ("stop", "f", "build"),
        ("feedback", "f", "grant"),
        ("configure", "f", "nobody", "-m", "scripted:echo"),
    ):
        assert flow(project, *words, "--json", code=4).error["code"] == "flow_refusal"
    assert flow(project, "show", "g", "--json", code=3).error["code"] == "session_not_found"
    told = flow(project, "show", "f", "--role", "ghost", code=3).err
    assert "'ghost' is none of its roles; it has: owner, developer, reviewer" in told
    flow(project, "reply", "f", " ", code=2)
    flow(project, "consent", "f", code=2)


def test_session_command_on_a_flow_suggests_the_flow_command(project: World) -> None:
    flow(project, "run", *FIRST, code=1)
    before = flow(project, "show", "f", "--json").json
    sessions = project.ok("sessions", "list", "--all", "--json").out
    for words in (("fork", "f"), ("label", "f", "0", "x"), ("rename", "f", "x")):
        ended = project.run("sessions", *words)
        assert (ended.code, ended.out) == (4, ""), words
        assert "`perdure flow show f` shows the flow and its roles" in ended.err
    assert flow(project, "show", "f", "--json").json == before
    assert project.ok("sessions", "list", "--all", "--json").out == sessions


def test_compact_command_with_an_unknown_role_lists_known_roles(project: World) -> None:
    flow(project, "run", *FIRST, code=1)
    told = flow(project, "compact", "f", "nobody", "-m", "scripted:echo", code=4).err
    assert "it has no role 'nobody'; its roles are: owner, developer, reviewer" in told
    told = flow(project, "compact", "f", "reviewer", "-m", "scripted:echo", code=4).err
    assert "role 'reviewer' has no session yet; there are: owner" in told


def test_exported_flow_is_imported_unchanged(project: World) -> None:
    flow(project, "run", *ALLOWED, code=1)
    flow(project, "export", "f", "-o", "one")
    flow(project, "export", "f", "-o", "one", code=4)
    other = World(project.folder, {"PERDURE_STORE": f"sqlite:///{project.folder / 'other.db'}"})
    assert other.run("import", "one", "--format", "a-society").code == 0
    flow(other, "export", "f", "-o", "two")
    assert files_in(project.folder / "one") == files_in(project.folder / "two")
    flow(other, "improve", "f", "none")
    told = flow(other, "resume", "f", "--scenario", "scenario.yaml", code=4).err
    assert "came with the flow and is not in force; name the folder it works in with" in told
    flow(other, "resume", "f", "--scenario", "scenario.yaml", "--workspace", ".")


def test_deleted_flow_is_imported_again_on_request(project: World) -> None:
    flow(project, "run", *ALLOWED, code=1)
    flow(project, "export", "f", "-o", "one")
    imports = ("import", "one", "--format", "a-society")
    assert "flow 'f' is in this store already" in project.run(*imports).err
    assert project.run(*imports, "--again").code == 4
    flow(project, "delete", "f", "--yes")
    assert "'f' was deleted and its id is reserved" in flow(project, "run", *FIRST, code=4).err
    for _ in range(2):
        told = project.run(*imports)
        assert (told.code, told.out) == (0, "f  nothing new  from one\n")
        assert "flow f was erased; nothing was imported" in told.err
        assert "perdure import --again" in told.err
    assert project.ok(*imports, "--json").json["erased"]
    assert flow(project, "list", "--json").json == []
    assert project.ok(*imports, "--again").out == "f  3 roles  from one\n"
    flow(project, "export", "f", "-o", "two")
    assert files_in(project.folder / "one") == files_in(project.folder / "two")
    flow(project, "improve", "f", "none")
    flow(project, "resume", "f", "--scenario", "scenario.yaml", "--workspace", ".")
    flow(project, "delete", "f", "--yes")
    assert project.ok(*imports).out == "f  nothing new  from one\n"


def test_record_folder_of_a_deleted_flow_can_be_reused(project: World) -> None:
    run = (*FIRST[:3], "--id", "f", "--consent", "full-access")
    flow(project, "run", *run, code=1)
    flow(project, "export", "f", "-o", "one")
    flow(project, "delete", "f", "--yes")
    project.ok("import", "one", "--format", "a-society", "--again")
    flow(project, "consent", "f", "full-access")
    scenario = ("--scenario", "scenario.yaml")
    flow(project, "resume", "f", "--workspace", ".", *scenario, code=1)
    flow(project, "delete", "f", "--yes")
    left = project.folder / ".perdure" / "records" / "f" / "workflow.yaml"
    left.write_text(left.read_text().replace("A change", "Another change"))
    project.ok("import", "one", "--format", "a-society", "--again")
    told = flow(project, "resume", "f", "--workspace", ".", *scenario, code=2).err
    assert f"{left.parent} has another workflow, of an earlier flow; move it away" in told


def test_erased_flow_is_not_imported_again_if_a_session_has_a_fork(project: World) -> None:
    flow(project, "run", *ALLOWED, code=1)
    flow(project, "export", "f", "-o", "one")
    project.ok("sessions", "fork", "f__owner")
    flow(project, "delete", "f", "--yes")
    imports = ("import", "one", "--format", "a-society", "--again")
    told = project.run(*imports)
    assert told.code == 4
    assert "its session 'f__owner' was erased, but a fork was made of it" in told.err
    assert project.ok(*imports, "--store", "sqlite:///other.db").out == "f  3 roles  from one\n"


def test_workspace_option_sets_the_workspace_of_imported_flows(world: World) -> None:
    trip = world.folder / "moved"
    trip_workspace(trip)
    imports = ("import", "moved/.a-society/state", "--format", "a-society")
    told = world.run(*imports)
    assert told.code == 2
    assert "name that with `--workspace DIR`" in told.err
    assert world.run(*imports, "--workspace", "nowhere").code == 3
    assert world.run("import", "moved", "--workspace", "moved").code == 2
    assert "2 roles" in world.ok(*imports, "--workspace", "moved").out
    flow(world, "delete", TRIP, "--yes")
    assert "2 roles" in world.ok("import", "moved", "--format", "a-society", "--again").out


def test_two_flows_are_not_written_into_one_folder_concurrently(project: World) -> None:
    flow(project, "run", *ALLOWED, code=1)
    folder = project.folder / "one"
    folder.mkdir()
    (folder / "export.lock").write_text("of somebody")
    with alone_in(folder):  # as another export has it
        flow(project, "export", "f", "-o", "one", code=4)
        flow(project, "export", "f", "-o", "one", "--force", code=4)
    assert list(files_in(folder)) == ["export.lock"]
    flow(project, "export", "f", "-o", "one")
    assert files_in(folder)["export.lock"] == b"of somebody"


def files_in(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_error_for_a_flow_folder_of_another_format_version_names_the_flow(project: World) -> None:
    flow(project, "run", *ALLOWED, code=1)
    flow(project, "export", "f", "-o", "state/p/f")
    file = project.folder / "state" / "p" / "f" / "flow.json"
    file.write_text(file.read_text().replace('"stateVersion": "11"', '"stateVersion": "5"'))
    ended = project.run("import", "state", "--format", "a-society", "--json")
    assert ended.code == 2
    assert (ended.json["flow"], ended.json["openable"]) == ("f", False)


def test_deleting_a_flow_erases_its_sessions_and_keeps_its_files(project: World) -> None:
    flow(project, "run", *ALLOWED, code=1)
    flow(project, "delete", "f", code=2)
    record = str(project.folder / "record")
    told = flow(project, "delete", "f", "--yes", "--json").json
    assert told == {"flow": "f", "sessions": 3, "record_left": record}
    assert flow(project, "list", "--json").json == []
    assert (project.folder / "record" / "plan.md").exists()


def test_flow_is_deleted_with_its_record_folder_on_request(project: World) -> None:
    flow(project, "run", *ALLOWED, code=1)
    flow(project, "improve", "f", "none")
    told = flow(project, "delete", "f", "--with-record", "--yes").out
    assert told == f"deleted f and 3 sessions\nand its record folder: {project.folder / 'record'}\n"
    assert not (project.folder / "record").exists()
    assert (project.folder / "workflow.yaml").exists()


def test_handoff_is_delivered_only_after_a_person_approves_it(project: World) -> None:
    file = project.folder / "workflow.yaml"
    text = file.read_text().replace("role: developer", "role: developer\n      human-colab: true")
    file.write_text(text)
    (staged,) = flow(project, "run", *ALLOWED, "--json", code=1).json["waiting"]
    assert (staged["topic"], staged["target"]) == ("handoff-approval", "build")
    assert "done.md to review" in staged["text"]
    flow(project, "approve", "f", "--note", "no", code=2)
    flow(project, "approve", "f", "build", "--decline", "--note", "Say more.")
    state = flow(project, "show", "f", "--json").json
    assert state["awaitingHumanNodes"]["build"]["reason"] == "prompt-human"
    assert "review" not in state["visitedNodeIds"]
    shutil.rmtree(project.folder / "record")
    again = (*ALLOWED[:-4], *ALLOWED[-2:], "--id", "g")
    flow(project, "run", *again, code=1)
    flow(project, "approve", "g")
    flow(project, "resume", "g", "--scenario", "scenario.yaml", code=1)
    feed = flow(project, "show", "g", "--role", "developer").out
    assert "build handed done.md to review, approved by" in feed


def test_flow_turn_can_be_watched_and_stopped_from_other_processes(project: World) -> None:
    hanging = project.scenario("name: s\nrules:\n  - steps: [{text: Wait.}, hang]\n")
    words = ("flow", "run", *FIRST[:1], "--scenario", hanging, "--id", "f")
    with project.fork(*words) as running:
        until(lambda: '"runningNodes":["owner-intake"]' in project.run(*SHOW).out)
        with project.fork("flow", "show", "f", "--watch", "--json") as watching:
            first = json.loads(watching.line())
            assert first["type"] == "activation"
            flow(project, "stop", "f", "owner-intake")
            assert running.ended().code == 1
            waiting = json.loads(project.run(*SHOW).out)["awaitingHumanNodes"]
            assert waiting["owner-intake"]["reason"] == "autonomous-abort"


SHOW = ("flow", "show", "f", "--json")


def until(is_so: Callable[[], bool]) -> None:
    """Wait until `is_so` is true; fail when it takes too long."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_watch_without_a_terminal_prints_lines_as_text_or_json(project: World) -> None:
    lines = flow(project, "run", *ALLOWED, "--watch", "--json", code=1).out.splitlines()
    read = [json.loads(line) for line in lines]
    nodes = [each["nodes"] for each in read if "nodes" in each]
    assert nodes[-1]["close"] == "completed"
    assert any(each.get("type") == "handoff" for each in read)
    assert read[-1]["status"] == "awaiting_improvement_choice"


def test_graph_is_redrawn_in_place_at_a_terminal(project: World) -> None:
    control, terminal = pty.openpty()
    environment = {**project.environment, "TERM": "xterm-256color"}
    words = [str(PERDURE), "flow", "run", *ALLOWED, "--watch"]
    with subprocess.Popen(
        words, cwd=project.folder, env=environment, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        seen = _all_of(control)
        assert process.wait(PATIENCE_S) == 1
    os.close(control)
    assert "\x1b[" in seen
    assert "✓" in seen
    assert "perdure flow improve f" in seen


def _all_of(control: int) -> str:
    """Return the output to the terminal until no process has the terminal open."""
    seen, end = b"", time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if not select.select([control], [], [], 0.2)[0]:
            continue
        try:
            content = os.read(control, 65536)
        except OSError:
            break
        if not content:
            break
        seen += content
    return seen.decode(errors="replace")


def test_validate_command_warns_of_a_role_without_a_folder(project: World) -> None:
    shutil.rmtree(project.folder / "a-docs" / "roles" / "reviewer")
    told = flow(project, "validate", "workflow.yaml", "--json").json
    (warning,) = told["warnings"]
    assert warning.startswith("role 'reviewer' has no folder a-docs/roles/reviewer: write ")
    assert warning in " ".join(flow(project, "validate", "workflow.yaml").err.split())
    shutil.rmtree(project.folder / "a-docs" / "roles")
    assert flow(project, "validate", "workflow.yaml", "--json").json["warnings"] == []


def test_flow_run_warns_that_the_echo_model_makes_no_handoffs(project: World) -> None:
    ended = flow(project, "run", "workflow.yaml", "-m", "scripted:echo", code=1)
    assert "scripted:echo hands nothing over" in ended.err
    assert "--scenario FILE" in " ".join(ended.err.split())
    assert "hands nothing over" not in flow(project, "run", *ALLOWED, code=1).err
