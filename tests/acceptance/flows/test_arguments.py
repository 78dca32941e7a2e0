"""Arguments that the commands of flows refuse, with what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import World
from tests.acceptance.flows.test_consent import RUN, SCENARIO, WORKFLOW, flow

BYTES = "\udcff"
"""As a shell hands over the byte FF, which is not UTF-8."""

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
    ("export", "f", "-o", ""),
    ("init", ""),
    ("reply", "f", " "),
)


@pytest.fixture
def project(world: World) -> Path:
    """A project whose owner asks for one command."""
    (world.folder / "workflow.yaml").write_text(WORKFLOW)
    (world.folder / "scenario.yaml").write_text(SCENARIO)
    return world.folder


def test_odd_arguments_exit_2_and_change_nothing(world: World, project: Path) -> None:
    flow(world, *RUN, "--consent", "partial-access", code=1)
    before = flow(world, "show", "f", "--json").json
    found = {path for path in project.rglob("*") if "store.db" not in path.name}
    for words in ODD:
        ended = world.run("flow", *words)
        assert (ended.code, ended.out) == (2, ""), (words, ended.out, ended.err)
        assert "fault in perdure" not in ended.err, words
        assert "JSON" not in ended.err, words
    assert flow(world, "show", "f", "--json").json == before
    assert {path for path in project.rglob("*") if "store.db" not in path.name} == found


def test_revoked_command_asks_again_however_it_is_spaced(world: World, project: Path) -> None:
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


def test_grant_in_no_access_is_refused_until_mode_honours_it(world: World, project: Path) -> None:
    (asked,) = flow(world, *RUN, "--json", code=1).json["waiting"]
    told = flow(world, "consent", "f", "--allow-command", "touch built", code=2).err
    assert "no-access" in told
    assert "partial-access" in told
    flow(world, "consent", "f", "partial-access", "--allow-command", "touch  built")
    assert world.run("inbox", "answer", asked["question"], "deny").code == 4  # it is answered
    flow(world, "resume", "f", code=1)
    assert (project / "built").exists()


def test_help_of_run_and_resume_says_that_commands_are_limited(world: World) -> None:
    for command in ("run", "resume"):
        told = " ".join(flow(world, command, "--help").out.split())
        assert "--allow-command LINE Limit roles to this command" in told
        assert "A command it may run" not in told
