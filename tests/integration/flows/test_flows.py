"""Whole flows through the library: real sessions, tools and files, and a scripted model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.session.entries import Entry
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.ids import StreamId
from tests.fakes.flow_stage import FlowStage, ends, hands

RECORD = "record"
LINE = Graph(
    "a small change",
    (
        FlowNode("owner-intake", "owner", work=("Plan the change.",)),
        FlowNode("build", "developer", work=("Build it.",)),
        FlowNode("end", "owner", work=("Close it.",)),
    ),
    (FlowEdge("owner-intake", "build"), FlowEdge("build", "end")),
)
RULES = (
    *hands("Node `owner-intake`", RECORD, "plan.md", "build"),
    *hands("Node `build`", RECORD, "done.md", "end"),
    ends("Node `end`", "forward-pass-closed"),
)


async def test_flow_defined_in_python_runs_to_its_end(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, *RULES)
    async with stage.flows("owner", "developer") as flows:
        flow = await flows.start(
            LINE, workspace=tmp_path, record_folder=RECORD, consent="full-access"
        )
        run = await flow.run()
    assert run.awaiting_human_nodes == {}
    assert run.status == "awaiting_improvement_choice"
    assert run.completed_handoffs == ("owner-intake=>build", "build=>end")
    assert [w.topic for w in await flow.waiting()] == ["improvement-choice"]
    messages = await (await flow.session("developer")).messages()
    assert "what plan.md says" in messages[0].text
    assert (tmp_path / RECORD / "done.md").read_text() == "what done.md says"


async def test_listing_pending_work_reads_no_old_entries(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, *RULES)
    read, given = stage.memory.entries, 0

    async def counted(
        stream: StreamId, after: int = -1, limit: int | None = None, **chosen: Any
    ) -> list[Entry]:
        nonlocal given
        found = await read(stream, after, limit, **chosen)
        given += len(found)
        return found

    async with stage.flows("owner", "developer") as flows:
        flow = await flows.start(
            LINE, workspace=tmp_path, record_folder=RECORD, consent="full-access"
        )
        await flow.run()
        await stage.store.questions()
        stage.memory.entries = counted
        for _ in range(3):
            assert [each.question.topic for each in await stage.store.questions()] == [
                "improvement-choice"
            ]
            assert [state.run.flow_id for state in await flows.list()] == [flow.id]
            assert await (await flows.open(flow.id)).state() == await flow.state()
    assert given == 3 * 3  # each time the newest entry, which is still there
