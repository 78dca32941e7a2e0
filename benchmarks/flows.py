"""Claim: a handoff costs at most 3 commits and 5 ms of other work, however long the past is.

The flows have ten or 500 nodes in a line, three roles and no tools. A transition is the work
between one handoff and the next: the scheduler, the role's whole turn on the scripted model, its
lease, the files. The wall time of a transition is reported without its commits: the commits are
repeated alone in another store, with the same concurrency, and the time of the repetition is
subtracted. That time is shown separately. The CPU times of a transition, and of the same turns
outside a flow, are also shown, because CPU time depends less on the load of the machine. The past
of a flow consists of work that was handed over and handed back.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

import perdure
from benchmarks.figures import CLOCK, Figure, Run, median, opened
from perdure.client.flows.flow import Flow
from perdure.client.flows.flows import Flows
from perdure.client.flows.role_turns import as_role
from perdure.client.store import Store
from perdure.engine.flows.journal import Journal
from perdure.models.protocol import Delta, ModelInfo, ModelRequest, StreamEnd, TextDelta
from perdure.session.codec import new_side
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph, edge_key
from perdure.session.flows.kinds import HandoffMade, HandoffTarget, NodeClaimed
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import SessionStarted, SideBody
from perdure.stores.protocol import Commit, CommitResult, Lease, Write
from perdure.stores.session_store import SessionStore

NODES = 10
MANY_NODES = 500
FLOWS = 200
ALONE = 12
PASTS = (0, 500, 5_000)
_ROUNDS = count()
LONG_PASTS = (0, 25_000)
MOST_COMMITS = 3
MOST_MS = 5.0
HOUR_MS = 3_600_000
CLAIM = "flow: from one handoff to the next"
ROLES = ("owner", "developer", "reviewer")
FIRST = FlowNode("owner-intake", "owner")
SECOND = FlowNode("step-1", "developer")
AGAIN = "again.md"
_NODE = re.compile(r"Node `([^`]+)`")

T = TypeVar("T")

replace = msgspec.structs.replace


def line_of(nodes: int) -> Graph:
    """Return a line of `nodes` nodes, each with an edge to the next."""
    line = (
        *(FIRST, SECOND),
        *(FlowNode(f"step-{n}", ROLES[2 - n % 2]) for n in range(2, nodes - 1)),
        FlowNode("end", "owner"),
    )
    edges = tuple(FlowEdge(a.id, b.id) for a, b in pairwise(line))
    return Graph(f"{nodes} in a line", line, edges)


GRAPH, LONG = line_of(NODES), line_of(MANY_NODES)


class _Spent(msgspec.Struct, frozen=True):
    """The cost of running some flows, per transition. Units: milliseconds."""

    commits: float
    beyond_ms: float
    raw_ms: float
    computed_ms: float
    raw_computed_ms: float
    done: int


_Took = tuple[float, float]
"""The seconds that some work took: wall time and CPU time."""


class _Recording:
    """A store that records its commits, to repeat them in another store."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self.made: list[Commit] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, commit: Commit) -> CommitResult:
        committed = await self._store.commit(commit)
        self.made.append(commit)
        return committed


async def measure(run: Run) -> list[Figure]:
    """Measure single flows with a short and a long past, and many flows concurrently."""
    flows = FLOWS // 10 if run.is_quick else FLOWS
    async with perdure.open(f"sqlite:///{run.folder / 'flows.db'}") as store:
        recording = _Recording(store.backend)
        store.backend = cast("SessionStore", recording)  # all else goes through to the real one
        turn_ms = await _turns(store)
        async with Flows(runtime_of(store, GRAPH)) as made:
            place = _Place(run, made, recording, GRAPH)
            alone = {past: await place.alone(past) for past in PASTS}
            many = await place.spent(flows, 0)
        async with Flows(runtime_of(store, LONG)) as made:
            place = _Place(run, made, recording, LONG)
            long = {past: await place.spent(1, past) for past in LONG_PASTS}
    rows = {
        **{_name("flow", past): each for past, each in alone.items()},
        **{_name(f"flow of {MANY_NODES} nodes", past): each for past, each in long.items()},
        f"{flows} concurrent flows": many,
    }
    done = f"completed flows, of {flows} concurrent flows"
    return [
        Figure(CLAIM, "commits per handoff", alone[0].commits, "", limit=MOST_COMMITS),
        *_figures(rows),
        Figure(CLAIM, "CPU time of a turn outside a flow, with commits", turn_ms, "ms"),
        Figure(CLAIM, done, many.done, "", least=flows),
    ]


def _name(flow: str, past: int) -> str:
    return f"{flow} with {past:,} earlier entries" if past else f"new {flow}"


