"""Random flows, random behaviour of roles and people, and kills: what must hold, holds always.

No role has two turns at once, no handoff is lost or delivered twice, no artifact is used again, and
a flow that stands still has ended, waits for a person, or says why it cannot go on.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from perdure.engine.flows.journal import Journal
from perdure.engine.flows.rules import people
from perdure.engine.flows.rules.improvement import FEEDBACK_ROLE
from perdure.engine.flows.rules.reflecting import assigned_path
from perdure.engine.flows.rules.structure import faults_of
from perdure.engine.flows.rules.waiting import waits_in
from perdure.engine.flows.runner import FlowRunner
from perdure.engine.turns.companion import Companion
from perdure.errors import FlowRefusal
from perdure.session.codec import body_of
from perdure.session.flows.fold import flow_state, state_after
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph, edge_key
from perdure.session.flows.kinds import HandoffMade, NodeClaimed
from perdure.session.flows.run import FlowState
from perdure.session.notes import SideBody
from perdure.stores.in_memory import MemoryStore
from perdure.stores.protocol import Lease
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.flow_log import FLOW
from tests.fakes.scripted_roles import ScriptedRoles, begun, ground, hand, signal

T = TypeVar("T")

ROLES = ("owner", "developer", "developer_1", "reviewer", "writer")
ENDS = ("aborted", "error", "length")
SIGNALS = ("prompt-human", "await-handoff", "forward-pass-closed", "meta-analysis-complete")

MOST_TURNS = 80
"""Of one flow; after them every role only asks."""


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A workflow that can run: 1 to 30 nodes, edges from earlier to later ones."""
    inner = draw(st.integers(0, 28))
    if inner == 0 and draw(st.booleans()):
        return Graph("alone", (FlowNode("owner-intake", "owner"),))
    middle = [
        FlowNode(
            f"n{n}",
            draw(st.sampled_from(ROLES)),
            has_human=draw(st.integers(0, 7)) == 0,
            awaits_all_inputs=draw(st.booleans()),
        )
        for n in range(inner)
    ]
    nodes = [FlowNode("owner-intake", "owner"), *middle, FlowNode("end", "owner")]
    pairs: set[tuple[int, int]] = set()
    for place in range(1, len(nodes)):
        for source in draw(st.sets(st.integers(0, place - 1), min_size=1, max_size=2)):
            pairs.add((source, place))
    with_way_on = {source for source, _ in pairs}
    pairs |= {(n, len(nodes) - 1) for n in range(len(nodes) - 1) if n not in with_way_on}
    edges = tuple(FlowEdge(nodes[a].id, nodes[b].id) for a, b in sorted(pairs))
    return Graph("random", tuple(nodes), edges)


class RandomRoles(ScriptedRoles):
    """Roles that do what chance says. `killed` is set when a turn stands at the process's death."""

    def __init__(self, world: FlowWorld, chance: random.Random, dies_at: int | None) -> None:
        super().__init__(world.store, world.clock, {role: [] for role in (*ROLES, FEEDBACK_ROLE)})
        self.killed = asyncio.Event()
        self._world = world
        self._chance = chance
        self._turns_left = dies_at

    async def _finish(self, lease: Lease, role: str, companion: Companion) -> None:
        if self._turns_left is not None:
            self._turns_left -= 1
            if self._turns_left < 0:
                self.killed.set()
                await asyncio.Event().wait()
        state = await self._world.state()
        self.script[role].append(self._world.answer(state, role, self._chance))
        await super()._finish(lease, role, companion)


