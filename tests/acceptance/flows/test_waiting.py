"""`--wait`, and the report of `flow show` about processes: with real processes and `kill -9`."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.cli.conftest import PATIENCE_S, World
from tests.fakes.forked import Forked

WORKFLOW = """workflow:
  name: one question
  nodes:
    - {id: owner-intake, role: owner}
  edges: []
"""
ASKS = """name: s
rules:
  - when: {user_contains: started, round: 1}
    calls:
      - name: write_file
        args: {path: record/a.md, content: x}
  - when: {user_contains: started}
    text: |
      Train or plane?

      ```handoff
      type: prompt-human
      ```
  - text: |
      Done.

      ```handoff
      type: forward-pass-closed
      ```
"""
HANGS = "name: s\nrules:\n  - steps: [{text: Wait.}, hang]\n"
RUN = ("flow", "run", "workflow.yaml", "--record", "record", "--id", "f")
NOBODY = "No process runs this flow: `perdure flow resume f` continues it."


@pytest.fixture
def laid(world: World) -> World:
    """A world with a workflow of one node."""
    (world.folder / "workflow.yaml").write_text(WORKFLOW)
    return world


def until(found: Callable[[], Any]) -> Any:
    """Return the result of `found` once it is true."""
    for _ in range(PATIENCE_S * 10):
        if value := found():
            return value
        time.sleep(0.1)
    pytest.fail("it never came")


def next_topic(running: Forked) -> str:
    """Return the topic of the next question that `running` prints."""
    topic: str = json.loads(running.line())["waiting"]["topic"]
    return topic


def test_run_command_with_wait_option_continues_after_each_answer(laid: World) -> None:
    with laid.fork(*RUN, "--scenario", laid.scenario(ASKS), "--wait", "--json") as running:
        assert next_topic(running) == "consent"
        laid.ok("flow", "consent", "f", "partial-access")
        assert next_topic(running) == "prompt-human"
        laid.ok("flow", "reply", "f", "By train.")
        assert next_topic(running) == "improvement-choice"
        laid.ok("flow", "improve", "f", "none")
        ended = running.ended()
    assert (ended.code, ended.err) == (0, "flow f\n")
    summary = json.loads(ended.out)
    assert (summary["status"], summary["waiting"]) == ("completed", [])


def test_run_command_with_wait_option_prints_the_question_of_the_agent(laid: World) -> None:
    acted = ("--scenario", laid.scenario(ASKS), "--consent", "full-access", "--wait")
    with laid.start(*RUN, *acted) as running:
        assert running.stdout is not None
        shown = [running.stdout.readline().decode() for _ in range(3)]
        running.kill()
    assert shown[0] == "Waiting for you:\n"
    assert shown[2] == "    “Train or plane?”\n"


def test_flow_show_command_reports_that_no_process_runs_the_flow(laid: World) -> None:
    with laid.fork(*RUN, "--scenario", laid.scenario(HANGS)) as running:
        until(lambda: laid.run("flow", "show", "f", "--json").out.startswith("{"))
        until(lambda: laid.run("flow", "show", "f", "--json").json["workers"])
        assert NOBODY not in laid.ok("flow", "show", "f").out
        assert "1 node at work" in laid.ok("flow", "list").out
        running.kill()
        assert running.ended().code == -signal.SIGKILL
        assert NOBODY in laid.ok("flow", "show", "f").out
        state = laid.run("flow", "show", "f", "--json").json
        assert (state["runningNodes"], state["workers"]) == (["owner-intake"], [])
        assert "no process runs it" in laid.ok("flow", "list").out


def test_flow_that_waits_for_an_answer_reports_no_missing_process(
    laid: World,
) -> None:
    assert laid.run(*RUN, "--scenario", laid.scenario(ASKS), "--consent", "full-access").code == 1
    assert NOBODY not in laid.ok("flow", "show", "f").out
    laid.ok("flow", "reply", "f", "By train.")
    assert NOBODY in laid.ok("flow", "show", "f").out


def test_role_sessions_are_listed_as_roles_and_their_forks_as_forks(laid: World) -> None:
    assert laid.run(*RUN, "--scenario", laid.scenario(ASKS), "--consent", "full-access").code == 1
    assert "role: owner: one question" in laid.ok("sessions", "list", "--all").out
    assert "role of flow f" in laid.ok("sessions", "show", "f__owner").out
    laid.ok("sessions", "fork", "f__owner", "--title", "another try")
    listed = laid.ok("sessions", "list", "--all").out
    assert "fork: another try" in listed
    assert "role: owner" in listed


def test_compaction_with_another_scenario_keeps_the_settings_of_the_flow(laid: World) -> None:
    acted = ("--scenario", laid.scenario(ASKS), "--consent", "full-access")
    assert laid.run(*RUN, *acted).code == 1
    other = laid.scenario(HANGS.replace("- steps", "- when: {user_contains: Z}\n    steps"), "b")
    laid.ok("flow", "compact", "f", "owner", "--scenario", other)
    laid.ok("flow", "reply", "f", "Train.")
    resumed = laid.run("flow", "resume", "f", "--json")
    assert [each["topic"] for each in resumed.json["waiting"]] == ["improvement-choice"]


def test_flow_and_inbox_are_readable_after_a_role_session_is_erased(laid: World) -> None:
    acted = ("--scenario", laid.scenario(ASKS), "--consent", "full-access")
    assert laid.run(*RUN, *acted).code == 1
    laid.ok("sessions", "erase", "f__owner", "--yes")
    assert laid.ok("inbox", "--json").json == []
    shown = laid.ok("flow", "show", "f").out
    assert "Waiting for you" not in shown
    assert "owner: its session f__owner was erased, so it cannot continue" in shown
    assert "waits for you" not in laid.ok("flow", "list").out
