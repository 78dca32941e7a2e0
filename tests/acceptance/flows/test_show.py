"""Output of `flow show` about answers that no process has acted on yet."""

from __future__ import annotations

from tests.acceptance.cli.conftest import World
from tests.acceptance.flows.test_consent import ASKS_FIRST, RUN, SCENARIO, WORKFLOW, flow

HANDS_OVER = """name: s
rules:
  - when: {user_contains: started, round: 1}
    calls:
      - name: write_file
        args: {path: record/plan.md, content: the plan}
  - text: |
      Done.

      ```handoff
      target_node_id: build
      artifact_path: plan.md
      ```
"""
TWO_NODES = """workflow:
  name: two nodes
  nodes:
    - {id: owner-intake, role: owner, human-colab: true}
    - {id: build, role: owner}
  edges: [{from: owner-intake, to: build}]
"""


def test_queued_reply_is_shown_until_it_is_delivered(world: World) -> None:
    (world.folder / "workflow.yaml").write_text(WORKFLOW)
    (world.folder / "scenario.yaml").write_text(ASKS_FIRST)
    flow(world, *RUN, "--consent", "full-access", code=1)
    flow(world, "reply", "f", "yes, now\x1b[2J")
    shown = flow(world, "show", "f").out
    assert "│ reply queued: yes, now" in shown
    assert "\x1b" not in shown
    assert "No process runs this flow" in shown
    flow(world, "resume", "f", code=1)
    assert "reply queued" not in flow(world, "show", "f").out


def test_denied_call_is_shown_before_and_after_its_turn_ends(world: World) -> None:
    (world.folder / "workflow.yaml").write_text(WORKFLOW)
    (world.folder / "scenario.yaml").write_text(SCENARIO)
    (asked,) = flow(world, *RUN, "--json", code=1).json["waiting"]
    answer = ("deny", "--by", "ana", "--note", "not now")
    assert world.run("inbox", "answer", asked["question"], *answer).code == 0
    told = "ana answered deny to run_command touch built: not now"
    assert f"│ {told}" in flow(world, "show", "f").out
    assert told in flow(world, "show", "f", "--role", "owner").out
    flow(world, "resume", "f", code=1)
    assert "was refused a tool" in flow(world, "show", "f").out
    assert told in flow(world, "show", "f", "--role", "owner").out


def test_declined_handoff_is_not_shown_as_question(world: World) -> None:
    (world.folder / "workflow.yaml").write_text(TWO_NODES)
    (world.folder / "scenario.yaml").write_text(HANDS_OVER)
    flow(world, *RUN, "--consent", "partial-access", code=1)
    flow(world, "approve", "f", "--decline", "--by", "ana", "--note", "too short")
    shown = flow(world, "show", "f").out
    assert "awaiting human: handoff declined" in shown
    declined = "waits for a reply: ana declined plan.md to build: too short"
    assert f"owner-intake (owner) {declined}" in shown
    assert "asks" not in shown
    (row,) = world.run("inbox", "--json").json
    assert declined in row["text"]