def _figures(rows: Mapping[str, _Spent]) -> list[Figure]:
    """Return the figures of each flow, ordered by kind of figure."""

    def without(time: str, what: str, spent_ms: float, raw_ms: float) -> Figure:
        name = f"{time} per handoff without commits, {what} (Raw: the commits)"
        return Figure(CLAIM, name, spent_ms, "ms", raw_ms, MOST_MS)

    return [
        *(without("time", what, each.beyond_ms, each.raw_ms) for what, each in rows.items()),
        *(
            without("CPU time", what, each.computed_ms - each.raw_computed_ms, each.raw_computed_ms)
            for what, each in rows.items()
        ),
        *(
            Figure(CLAIM, f"CPU time per handoff with commits, {what}", each.computed_ms, "ms")
            for what, each in rows.items()
        ),
    ]


class _Place:
    """The flows to run, and the folder in which their commits are repeated."""

    def __init__(self, run: Run, flows: Flows, recording: _Recording, graph: Graph) -> None:
        self._run = run
        self._flows = flows
        self._recording = recording
        self._graph = graph

    async def alone(self, past: int) -> _Spent:
        """Return the median cost of single flows with a past of `past` entries."""
        found = [await self.spent(1, past) for _ in range(ALONE)]
        return _Spent(
            commits=median([each.commits for each in found]),
            beyond_ms=median([each.beyond_ms for each in found]),
            raw_ms=median([each.raw_ms for each in found]),
            computed_ms=median([each.computed_ms for each in found]),
            raw_computed_ms=median([each.raw_computed_ms for each in found]),
            done=sum(each.done for each in found),
        )

    async def spent(self, number: int, past: int) -> _Spent:
        """Return the cost of running `number` flows concurrently, each with `past` entries."""
        recording = self._recording
        recording.made.clear()
        flows = [await self._begun(past) for _ in range(number)]
        before = list(recording.made)
        recording.made.clear()
        began, computed = time.perf_counter(), time.process_time()
        runs = await asyncio.gather(*(flow.run() for flow in flows))
        wall_s, computed_s = time.perf_counter() - began, time.process_time() - computed
        made = list(recording.made)
        raw_s, raw_computed_s = await self._again(before, made)
        nodes = len(self._graph.nodes)
        share = 1000 / (number * nodes)
        return _Spent(
            commits=len(made) / (number * nodes),
            beyond_ms=(wall_s - raw_s) * share,
            raw_ms=raw_s * share,
            computed_ms=computed_s * share,
            raw_computed_ms=raw_computed_s * share,
            done=sum(run.status == "awaiting_improvement_choice" for run in runs),
        )

    async def _begun(self, past: int) -> Flow:
        """Start a flow whose artifacts exist already, so no tool has to write them."""
        name = StreamId(f"flow-{next(_ROUNDS)}")
        record = Path(self._run.folder) / name
        record.mkdir()
        for node in self._graph.nodes:
            (record / f"{node.id}.md").write_text(f"what {node.id} of {name} made")
        flow = await self._flows.start(
            self._graph, id=name, workspace=self._run.folder, record_folder=record
        )
        if past:
            store = cast("SessionStore", self._recording)
            await past_of(store, name, past, self._run.folder)
            (record / AGAIN).write_text("It has to be better.")
        await flow.state()
        return flow

    async def _again(self, before: Sequence[Commit], made: Sequence[Commit]) -> _Took:
        """Return the cost of the commits `made` alone, in a store with the commits `before`."""
        file = Path(self._run.folder) / f"again-{next(_ROUNDS)}.db"
        store = await opened(file, "full")
        for commit in before:
            await store.commit(commit)
        creating = [commit for commit in made if any(write.create for write in commit.writes)]
        by_flow: dict[str, list[Commit]] = {}
        for commit in made:
            if commit not in creating:
                by_flow.setdefault(_flow_of(commit), []).append(commit)
        leases: dict[StreamId, Lease] = {}
        created = await _made([[commit] for commit in creating], store, leases)
        for stream in _led_already(made) - leases.keys():
            leases[stream] = await store.acquire_lease(stream, "benchmark", HOUR_MS)
        took = await _made(list(by_flow.values()), store, leases)
        await store.close()
        return created[0] + took[0], created[1] + took[1]


async def _made(
    commits: Sequence[Sequence[Commit]], store: SessionStore, leases: dict[StreamId, Lease]
) -> _Took:
    """Run sequences of commits concurrently; return the wall time and the CPU time in seconds."""

    async def some(sequence: Sequence[Commit]) -> None:
        for commit in sequence:
            done = await store.commit(_under(commit, leases))
            leases.update({lease.stream: lease for lease in done.leases})

    began, computed = time.perf_counter(), time.process_time()
    await asyncio.gather(*(some(sequence) for sequence in commits))
    return time.perf_counter() - began, time.process_time() - computed


