"""Arguments that `perdure flow` refuses with an error that contains advice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import World
from tests.acceptance.flows.test_consent import ASKS_FIRST, RUN, SCENARIO, WORKFLOW, flow

BYTES = "\udcff"
"""The byte FF, which is not UTF-8, in the form in which Python gets it from a shell."""

ODD: tuple[tuple[str, ...], ...] = (
    ("consent", "f", "--allow-command", ""),
    ("consent", "f", "--allow-command", "", "--revoke"),
    ("consent", "f", "--allow-command", "a\nb"),
    ("consent", "f", "--allow-command", BYTES),
    ("consent", "f", "--allow-tool", ""),
    ("consent", "f", "--allow-command", "never granted", "--revoke"),
    ("consent", "f", "no-access", "--allow-command", "touch built"),
    ("run", "workflow.yaml", "--id", ""),
    ("run", "workflow.yaml", "--id", "a b"),
    ("run", "workflow.yaml", "--record", ""),
    ("run", "workflow.yaml", "--workspace", BYTES),
    ("run", "workflow.yaml", "--project", BYTES),
    ("run", "workflow.yaml", "-m", "scripted:echo", "--scenario", "scenario.yaml"),
    ("resume", "f", "-m", "scripted:echo", "--scenario", "scenario.yaml"),
    ("resume", "f", "--workspace", BYTES),
    ("compact", "f", "owner", "-m", "scripted:echo", "--scenario", "scenario.yaml"),
    ("compact", "f", "owner", "--focus", " "),
    ("run", "workflow.yaml", "-m", "scripted:echo", "--record", "dangling"),
    ("run", "workflow.yaml", "-m", "scripted:echo", "--record", "workflow.yaml/x"),
    ("export", "f", "-o", ""),
    ("init", ""),
    ("reply", "f", " "),
)


@pytest.fixture
def project(world: World) -> Path:
    """A project whose owner role asks for one command."""
    (world.folder / "workflow.yaml").write_text(WORKFLOW)
    (world.folder / "scenario.yaml").write_text(SCENARIO)
    return world.folder


def test_invalid_flow_arguments_exit_2_and_change_nothing(world: World, project: Path) -> None:
    flow(world, *RUN, "--consent", "partial-access", code=1)
    (project / "dangling").symlink_to("gone")
    before = flow(world, "show", "f", "--json").json
    found = {path for path in project.rglob("*") if "store.db" not in path.name}
    for words in ODD:
        ended = world.run("flow", *words)
        assert (ended.code, ended.out) == (2, ""), (words, ended.out, ended.err)
        assert "bug in perdure" not in ended.err, words
        assert "JSON" not in ended.err, words
    assert flow(world, "show", "f", "--json").json == before
    assert {path for path in project.rglob("*") if "store.db" not in path.name} == found


def test_command_can_be_granted_and_revoked_with_any_spacing(world: World, project: Path) -> None:
    flow(world, *RUN, "--consent", "partial-access", code=1)
    flow(world, "consent", "f", "--allow-command", "ls   a")
    granted = flow(world, "show", "f", "--json").json["consentState"]["bash"]["allowedCommands"]
    assert list(granted) == ["ls a"]
    told = flow(world, "consent", "f", "--allow-command", "ls b", "--revoke", code=2).err
    assert "'ls b' is not allowed" in told
    assert "allowed: 'ls a'" in told
    flow(world, "consent", "f", "--allow-command", "ls  a", "--revoke")
    consent = flow(world, "show", "f", "--json").json["consentState"]
    assert consent["bash"]["allowedCommands"] == {}


def test_command_grant_is_refused_in_the_mode_no_access(world: World, project: Path) -> None:
    (asked,) = flow(world, *RUN, "--json", code=1).json["waiting"]
    told = flow(world, "consent", "f", "--allow-command", "touch built", code=2).err
    assert "no-access" in told
    assert "partial-access" in told
    flow(world, "consent", "f", "partial-access", "--allow-command", "touch  built")
    assert world.run("inbox", "answer", asked["question"], "deny").code == 4  # it is answered
    flow(world, "resume", "f", code=1)
    assert (project / "built").exists()


def test_help_says_that_allow_command_limits_the_commands(world: World) -> None:
    for command in ("run", "resume"):
        told = " ".join(flow(world, command, "--help").out.split())
        assert "--allow-command LINE Limit roles to this command" in told
        assert "A command it may run" not in told


def test_record_folder_path_is_normalized_before_it_is_stored(world: World, project: Path) -> None:
    (project / "dangling").symlink_to("gone")
    run = ("run", "workflow.yaml", "--scenario", "scenario.yaml", "--record")
    told = flow(world, *run, "dangling", code=2).err
    assert "dangling is a link to gone, which does not exist; create that folder" in told
    (project / "inner").mkdir()
    flow(world, *run, "inner/../outside", "--id", "g", code=1)
    shown = flow(world, "show", "g", "--json").json
    assert shown["recordFolderPath"] == str(project / "outside")


def test_store_without_flow_support_raises_unsupported(world: World, project: Path) -> None:
    (project / "folder").mkdir()
    store = ("--store", f"jsonl:///{project}/folder")
    told = flow(world, "list", *store).out
    assert told == "A jsonl store cannot hold flows; name another store: --store sqlite:///FILE\n"
    flow(world, *RUN, code=1)
    flow(world, "export", "f", "-o", "out")
    ended = world.run("import", "out", "--format", "a-society", *store)
    assert "a jsonl store has no flows" in ended.err


def test_flow_run_warns_if_the_scenario_writes_outside_the_record_folder(
    world: World,
) -> None:
    flow(world, "init")
    run = ("run", "workflow.yaml", "--scenario", "scenario.yaml", "--consent", "partial-access")
    assert "the scenario writes into record/" in flow(world, *run, code=1).err
    assert "scenario writes" not in flow(world, *run, "--record", "record", code=1).err


def test_flow_list_reports_a_queued_reply(world: World, project: Path) -> None:
    (project / "scenario.yaml").write_text(ASKS_FIRST)
    flow(world, *RUN, code=1)
    assert flow(world, "list").out.strip().endswith("running, waits for you: 1")
    flow(world, "reply", "f", "now")
    told = flow(world, "list").out.strip()
    assert told.endswith("running, 1 reply queued, no process runs it"), told


def test_workflow_name_or_label_above_the_length_limit_is_refused(
    world: World, project: Path
) -> None:
    long = "n" * 201
    (project / "workflow.yaml").write_text(WORKFLOW.replace("one command", long))
    told = flow(world, "validate", "workflow.yaml", code=2).out
    assert "the name of the workflow has 201 characters, at most 200" in told
    flow(world, *RUN, code=2)
    session = world.ok("chat", "-p", "hi", "-m", "scripted:echo", "--json").out
    id = json.loads(session.splitlines()[0])["sessionId"]
    ended = world.run("sessions", "label", id, "2", long)
    assert (ended.code, "limits.name_characters = 200" in ended.err) == (1, True), ended.err


def test_flow_keeps_its_graph_if_a_new_role_name_is_too_long(world: World, project: Path) -> None:
    (project / "scenario.yaml").write_text(ASKS_FIRST)
    flow(world, *RUN, code=1)
    added = "{id: more, role: " + "r" * 115 + "}"
    text = WORKFLOW.replace("  edges: []", f"    - {added}\n    - {{id: z, role: owner}}\n  edges:")
    text += "    - {from: owner-intake, to: more}\n    - {from: more, to: z}\n"
    (project / "record" / "workflow.yaml").write_text(text)
    told = flow(world, "show", "f").out
    assert "The flow keeps its graph; workflow.yaml of its record:" in told
    assert "have at most 112 together; they have 116" in told
    assert len(flow(world, "show", "f", "--json").json["workflowFaults"]) == 1
    flow(world, "reply", "f", "now")
    assert "have at most 112 together" in flow(world, "resume", "f", code=1).out
    assert "r" * 115 not in flow(world, "graph", "f").out
    (project / "record" / "workflow.yaml").write_text(WORKFLOW)
    assert "keeps its graph" not in flow(world, "show", "f").out


def test_refused_first_message_leaves_no_session(world: World) -> None:
    settings = world.folder / ".config" / "perdure" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[limits]\nmessage_bytes = 10\n")
    ended = world.run("chat", "-m", "scripted:echo", "-p", "more than ten bytes")
    assert "exceeds limits.message_bytes = 10" in ended.err
    assert world.ok("sessions", "list", "--all", "--json").json == []
