"""The texts around the summary of a role."""

from __future__ import annotations

import msgspec

from perdure.engine.flows.files.contracts import contracts
from perdure.engine.flows.prompts.compaction import (
    NodeTexts,
    inputs_of,
    node_frame,
    reflection_frame,
)
from perdure.engine.turns.environment import ToCompact
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.flows.run import FlowState
from tests.fakes.flow_log import FlowLog

A = FlowNode("owner-intake", "owner", work=("Plan it.",))
B = FlowNode("build", "dev", work=("Build it.",))
GRAPH = Graph("Tides", (A, B), (FlowEdge("owner-intake", "build"),))
PLAN = {"plan.md": "hourly"}
TEXTS = NodeTexts(contracts(), (), PLAN)


def at_build(**changes: object) -> FlowState:
    state = FlowLog(GRAPH).state
    run = msgspec.structs.replace(
        state.run,
        running_nodes=("build",),
        completed_handoffs=("owner-intake=>build",),
        history_handoff={"owner-intake=>build": ("old.md", "plan.md")},
        **changes,
    )
    return msgspec.structs.replace(state, run=run)


def test_text_before_a_summary_describes_the_running_node() -> None:
    frame = node_frame(at_build(), "dev", B, TEXTS, ToCompact())
    assert "You are `dev` in the flow" in frame.before
    assert "## Work\n- Build it." in frame.before
    assert "(predecessor): plan.md\n```\nhourly\n```" in frame.before
    assert "old.md" not in frame.before
    assert frame.after == "Continue the work at node `build` where it stopped."


def test_text_before_a_summary_omits_undelivered_inputs() -> None:
    state = at_build(receiving_handoff={"owner-intake=>build": ("plan.md",)})
    assert inputs_of(state, B) == {"owner-intake=>build": "old.md"}


def test_long_input_is_mentioned_only_by_its_name() -> None:
    texts = NodeTexts(contracts(), (), {"plan.md": "word " * 5_000})
    frame = node_frame(at_build(), "dev", B, texts, ToCompact(window_tokens=8_000))
    assert "plan.md\nRead the file again" in frame.before
    assert "word word" not in frame.before


def test_text_before_a_summary_does_not_repeat_the_kept_message() -> None:
    entry = "Node `build` started at 1.\n\n## Work\n- Build it.\n\nYou have still to hand over."
    frame = node_frame(at_build(), "dev", B, TEXTS, ToCompact(kept=entry))
    assert "Build it." not in frame.before
    assert "hourly" in frame.before
    assert frame.after == "The message that follows is not answered yet."


def test_unanswered_message_follows_the_summary() -> None:
    said = node_frame(at_build(), "dev", B, TEXTS, ToCompact(unanswered="By boat?"))
    assert said.after.startswith("## Said to you, and not answered yet\nBy boat?")
    entry = node_frame(at_build(), "dev", B, TEXTS, ToCompact(unanswered="Node `build` started at"))
    assert "not answered" not in entry.after


def test_role_in_its_final_review_keeps_its_task_after_a_compaction() -> None:
    frame = reflection_frame(at_build(), "dev", "Look back.", ToCompact(unanswered="Look back."))
    assert "Look back." in frame.before
    assert frame.after == "Continue where it stopped."
