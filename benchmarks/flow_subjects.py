"""The possible factors of the cost of flows: their nodes, their past and their number."""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.flows import AGAIN, NODES, line_of, past_of, runtime_of
from benchmarks.operations import LINEAR, Operation
from perdure.client.flows.flow import Flow
from perdure.client.flows.flows import Flows
from perdure.client.store import Store
from perdure.session.flows.graph import Graph
from perdure.session.messages import user

HUNDRED = 100


async def nodes(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Run a flow of `size` nodes in a line, from its first node to its last."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-flow-")))
    graph = line_of(size)
    flows = await stack.enter_async_context(Flows(runtime_of(store, graph)))
    for node in graph.nodes:
        (folder / f"{node.id}.md").write_text(f"what {node.id} made")
    flow = await flows.start(graph, id="line", workspace=folder, record_folder=folder)
    return [
        Operation("run the whole flow", flow.run, LINEAR, is_once=True),
        Operation("read the flow's state", flow.state),
        Operation("open the flow", lambda: flows.open("line"), LINEAR),
        Operation("read what the flow waits for", flow.waiting),
        Operation("list the questions of the store", store.questions, LINEAR),
        Operation("list the flows", flows.list, LINEAR),
    ]


async def flow_past(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create a flow of a hundred nodes with `size` log entries of repeated handoffs."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-flow-")))
    graph = line_of(HUNDRED)
    flows = await stack.enter_async_context(Flows(runtime_of(store, graph)))
    flow = await _begun(flows, graph, "past", folder)
    (folder / "past" / AGAIN).write_text("It has to be better.")
    await past_of(store.backend, flow.id, size, folder)
    await flow.state()
    return [
        Operation("read the flow's state", flow.state),
        Operation("open the flow", lambda: flows.open("past")),
        Operation("read what the flow waits for", flow.waiting),
        Operation("list the questions of the store", store.questions),
        Operation("list the flows", flows.list),
        Operation("run the flow's nodes", flow.run, is_once=True),
    ]


async def flows(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create `size` flows that wait to be run."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-flow-")))
    graph = line_of(NODES)
    made = await stack.enter_async_context(Flows(runtime_of(store, graph)))
    for number in range(size):
        await _begun(made, graph, f"flow-{number}", folder)
    session = await store.create()
    return [
        Operation("open one flow", lambda: made.open("flow-0")),
        Operation("append an entry to a session", lambda: session.append(user("more"))),
        Operation("list the newest 50 sessions", store.recent),
        Operation("list the questions of the store", store.questions, LINEAR),
        Operation("list the flows", made.list, LINEAR),
    ]


async def _begun(flows: Flows, graph: Graph, id: str, folder: Path) -> Flow:
    """Start a flow whose artifacts exist already, so no tool has to write them."""
    record = folder / id
    record.mkdir()
    for node in graph.nodes:
        (record / f"{node.id}.md").write_text(f"what {node.id} made")
    return await flows.start(graph, id=id, workspace=folder, record_folder=record)
