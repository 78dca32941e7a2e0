"""A role's context is compacted: real turns on a small window, before and between tool rounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.errors import FlowRefusal
from perdure.models.scenario import CallTools, Reply, Say, ScriptedCall, When
from perdure.session.codec import body_of
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.flows.role_session import role_session
from perdure.session.ids import StreamId
from perdure.session.kinds import Compaction
from tests.fakes.flow_stage import FlowStage, ends, hands, says

RECORD = "record"
GRAPH = Graph(
    "Tides",
    (
        FlowNode("owner-intake", "owner", work=("Plan it.",)),
        FlowNode("build", "dev", work=("Build the tide table.",), required_readings=()),
        FlowNode("test", "tester", work=("Test it.",)),
        FlowNode("end", "owner", work=("Close it.",), awaits_all_inputs=True),
    ),
    (
        FlowEdge("owner-intake", "build"),
        FlowEdge("build", "test"),
        FlowEdge("build", "end"),
        FlowEdge("test", "end"),
    ),
)
SUMMARY = "I looked at the harbour and chose hourly steps; the table is half done."
SUMMARISED = Reply(when=When(asks_summary=True), steps=(Say(SUMMARY),))
NOISE = "seven tides of noise " * 700


def calls(at: str, *, nth: int, path: str, when_system: str | None = None) -> Reply:
    """In round `nth` of the turn whose message contains `at`, write a long file."""
    call = ScriptedCall("write_file", json.dumps({"path": path, "content": NOISE}))
    return Reply(when=When(user_contains=at, round=nth), steps=(CallTools((call,)),))


async def compactions(stage: FlowStage, role: str) -> list[Compaction]:
    entries = await stage.memory.entries(StreamId(f"f__{role}"))
    bodies = [body_of(entry) for entry in entries]
    return [body for body in bodies if isinstance(body, Compaction)]


def check_context(text: str) -> None:
    """Check that `text` has everything that the flow knows about `dev` at `build`."""
    for told in (
        "`dev`",
        "`f`",
        "Tides",
        "node `build`",
        "record folder",
        "Build the tide table.",
        "Handed over by `owner-intake` (predecessor): plan.md",
        "what plan.md says",
        "You have still to hand over to: `test`, `end`.",
        SUMMARY,
    ):
        assert told in text, told


async def test_compaction_during_the_first_turn_keeps_the_task_of_the_node(
    tmp_path: Path,
) -> None:
    stage = FlowStage(
        tmp_path,
        SUMMARISED,
        *hands("Node `owner-intake`", RECORD, "plan.md", "build"),
        says("Your work at node `build`", "Which harbour?\n```handoff\ntype: prompt-human\n```"),
        calls("Node `build`", nth=1, path=f"{RECORD}/notes-1.md"),
        calls("Node `build`", nth=2, path=f"{RECORD}/notes-2.md"),
        window=9_000,
    )
    async with stage.flows("owner", "dev", "tester") as flows:
        flow = await flows.start(
            GRAPH, workspace=tmp_path, record_folder=RECORD, consent="full-access", id="f"
        )
        await flow.run()
        (compaction,) = await compactions(stage, "dev")
        assert compaction.reason == "threshold"
        assert compaction.own_summary is not None
        assert SUMMARY in compaction.own_summary
        check_context(compaction.summary)
        assert compaction.summary.endswith("Continue the work at node `build` where it stopped.")
        state = (await flow.state()).run
        assert state.awaiting_human_nodes["build"].reason == "prompt-human"


async def test_unanswered_reply_survives_a_compaction(tmp_path: Path) -> None:
    stage = FlowStage(
        tmp_path,
        SUMMARISED,
        *hands("Node `owner-intake`", RECORD, "plan.md", "build"),
        says("not answered yet\nTake Dover", "Why?\n```handoff\ntype: prompt-human\n```"),
        calls("Take Dover", nth=1, path=f"{RECORD}/notes-1.md"),
        calls("Take Dover", nth=2, path=f"{RECORD}/notes-2.md"),
        says("Node `build`", "Which harbour?\n```handoff\ntype: prompt-human\n```"),
        window=9_000,
    )
    async with stage.flows("owner", "dev", "tester") as flows:
        flow = await flows.start(
            GRAPH, workspace=tmp_path, record_folder=RECORD, consent="full-access", id="f"
        )
        await flow.run()
        await flow.reply("Take Dover, please.")
        await flow.run()
        (compaction,) = await compactions(stage, "dev")
        check_context(compaction.summary)
        assert "Said to you, and not answered yet\nTake Dover, please." in compaction.summary


async def test_role_continues_after_manual_compaction(tmp_path: Path) -> None:
    stage = FlowStage(
        tmp_path,
        SUMMARISED,
        *hands("Node `owner-intake`", RECORD, "plan.md", "build"),
        *hands("go on", RECORD, "built.md", "test", "end"),
        says("Node `build`", "Which harbour?\n```handoff\ntype: prompt-human\n```"),
        ends("Node `test`", "prompt-human"),
    )
    async with stage.flows("owner", "dev", "tester") as flows:
        flow = await flows.start(
            GRAPH, workspace=tmp_path, record_folder=RECORD, consent="full-access", id="f"
        )
        with pytest.raises(FlowRefusal, match="no session yet"):
            await flow.compact("dev")
        await flow.run()
        made = await flow.compact("dev")
        assert made is not None
        assert await flow.compact("dev") is None  # nothing was said since
        (first,) = await compactions(stage, "dev")
        assert first.reason == "manual"
        check_context(first.summary)
        assert "The work at node `build` continues with the next message." in first.summary
        await flow.reply("go on")
        run = await flow.run()
        assert {"build=>test", "build=>end"} <= set(run.completed_handoffs)
        await flow.compact("dev")
        second = (await compactions(stage, "dev"))[-1]
        assert "You have handed over to: `test`, `end`." in second.summary
        assert "Build the tide table." not in second.summary  # its work is done
        log = [(e, body_of(e)) for e in await stage.memory.entries(StreamId("f__dev"))]
        session = role_session("dev", "f__dev", log)
        assert [a.trigger for a in session.compaction_archives] == ["manual", "manual"]
        assert len(session.transcript_history) == 1
