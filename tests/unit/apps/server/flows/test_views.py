"""Flows as API values: states of nodes, edges and roles, and the improvement phase."""

from __future__ import annotations

from pathlib import Path

from perdure.apps.server.flows.views import flow_view, summary_of
from perdure.client.flows.flow import Flow
from perdure.client.flows.flows import Flows
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from tests.fakes.flow_stage import FlowStage, ends, hands, says

LINE = Graph(
    "line",
    (
        FlowNode("owner-intake", "owner"),
        FlowNode("write", "developer"),
        FlowNode("close", "owner"),
    ),
    (FlowEdge("owner-intake", "write"), FlowEdge("write", "close")),
)
ASKS = says("Node `write` started", "Which?\n```handoff\ntype: prompt-human\n```")


async def ran(flows: Flows, folder: Path) -> Flow:
    flow = await flows.start(
        LINE, workspace=folder, record_folder="record", consent="partial-access"
    )
    await flow.run()
    return flow


async def test_waiting_flow_shows_nodes_edges_and_waits(tmp_path: Path) -> None:
    stage = FlowStage(
        tmp_path, *hands("Node `owner-intake` started", "record", "plan.md", "write"), ASKS
    )
    async with stage.flows("owner", "developer") as flows:
        flow = await ran(flows, tmp_path)
        view = flow_view(
            await flow.state(),
            await flow.waiting(),
            is_running=True,
            can_resume=False,
            faults=(),
            error=None,
        )
        assert [(each.id, each.state, each.reason) for each in view.nodes] == [
            ("owner-intake", "completed", None),
            ("write", "waiting", "prompt-human"),
            ("close", "pending", None),
        ]
        assert [(each.state, each.artifact) for each in view.edges] == [
            ("done", "plan.md"),
            ("plain", None),
        ]
        assert [(each.role, each.state) for each in view.roles] == [
            ("owner", "pending"),
            ("developer", "waiting"),
        ]
        (wait,) = view.waits
        assert (wait.topic, wait.target, wait.choices) == ("prompt-human", "write", [])
        summary = summary_of(
            await flow.state(), await flow.waiting(), is_running=True, started_at=0
        )
        assert (summary.waits, summary.nodes) == (1, {"completed": 1, "waiting": 1, "pending": 1})


async def test_view_of_a_closed_flow_shows_its_pending_role_reviews(tmp_path: Path) -> None:
    stage = FlowStage(
        tmp_path,
        *hands("Node `owner-intake` started", "record", "plan.md", "write"),
        *hands("Node `write` started", "record", "page.md", "close"),
        ends("Node `close` started", "forward-pass-closed"),
    )
    async with stage.flows("owner", "developer") as flows:
        flow = await ran(flows, tmp_path)
        await flow.choose_improvement("graph-based")
        view = flow_view(
            await flow.state(), (), is_running=False, can_resume=True, faults=(), error=None
        )
        assert view.improvement is not None
        assert view.improvement.mode == "graph-based"
        assert {each.role for each in view.improvement.roles} == {"owner", "developer"}
        assert {each.state for each in view.roles} == {"pending"}
