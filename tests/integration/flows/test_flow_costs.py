"""The number of entries read and of commits made per node is independent of the flow's length."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from perdure.session.entries import Entry
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.ids import StreamId
from perdure.stores.protocol import Commit, CommitResult
from tests.fakes.flow_stage import FlowStage, ends, hands

RECORD = "record"
SIZES = (8, 64)


async def costs_of(folder: Path, nodes: int) -> tuple[float, float]:
    """Return the entries read and the commits per node, for a flow of `nodes` nodes in a line."""
    ids = ["owner-intake", *(f"step-{number}" for number in range(nodes - 2)), "end"]
    roles = ["owner", *["developer"] * (nodes - 2), "owner"]
    graph = Graph(
        "a line",
        tuple(FlowNode(*each) for each in zip(ids, roles, strict=True)),
        tuple(FlowEdge(a, b) for a, b in pairwise(ids)),
    )
    rules = [rule for a, b in pairwise(ids) for rule in hands(f"Node `{a}`", RECORD, f"{a}.md", b)]
    stage = FlowStage(folder, *rules, ends("Node `end`", "forward-pass-closed"))
    read, made = stage.memory.entries, stage.memory.commit
    given = commits = 0

    async def counted(
        stream: StreamId, after: int = -1, limit: int | None = None, **chosen: Any
    ) -> list[Entry]:
        nonlocal given
        found = await read(stream, after, limit, **chosen)
        given += len(found)
        return found

    async def counted_commit(commit: Commit) -> CommitResult:
        nonlocal commits
        commits += 1
        return await made(commit)

    async with stage.flows("owner", "developer") as flows:
        flow = await flows.start(
            graph, workspace=folder, record_folder=RECORD, consent="full-access"
        )
        stage.memory.entries, stage.memory.commit = counted, counted_commit
        run = await flow.run()
    assert len(run.completed_handoffs) == nodes - 1
    return given / nodes, commits / nodes


async def test_cost_per_node_does_not_grow_with_the_flow(tmp_path: Path) -> None:
    found: list[tuple[float, float]] = []
    for nodes in SIZES:
        folder = tmp_path / str(nodes)
        folder.mkdir()
        found.append(await costs_of(folder, nodes))
    few, many = found
    assert many[0] <= few[0]
    assert many[1] <= few[1]
