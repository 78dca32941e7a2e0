"""The three example projects, run as a reader runs them: as processes, offline."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.conftest import Ended, World

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "flows"
ACTING = ("--scenario", "scenario.yaml")
BEGINNING = ("workflow.yaml", *ACTING, "--record", "record", "--consent", "partial-access")


class Project:
    """A copy of an example, with a store of its own."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        shutil.copytree(EXAMPLES / name, world.folder, dirs_exist_ok=True)

    def flow(self, *words: str, code: int = 0) -> Ended:
        """Run ``perdure flow`` with `words`, and require the exit code `code`."""
        ended = self.world.run("flow", *words)
        assert ended.code == code, (words, ended.out, ended.err)
        return ended

    def state(self) -> dict[str, Any]:
        return self.flow("show", "f", "--json").json

    def record(self) -> set[str]:
        folder = self.world.folder / "record"
        return {path.name for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["single-owner", "review", "fan-out"])
def test_every_example_is_valid(world: World, name: str) -> None:
    assert "owner-intake" in Project(world, name).flow("validate", "workflow.yaml").out


def test_single_owner_example_runs_to_its_end(world: World) -> None:
    project = Project(world, "single-owner")
    began = project.flow("run", *BEGINNING, "--id", "f", "--json", code=1).json
    assert [each["topic"] for each in began["waiting"]] == ["improvement-choice"]
    assert began["waiting"][0]["choices"] == ["parallel", "none"]
    project.flow("improve", "f", "none")
    project.flow("resume", "f", *ACTING)
    assert project.state()["status"] == "completed"
    assert project.record() == {"packing.md", "workflow.yaml", "record.yaml", ".flow"}


def test_page_in_the_review_example_is_revised_once(
    world: World,
) -> None:
    project = Project(world, "review")
    told = project.flow("run", *BEGINNING, "--id", "f", "--watch", code=1).out
    assert "review backward" in told
    state = project.state()
    assert state["historyHandoff"] == {
        "owner-intake=>write": ["plan.md"],
        "write=>review": ["page.md", "page-2.md"],
        "review=>write": ["findings-1.md"],
        "review=>close": ["accepted.md"],
    }
    assert len(state["completedHandoffs"]) == 3
    project.flow("improve", "f", "graph-based")
    project.flow("resume", "f", *ACTING, code=1)
    phase = project.state()["improvementPhase"]
    assert phase["completedRoles"][-1] == "owner"
    assert phase["findingsProduced"]["developer"] == "record/findings/developer-findings.md"
    assert phase["improvementWorkflowPath"] == "record/improvement.yaml"
    named = (*phase["findingsProduced"].values(), phase["improvementWorkflowPath"])
    assert all((world.folder / path).is_file() for path in named)
    project.flow("feedback", "f", "deny")
    project.flow("resume", "f", *ACTING)
    assert project.state()["status"] == "completed"


def test_fan_out_example_waits_for_an_answer_and_joins_its_branches(world: World) -> None:
    project = Project(world, "fan-out")
    project.flow("run", *BEGINNING, "--id", "f", code=1)
    shown = project.flow("show", "f").out
    assert "“Do you want to go by train or by plane?”" in shown
    assert "perdure flow reply f --to owner-intake" in shown
    (item,) = world.run("inbox", "--json").json
    assert (item["session"], item["topic"]) == ("f", "prompt-human")
    assert item["answer"] == f'perdure inbox answer {item["id"]} "..."'
    assert (item["target"], item["choices"]) == ("owner-intake", [])
    project.flow("reply", "f", "By train, please.")
    assert world.run("inbox", "--json").json == []
    again = project.flow("reply", "f", "No, by plane.", "--json", code=4)
    assert again.error["code"] == "flow_refusal"
    project.flow("resume", "f", *ACTING, code=1)
    state = project.state()
    assert set(state["completedHandoffs"]) == {
        *("owner-intake=>route", "owner-intake=>hotel", "route=>join", "hotel=>join")
    }
    assert state["visitedNodeIds"][-1] == "join"
    feed = project.flow("show", "f", "--role", "owner", "--feed", "--json").json
    assert [item["id"] for item in feed] == [f"owner_{n + 1}" for n in range(len(feed))]
    after = project.flow("show", "f", "--role", "owner", "--feed", "--json", "--after", "owner_2")
    assert after.json == feed[2:]