def _led_already(made: Sequence[Commit]) -> set[StreamId]:
    """Return the sessions whose lease was acquired separately, not in one of the commits `made`."""
    found: dict[StreamId, bool] = {}
    for write in (write for commit in made for write in commit.writes):
        if write.lease is not None or write.taking is not None:
            found.setdefault(write.stream, write.taking is None)
    return {stream for stream, is_led in found.items() if is_led}


def _flow_of(commit: Commit) -> str:
    return commit.writes[0].stream.partition("__")[0]


def _under(commit: Commit, leases: Mapping[StreamId, Lease]) -> Commit:
    """Return `commit` with the leases of another store."""
    writes = [
        replace(write, lease=leases[write.stream]) if write.lease is not None else write
        for write in commit.writes
    ]
    return replace(commit, writes=tuple(writes))


# ---------------------------------------------------------------- test data


async def past_of(store: SessionStore, flow: StreamId, past: int, folder: Path) -> None:
    """Append `past` entries of handoffs between two nodes; the last one is to the first node."""
    for role in (FIRST.role, SECOND.role):
        await store.commit(_session(flow, role, str(folder)))
    await Journal(store, flow, CLOCK).append(lambda _: _back_and_forth(flow, past))


def _session(flow: StreamId, role: str, folder: str) -> Commit:
    """Return the commit that creates the session of a role."""
    agent = as_role(perdure.Agent(role, model="scripted:bench"), "continue")
    started = SessionStarted(agent.snapshot(), {"working_dir": folder}, f"You are the {role}.")
    at = CLOCK.now_ms()
    header = StreamHeader(StreamId(f"{flow}__{role}"), at, origin="role", parent=flow)
    write = Write(stream=header.id, create=header, entries=(new_side(started),))
    return Commit(writes=(write,), at=at)


def _back_and_forth(flow: StreamId, past: int) -> list[SideBody]:
    """Return `past` entries of handoffs between two nodes; the last one is to the first node."""
    bodies: list[SideBody] = []
    there, back = edge_key(FIRST.id, SECOND.id), edge_key(SECOND.id, FIRST.id)
    rounds = past // 4
    for n in range(rounds):
        again = AGAIN if n == rounds - 1 else f"again-{n}.md"
        bodies += [
            _claimed(flow, FIRST, back if n else None),
            HandoffMade(FIRST.id, (HandoffTarget(SECOND.id, f"try-{n}.md", f"{n}"),)),
            _claimed(flow, SECOND, there),
            HandoffMade(SECOND.id, (HandoffTarget(FIRST.id, again, f"{-n - 1}"),)),
        ]
    return bodies


def _claimed(flow: StreamId, node: FlowNode, key: str | None) -> NodeClaimed:
    session = StreamId(f"{flow}__{node.role}")
    delivered = () if key is None else (key,)
    return NodeClaimed(node.id, node.role, session, "handoff" if key else "start", delivered)


async def _turns(store: Store) -> float:
    """Measure the CPU time of the same turns outside a flow. Units: milliseconds per turn."""
    runtime, computed_s = runtime_of(store, GRAPH), 0.0
    for _ in range(ALONE):
        chats = [await runtime.start(role) for role in ROLES]
        computed = time.process_time()
        for n, edge in enumerate(GRAPH.edges):
            await chats[n % len(chats)].send(f"Node `{edge.source}` started.")
        computed_s += time.process_time() - computed
    return computed_s * 1000 / (ALONE * (NODES - 1))


def runtime_of(store: Store, graph: Graph) -> perdure.Runtime:
    """Return a runtime whose model hands over along the edges of `graph`."""
    agents = [perdure.Agent(role, model="scripted:bench") for role in ROLES]
    return perdure.Runtime(store, agents, models=_Handing(graph))


class _Handing:
    """A model that hands over from each node to the next. The work is the same at each node."""

    def __init__(self, graph: Graph) -> None:
        self._blocks = {"end": "type: forward-pass-closed"} | {
            edge.source: f"target_node_id: {edge.target}\nartifact_path: {edge.source}.md"
            for edge in graph.edges
        }

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        said = next(each.text for each in reversed(request.messages) if each.role == "user")
        found = _NODE.search(said)
        block = None if found is None else self._blocks.get(found[1])
        yield TextDelta("Hm." if block is None else f"It is done.\n```handoff\n{block}\n```")
        yield StreamEnd("stop")