class FlowWorld(RuleBasedStateMachine):
    """One flow; each rule is something that happens to it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-flow-"))
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock, random=SeededRandom(1))
        self.artifacts = 0
        self.turns = 0
        self.has_stopped = False

    def teardown(self) -> None:
        self.loop.close()
        shutil.rmtree(self.folder)

    def done(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives."""
        return self.loop.run_until_complete(asyncio.wait_for(work, 30))

    async def state(self) -> FlowState:
        """Where the flow stands, read from its whole log."""
        entries = await self.store.entries(FLOW)
        return flow_state((entry, body_of(entry)) for entry in entries)

    # ------------------------------------------------------------ what happens

    @initialize(graph=graphs())
    def begin(self, graph: Graph) -> None:
        assert faults_of(graph) == []
        self.done(begun(self.store, self.clock, graph, self.folder))

    @rule(seed=st.integers(0, 2**32), dies_at=st.none() | st.integers(0, 8))
    def run(self, seed: int, dies_at: int | None) -> None:
        self.done(self._run(random.Random(seed), dies_at))

    async def _run(self, chance: random.Random, dies_at: int | None) -> None:
        roles = RandomRoles(self, chance, dies_at)
        found = ground(self.store, self.clock, self.folder)
        running = asyncio.ensure_future(
            FlowRunner(found, roles, self.clock, self.store.changes).run()
        )
        killed = asyncio.ensure_future(roles.killed.wait())
        await asyncio.wait((running, killed), return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        self.has_stopped = running.done()
        if running.done():
            running.result()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert all(most == 1 for most in roles.most_at_once.values()), roles.most_at_once

    @rule(whom=st.sampled_from((*ROLES, "owner-intake", "n0", "n1", "n2", "end", None)))
    def reply(self, whom: str | None) -> None:
        self._decide(lambda state: people.reply(state, "go on", "me", whom))

    @rule(place=st.integers(0, 5), is_let=st.booleans())
    def answer_what_waits(self, place: int, is_let: bool) -> None:
        waiting = waits_in(self.done(self.state()))
        if not waiting:
            return
        chosen = waiting[place % len(waiting)]
        match chosen.topic:
            case "handoff-approval":
                node = chosen.target
                self._decide(
                    lambda state: (
                        people.approve(state, "me", node)
                        if is_let
                        else people.decline(state, "me", node, "no")
                    )
                )
            case "improvement-choice":
                mode = "graph-based" if place % 2 else "parallel"
                self._decide(lambda state: people.choose_improvement(state, mode, "me"))
            case "feedback-consent":
                self._decide(lambda state: people.decide_feedback(state, "me", is_granted=is_let))
            case _:
                self._decide(lambda state: people.reply(state, "go on", "me", chosen.target))

    @rule(whom=st.sampled_from((*ROLES, "owner-intake", "n0", "n3", "end")))
    def stop(self, whom: str) -> None:
        self._decide(lambda state: people.stop(state, "me", whom))

    def _decide(self, decide: Callable[[FlowState], SideBody]) -> None:
        self.has_stopped = False
        journal = Journal(self.store, FLOW, self.clock)
        with suppress(FlowRefusal):
            self.done(journal.append(lambda state: (decide(state),)))

    # ------------------------------------------------------------ what roles answer

    def answer(self, state: FlowState, role: str, chance: random.Random) -> str:
        """How the turn that `role` has ends."""
        self.turns += 1
        if self.turns > MOST_TURNS:
            return signal("prompt-human")
        if state.run.improvement_phase is not None:
            return self._reflection(state, role, chance)
        running = [
            node
            for node in state.graph.nodes
            if node.id in state.run.running_nodes and node.role == role
        ]
        assert len(running) == 1, (role, running)
        return self._work(state, running[0].id, chance)

    def _work(self, state: FlowState, node: str, chance: random.Random) -> str:
        kind = chance.choice(("on",) * 14 + ("back", "reuse", "far", "words", *ENDS, *SIGNALS))
        graph = state.graph
        owed = [
            target
            for target in graph.successors(node)
            if edge_key(node, target) not in state.run.completed_handoffs
        ]
        if kind in ENDS:
            return kind
        if kind in SIGNALS:
            return signal(kind)
        if kind == "back" and graph.predecessors(node):
            return self._hands(chance.choice(graph.predecessors(node)))
        if kind == "reuse":
            return hand(self.folder, chance.choice(graph.nodes).id, name="a0.md")
        if kind == "far":
            return self._hands(chance.choice(graph.nodes).id)
        if kind == "words":
            return "I am done."
        if not graph.successors(node):
            return signal("forward-pass-closed")
        some = owed or list(graph.successors(node))
        return self._hands(*chance.sample(some, chance.randint(1, len(some))))

    def _hands(self, *targets: str) -> str:
        self.artifacts += 1
        return hand(self.folder, *targets, name=f"a{self.artifacts}.md")

    def _reflection(self, state: FlowState, role: str, chance: random.Random) -> str:
        if chance.random() < 0.2:
            return chance.choice((*ENDS, "words", signal("prompt-human")))
        path = assigned_path(state, role)
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"what {role} found")
        if role == FEEDBACK_ROLE:
            return signal("backward-pass-complete", artifact_path=path)
        return signal("meta-analysis-complete", findings_path=path)

    # ------------------------------------------------------------ what holds

    @invariant()
    def no_handoff_is_lost_or_delivered_twice(self) -> None:
        if self.turns == 0:
            return
        queued: dict[str, list[str]] = {}
        sent: Counter[str] = Counter()
        for entry in self.done(self.store.entries(FLOW)):
            body = body_of(entry)
            if isinstance(body, HandoffMade):
                sent.update({target.artifact for target in body.targets})
                for made in body.targets:
                    queued.setdefault(edge_key(body.node, made.node), []).append(made.artifact)
            if isinstance(body, NodeClaimed):
                for key in (*body.delivered, *body.superseded):
                    assert queued.pop(key)
        receiving = self.done(self.state()).run.receiving_handoff
        assert {key: tuple(paths) for key, paths in queued.items()} == dict(receiving)
        assert all(count == 1 for count in sent.values()), sent

    @invariant()
    def no_role_works_twice_at_once(self) -> None:
        if self.turns == 0:
            return
        state: FlowState | None = None
        for entry in self.done(self.store.entries(FLOW)):
            body = body_of(entry)
            state = (
                flow_state([(entry, body)]) if state is None else state_after(state, entry, body)
            )
            nodes = [state.graph.node(id) for id in state.run.running_nodes]
            roles = Counter(node.role for node in nodes if node is not None)
            assert all(count == 1 for count in roles.values()), roles

    @invariant()
    def a_flow_that_stands_still_has_ended_or_waits_for_a_person(self) -> None:
        if not self.has_stopped:
            return
        state = self.done(self.state())
        assert state.run.status == "completed" or waits_in(state), state.run


TestFlows = FlowWorld.TestCase
TestFlows.settings = settings(
    max_examples=40,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
