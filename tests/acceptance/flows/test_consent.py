"""The consent of flows, and the settings that `flow resume` keeps, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import Ended, World

WORKFLOW = """workflow:
  name: one command
  nodes:
    - {id: owner-intake, role: owner}
  edges: []
"""
SCENARIO = """name: s
rules:
  - when: {user_contains: started, round: 1}
    calls:
      - name: run_command
        args: {command: touch built}
  - text: |
      Done.

      ```handoff
      type: forward-pass-closed
      ```
"""
RUN = ("run", "workflow.yaml", "--scenario", "scenario.yaml", "--record", "record", "--id", "f")


def flow(world: World, *words: str, code: int = 0) -> Ended:
    ended = world.run("flow", *words)
    assert ended.code == code, (words, ended.out, ended.err)
    return ended


@pytest.fixture
def built(world: World) -> Path:
    """Return the file that the owner's command creates, in a project that `flow init` created."""
    (world.folder / "workflow.yaml").write_text(WORKFLOW)
    (world.folder / "scenario.yaml").write_text(SCENARIO)
    return world.folder / "built"


def test_command_in_the_mode_no_access_runs_only_after_approval(world: World, built: Path) -> None:
    (asked,) = flow(world, *RUN, "--json", code=1).json["waiting"]
    assert asked["topic"] == "consent"
    assert "touch built" in asked["text"]
    assert world.run("inbox", "answer", asked["question"], "allow").code == 0
    assert not built.exists()
    flow(world, "resume", "f", code=1)
    assert built.exists()


def test_denial_given_in_another_process_ends_the_turn(world: World, built: Path) -> None:
    (asked,) = flow(world, *RUN, "--json", code=1).json["waiting"]
    assert world.run("inbox", "answer", asked["question"], "deny").code == 0
    (waiting,) = flow(world, "resume", "f", "--json", code=1).json["waiting"]
    assert waiting["topic"] == "consent-denied"
    assert not built.exists()


def test_partial_access_runs_only_granted_commands_without_approval(
    world: World, built: Path
) -> None:
    flow(world, *RUN, "--consent", "partial-access", code=1)
    flow(world, "consent", "f", "--allow-command", "touch other")
    (asked,) = flow(world, "resume", "f", "--json", code=1).json["waiting"]
    assert asked["topic"] == "consent"
    flow(world, "consent", "f", "--allow-command", "touch built")
    assert flow(world, "resume", "f", "--json", code=1).json["status"].startswith("awaiting_impr")
    assert built.exists()


def test_command_runs_without_approval_in_full_access(world: World, built: Path) -> None:
    flow(world, *RUN, "--consent", "full-access", code=1)
    assert built.exists()


def test_allow_command_option_limits_commands_even_in_full_access(
    world: World, built: Path
) -> None:
    flow(world, *RUN, "--consent", "full-access", "--allow-command", "ls *", code=1)
    feed = flow(world, "show", "f", "--role", "owner").out
    assert "the command is not one of those that are allowed" in feed
    assert not built.exists()


def test_grant_that_no_role_can_use_is_refused(world: World, built: Path) -> None:
    flow(world, *RUN, "--allow-command", "ls *", code=1)
    refused = flow(world, "consent", "f", "--allow-command", "touch built", code=2)
    assert "no role of this flow may run 'touch built'" in refused.err
    assert "shell" in flow(world, "consent", "f", "--allow-command", "ls | wc", code=2).err
    assert "'mcp_x_y'" in flow(world, "consent", "f", "--allow-tool", "mcp_x_y", code=2).err
    assert flow(world, "show", "f", "--json").json["consentState"]["bash"]["allowedCommands"] == {}
    flow(world, "consent", "f", "partial-access", "--allow-command", "ls a")


def test_grant_of_several_commands_is_refused_if_one_is_invalid(world: World, built: Path) -> None:
    flow(world, *RUN, "--consent", "partial-access", code=1)
    both = ("--allow-command", "ls a", "--allow-command", "ls b")
    refused = flow(world, "consent", "f", *both, "--allow-command", "ls | wc", code=2)
    assert "needs a shell" in refused.err

    def allowed() -> list[str]:
        found = flow(world, "show", "f", "--json").json["consentState"]
        return list(found["bash"]["allowedCommands"])

    assert allowed() == []
    flow(world, "consent", "f", *both)
    assert allowed() == ["ls a", "ls b"]
    flow(world, "consent", "f", *both, "--revoke")
    assert allowed() == []


def test_resume_command_reuses_the_scenario_and_allowed_commands(world: World, built: Path) -> None:
    asking = ("--allow-command", "touch *", "--json")
    (asked,) = flow(world, *RUN, *asking, code=1).json["waiting"]
    assert world.run("inbox", "answer", asked["question"], "allow-flow").code == 0
    elsewhere = world.folder / "elsewhere"
    elsewhere.mkdir()
    ended = World(elsewhere, {k: world.environment[k] for k in ("HOME", "PERDURE_STORE")}).run(
        "flow", "resume", "f", "--json"
    )
    assert (ended.code, ended.json["status"]) == (1, "awaiting_improvement_choice"), ended.err
    assert built.exists()
    flow(world, "improve", "f", "none")
    assert flow(world, "resume", "f", "--json").json["status"] == "completed"


def test_resume_command_reports_a_missing_scenario_file(world: World, built: Path) -> None:
    flow(world, *RUN, "--consent", "full-access", code=1)
    (world.folder / "scenario.yaml").unlink()
    told = flow(world, "resume", "f", code=3).err
    assert "scenario.yaml" in told
    assert "--scenario" in told
    assert flow(world, "resume", "f", "-m", "scripted:echo", code=1)


ASKS_FIRST = """name: s
rules:
  - when: {user_contains: started}
    text: |
      Again?

      ```handoff
      type: prompt-human
      ```
  - when: {user_contains: now, round: 1}
    calls:
      - name: run_command
        args: {command: touch built}
  - text: |
      Done.

      ```handoff
      type: forward-pass-closed
      ```
"""


def test_started_role_can_run_a_command_that_flow_resume_allows(world: World, built: Path) -> None:
    (world.folder / "scenario.yaml").write_text(ASKS_FIRST)
    flow(world, *RUN, "--consent", "full-access", "--allow-command", "ls *", code=1)
    flow(world, "reply", "f", "now")
    flow(world, "resume", "f", "--allow-command", "touch *", code=1)
    assert built.exists()
    flow(world, "consent", "f", "--allow-command", "ls x")
