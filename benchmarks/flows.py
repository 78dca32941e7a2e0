"""Claim: handing work on costs at most 3 commits and 5 ms beyond them, however long a flow's past.

Flows of ten nodes in a line, three roles, no tools; a transition is a whole turn of a role on the
scripted model. The same turns are run without a flow beside them, and what is left is the flow's:
scheduler, log, files. Counted is what the thread of the event loop computed, as for the engine,
since that depends least on what else the machine does. The past of a long flow is what people
decided in it before. At last 200 flows run at once.
"""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path
from typing import cast

import msgspec

import perdure
from benchmarks.engine import TimedStore
from benchmarks.figures import Figure, Run
from perdure.client.flows.flow import Flow
from perdure.client.flows.flows import Flows
from perdure.client.store import Store
from perdure.models.scenario import Reply, Say, Scenario, When
from perdure.models.scripted import ScriptedModel
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.stores.protocol import SessionStore

NODES = 10
FLOWS = 200
PAST = 5_000
ALONE = 12
MOST_COMMITS = 3
MOST_MS = 5.0
CLAIM = "flows, handing work on"
ROLES = ("owner", "developer", "reviewer")


class _Spent(msgspec.Struct, frozen=True):
    """What running some flows took, by transition. Units: milliseconds."""

    commits: float
    computed_ms: float
    done: int


async def measure(run: Run) -> list[Figure]:
    """One after the other with a short and a long past, and many at once."""
    past, flows = (PAST // 10, FLOWS // 10) if run.is_quick else (PAST, FLOWS)
    async with perdure.open(f"sqlite:///{run.folder / 'flows.db'}") as store:
        timed = TimedStore(store.backend)
        store.backend = cast("SessionStore", timed)  # all else goes through to the real one
        turn_ms = await _turns(store)
        async with Flows(_runtime(store)) as made:
            short = await _one_by_one(run, made, timed, 0)
            long = await _one_by_one(run, made, timed, past)
            many = await _at_once(run, made, timed, flows)
    return [
        Figure(CLAIM, "commits", short.commits, "", limit=MOST_COMMITS),
        Figure(CLAIM, "the turn by itself", turn_ms, "ms"),
        *(
            Figure(
                CLAIM, f"besides its turn, {what}", spent.computed_ms - turn_ms, "ms", None, MOST_MS
            )
            for what, spent in (
                ("a new flow", short),
                (f"after {past:,} decisions", long),
                (f"{flows} flows at once", many),
            )
        ),
        Figure(CLAIM, f"of {flows} flows at once, completed", many.done, "", least=flows),
    ]


async def _one_by_one(run: Run, flows: Flows, timed: TimedStore, past: int) -> _Spent:
    made = [await _begun(run, flows, f"alone-{past}-{n}") for n in range(ALONE)]
    for flow in made if past else ():
        await _decided(flow, past // ALONE)
    return await _spent(timed, made, is_at_once=False)


async def _at_once(run: Run, flows: Flows, timed: TimedStore, count: int) -> _Spent:
    made = [await _begun(run, flows, f"many-{n}") for n in range(count)]
    return await _spent(timed, made, is_at_once=True)


async def _turns(store: Store) -> float:
    """What the same turns compute when they are no flow's. Units: milliseconds a turn."""
    runtime, computed_s = _runtime(store), 0.0
    for _ in range(ALONE):
        chats = [await runtime.start(role) for role in ROLES]
        computed = time.thread_time()
        for n, edge in enumerate(_graph().edges):
            await chats[n % len(chats)].send(f"Node `{edge.source}` started.")
        computed_s += time.thread_time() - computed
    return computed_s * 1000 / (ALONE * (NODES - 1))


async def _spent(timed: TimedStore, made: list[Flow], *, is_at_once: bool) -> _Spent:
    commits, computed = timed.commits, time.thread_time()
    if is_at_once:
        runs = list(await asyncio.gather(*(flow.run() for flow in made)))
    else:
        runs = [await flow.run() for flow in made]
    computed_s, handed = time.thread_time() - computed, len(made) * NODES
    return _Spent(
        commits=(timed.commits - commits) / handed,
        computed_ms=computed_s * 1000 / handed,
        done=sum(each.status == "awaiting_improvement_choice" for each in runs),
    )


async def _begun(run: Run, flows: Flows, name: str) -> Flow:
    """A flow whose artifacts are there already, so that no tool has to write them."""
    record = Path(run.folder) / name
    record.mkdir()
    for node in _graph().nodes:
        (record / f"{node.id}.md").write_text(f"what {node.id} of {name} made")
    flow = await flows.start(_graph(), workspace=run.folder, record_folder=record)
    await flow.state()
    return flow


async def _decided(flow: Flow, count: int) -> None:
    for _ in range(count):
        await flow.consent("full-access")


def _graph() -> Graph:
    ids = ["owner-intake", *(f"step-{n}" for n in range(1, NODES - 1)), "end"]
    roles = ["owner", *(ROLES[1 + n % 2] for n in range(NODES - 2)), "owner"]
    nodes = tuple(FlowNode(id, role) for id, role in zip(ids, roles, strict=True))
    edges = tuple(FlowEdge(*pair) for pair in pairwise(ids))
    return Graph("ten in a line", nodes, edges)


def _runtime(store: Store) -> perdure.Runtime:
    rules: list[Reply] = []
    for edge in _graph().edges:
        block = f"target_node_id: {edge.target}\nartifact_path: {edge.source}.md"
        rules.append(_reply(edge.source, block))
    rules.append(_reply("end", "type: forward-pass-closed"))
    model = ScriptedModel(Scenario(name="bench", rules=tuple(rules)), clock=store.outside.clock)
    agents = [perdure.Agent(role, model="scripted:bench") for role in ROLES]
    return perdure.Runtime(store, agents, models=model)


def _reply(node: str, block: str) -> Reply:
    text = f"It is done.\n```handoff\n{block}\n```"
    return Reply(when=When(user_contains=f"Node `{node}`"), steps=(Say(text),))
