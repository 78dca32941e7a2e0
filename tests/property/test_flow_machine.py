"""Random flows, random behaviour of roles and people, and kills: what must hold, holds always.

No role has two turns at once, no handoff is lost or delivered twice, no artifact is used again, and
a flow that stands still has ended, waits for a person, or says why it cannot go on. What may happen
is said by `FlowOracle` in another way than the engine says it. At last people answer all that waits
and roles do as they should: then most flows end.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, currently_in_test_context, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure.engine.flows.files.drawing import WORKFLOW, Drawing
from perdure.engine.flows.files.record import RecordFolder
from perdure.engine.flows.files.workflow_text import workflow_text
from perdure.engine.flows.joined import Ground
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.rules import people
from perdure.engine.flows.rules.structure import faults_of
from perdure.engine.flows.rules.waiting import Waiting, waits_in
from perdure.engine.flows.runner import FlowRunner
from perdure.errors import FlowRefusal, SessionNotFound
from perdure.session.codec import body_of
from perdure.session.flows.fold import flow_state
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.flows.kinds import RepairAsked, RepairCode
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.session.messages import MESSAGE
from perdure.session.notes import SideBody
from perdure.stores.in_memory import MemoryStore
from tests.fakes.clock import SeededRandom
from tests.fakes.flow_log import FLOW, graph
from tests.fakes.flow_oracle import FlowOracle, Told
from tests.fakes.random_flows import (
    ROLES,
    STRANGER,
    TOLD,
    WRONG,
    Answer,
    AtOnce,
    Desk,
    HastyClock,
    Process,
    RandomRoles,
    any_answer,
    good_answer,
    graphs,
    reflection,
)
from tests.fakes.scripted_roles import ScriptedRoles, begun, ground, signal

T = TypeVar("T")

MOST_TURNS = 120
"""Of one flow; after them every role only asks."""

MOST_ROUNDS = 12
"""Of answering and going on, at the end."""

LONGEST_S = 30
"""Of one thing that happens: a flow that never stands still is stopped then."""

WHOM = (*ROLES, STRANGER, "owner-intake", "n0", "n1", "n2", "n3", "end")
EDITS = ("mended", "mended", "broken", "shrunk", "grown")


class FlowWorld(RuleBasedStateMachine):
    """One flow; each rule is something that happens to it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(AtOnce())
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-flow-"))
        self.clock = HastyClock()
        self.store = MemoryStore(clock=self.clock, random=SeededRandom(1))
        self.oracle = FlowOracle()
        self.dead: set[str] = set()
        self.processes = 0
        self.turns = 0
        self.serial = 0
        self.seen = -1
        self.is_healthy = True
        self.has_stopped = False
        self.breaks = asyncio.Event()
        self.broken: str | None = None
        """What did not hold first; all that comes after may only follow from it."""

    def teardown(self) -> None:
        try:
            if self.seen >= 0 and self.broken is None:
                self.everybody_does_as_they_should()
        finally:
            self.loop.close()
            shutil.rmtree(self.folder)

    def done(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives. Raises: AssertionError, before all else for what is broken."""
        try:
            return self.loop.run_until_complete(asyncio.wait_for(work, LONGEST_S))
        except TimeoutError:
            self.holds(False, "the flow neither ends nor waits: it goes on for ever")
            raise
        except BaseException as error:
            if self.broken is None:
                self.broken = repr(error)
                raise
            raise AssertionError(self.broken) from error

    def holds(self, is_so: object, broken: str) -> None:
        """Raise, unless `is_so`, and remember it: who catches it meanwhile does not hide it."""
        if self.broken is None and not is_so:
            self.broken = broken
            self.breaks.set()
        if self.broken is not None:
            raise AssertionError(self.broken)

    async def state(self) -> FlowState:
        """Where the flow stands, read from its whole log."""
        entries = await self.store.entries(FLOW)
        return flow_state((entry, body_of(entry)) for entry in entries)

    # ------------------------------------------------------------ what happens

    @initialize(drawn=graphs())
    def begin(self, drawn: Graph) -> None:
        assert faults_of(drawn) == []
        noted(f"{len(drawn.nodes) // 10 * 10} nodes and more")
        self.draw(drawn)
        self.done(begun(self.store, self.clock, drawn, self.folder))
        self.done(self.follow())

    @rule(
        seed=st.integers(0, 2**32),
        dies_at=st.none() | st.integers(0, 12),
        moment=st.sampled_from(("before", "after")),
        others=st.integers(0, 1),
    )
    def run(
        self, seed: int, dies_at: int | None, moment: Literal["before", "after"], others: int
    ) -> None:
        """Processes run the flow, of which the first may die at a commit."""
        chance = random.Random(seed)
        self.done(self.all_work(chance, any_answer, others, dies_at, moment))

    async def all_work(
        self,
        chance: random.Random,
        answer: Answer,
        others: int = 0,
        dies_at: int | None = None,
        moment: Literal["before", "after"] = "before",
    ) -> None:
        """Until nobody can go on, or the first process died and there is no other."""
        first = self._process(dies_at, moment)
        running = [self._running(first, chance, answer)]
        running += [self._running(self._process(), chance, answer) for _ in range(others)]
        await self._either(running[:1], first.died)
        if first.died.is_set():
            running[0].cancel()
            await asyncio.gather(running.pop(0), return_exceptions=True)
        await self._either(running)
        self.has_stopped = bool(running)

    async def _either(
        self, running: Sequence[asyncio.Task[FlowState]], died: asyncio.Event | None = None
    ) -> None:
        """Until all `running` are done, or one has `died`.

        Raises: what goes wrong in them; AssertionError as soon as something is broken.
        """
        ends = [asyncio.ensure_future(each.wait()) for each in (self.breaks, died) if each]
        left: Sequence[asyncio.Task[FlowState]] = running
        while left and not any(end.done() for end in ends):
            waiting: list[asyncio.Future[Any]] = [*left, *ends]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            left = [each for each in left if not each.done()]
        for end in ends:
            end.cancel()
        if self.breaks.is_set():
            for each in left:
                each.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            self.holds(False, "")
        for each in running:
            if each.done():
                each.result()

    def _process(
        self, dies_at: int | None = None, moment: Literal["before", "after"] = "before"
    ) -> Process:
        self.processes += 1
        return Process(self.store, f"process {self.processes}", self.dead, dies_at, moment)

    def _running(
        self, process: Process, chance: random.Random, answer: Answer
    ) -> asyncio.Task[FlowState]:
        async def meanwhile() -> None:
            if answer is any_answer and chance.random() < 0.1:
                await self._meddle(chance)

        async def answered(role: str) -> str:
            return await self._answer(role, chance, answer)

        roles = RandomRoles(process, self.clock, answered, meanwhile, chance)
        store: Any = process
        record = RecordFolder(self.folder, self.folder)
        drawing = Drawing(self.folder, self.folder)
        found = Ground(Journal(store, FLOW, self.clock), record, record, self._checks, drawing)
        runner = FlowRunner(found, roles, self.clock, self.store.changes)
        return asyncio.ensure_future(self._ran(runner, roles))

    async def _ran(self, runner: FlowRunner, roles: RandomRoles) -> FlowState:
        state = await runner.run()
        is_one = all(most == 1 for most in roles.most_at_once.values())
        self.holds(is_one, f"a role has two turns at once: {roles.most_at_once}")
        return state

    async def _checks(self) -> tuple[str, ...]:
        return () if self.is_healthy else ("a file is missing",)

    async def _meddle(self, chance: random.Random) -> None:
        """A person does something while roles are at work."""
        kind, whom = chance.choice(("stop", "stop", "reply", "edit")), chance.choice((*WHOM, None))
        if kind == "edit":
            self.edit(chance.choice(EDITS), chance.randint(0, 29))
        elif kind == "reply":
            await self._decided(lambda state: people.reply(state, "meanwhile", "me", whom))
        else:
            await self._decided(lambda state: people.stop(state, "me", whom or "owner"))

    @rule(whom=st.sampled_from((*WHOM, None)), text=st.sampled_from(("go on", "no", "")))
    def reply(self, whom: str | None, text: str) -> None:
        self._decide(lambda state: people.reply(state, text, "me", whom))

    @rule(place=st.integers(0, 5), is_let=st.booleans())
    def answer_what_waits(self, place: int, is_let: bool) -> None:
        waiting = waits_in(self.done(self.state()))
        if waiting:
            self._settle(waiting[place % len(waiting)], place, is_let=is_let)

    def _settle(self, chosen: Waiting, place: int, *, is_let: bool) -> None:
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
                mode = ("graph-based", "parallel", "none")[place % 3]
                self._decide(lambda state: people.choose_improvement(state, mode, "me"))
            case "feedback-consent":
                self._decide(lambda state: people.decide_feedback(state, "me", is_granted=is_let))
            case _:
                self._decide(lambda state: people.reply(state, "go on", "me", chosen.target))

    @rule(whom=st.sampled_from(WHOM))
    def stop(self, whom: str) -> None:
        self._decide(lambda state: people.stop(state, "me", whom))

    @rule(role=st.sampled_from(ROLES), model=st.sampled_from(("scripted:a", "scripted:b")))
    def configure(self, role: str, model: str) -> None:
        self._decide(lambda state: people.configure(state, role, model=model))

    @rule(kind=st.sampled_from(EDITS), place=st.integers(0, 29))
    def edit(self, kind: str, place: int) -> None:
        """Somebody edits the workflow file; what it draws may not be possible."""
        now = self.oracle.graph
        if kind == "broken":
            (self.folder / WORKFLOW).write_text("workflow: [")
            return
        nodes, edges = now.nodes, now.edges
        if kind == "shrunk" and len(nodes) > 2:
            gone = nodes[place % len(nodes)]
            nodes = tuple(node for node in nodes if node != gone)
            edges = tuple(edge for edge in edges if gone.id not in (edge.source, edge.target))
        count = len(nodes)
        if kind == "grown" and count in range(2, 30):
            new = FlowNode(f"new{count}", ROLES[place % len(ROLES)])
            source, last = nodes[place % (count - 1)], nodes[count - 1]
            nodes = (*nodes[: count - 1], new, last)
            edges = (*edges, FlowEdge(source.id, new.id), FlowEdge(new.id, last.id))
        self.draw(msgspec.structs.replace(now, nodes=nodes, edges=edges))

    @precondition(lambda self: self.oracle.awaited())
    @rule(place=st.integers(0, 29))
    def starve(self, place: int) -> None:
        """Somebody edits away what a node waits for, and all go on: nothing may ever come to it."""
        now, awaited = self.oracle.graph, self.oracle.awaited()
        gone = awaited[place % len(awaited)]
        instead = FlowEdge(gone.source, now.nodes[-1].id)
        edges = (*(edge for edge in now.edges if edge not in (gone, instead)), instead)
        self.draw(msgspec.structs.replace(now, edges=edges))
        self.done(self.all_work(random.Random(place), good_answer))

    def draw(self, drawn: Graph) -> None:
        """Write the flow's workflow file."""
        (self.folder / WORKFLOW).write_text(workflow_text(drawn))
        self.has_stopped = False

    @rule(is_healthy=st.booleans())
    def change_health(self, is_healthy: bool) -> None:
        self.is_healthy = is_healthy

    def _decide(self, decide: Callable[[FlowState], SideBody]) -> None:
        self.done(self._decided(decide))

    async def _decided(self, decide: Callable[[FlowState], SideBody]) -> None:
        journal = Journal(self.store, FLOW, self.clock)
        with suppress(FlowRefusal):
            await journal.append(lambda state: (decide(state),))
            self.has_stopped = False

    def everybody_does_as_they_should(self) -> None:
        """Go on with roles that do their work and people who answer: most flows end then."""
        self.is_healthy = True
        self.turns = 0
        self.draw(self.done(self.state()).graph)
        chance = random.Random(0)
        for number in range(MOST_ROUNDS):
            self.done(self.all_work(chance, good_answer))
            self.everything_holds()
            for each in waits_in(self.done(self.state())):
                self._settle(each, number, is_let=True)
            if self.oracle.is_completed:
                noted("ended")
                return

    def everything_holds(self) -> None:
        """All invariants at once."""
        self.what_happened_might_and_the_state_says_so()
        self.every_claim_was_told_what_it_was_delivered()
        self.a_flow_that_stands_still_has_ended_or_waits_for_a_person()

    # ------------------------------------------------------------ what roles answer

    async def _answer(self, role: str, chance: random.Random, answer: Answer) -> str:
        """How the turn that `role` has ends."""
        state = await self.follow()
        self.turns += 1
        self.serial += 1
        if self.turns > MOST_TURNS:
            return signal("prompt-human")
        running = [node for node, of in self.oracle.running.items() if of == role]
        if not running:
            is_good = answer is good_answer
            return reflection(self.folder, state, role, chance, is_good=is_good)
        return answer(Desk(self.folder, state, running[0], chance, self.serial))

    # ------------------------------------------------------------ what holds

    async def follow(self) -> FlowState:
        """Hold every new entry of the log against the rules; where the flow then stands."""
        self.holds(True, "")
        for entry in await self.store.entries(FLOW, after=self.seen):
            body = body_of(entry)
            self.seen = entry.seq
            try:
                self.oracle.follow(body)
            except AssertionError as error:
                self.holds(False, f"{FLOW}/{entry.seq} {body}: {error}")
            if isinstance(body, RepairAsked):
                noted(f"repair: {body.code}")
        return await self.state()

    @invariant()
    def what_happened_might_and_the_state_says_so(self) -> None:
        if self.seen < 0:
            return
        state, oracle = self.done(self.follow()), self.oracle
        run = state.run
        for what, told, is_so in (
            ("runs", set(run.running_nodes), set(oracle.running)),
            ("was handed over and not read", dict(run.receiving_handoff), oracle.queued),
            ("waits for a person", set(run.awaiting_human_nodes), set(oracle.waiting)),
            ("is completed", run.status == "completed", oracle.is_completed),
        ):
            self.holds(told == is_so, f"what {what}: the state says {told}, its log {is_so}")
        places = (*run.running_nodes, *run.awaiting_human_nodes, *run.awaiting_handoff)
        self.holds(len(places) == len(set(places)), f"a node is at two places: {places}")

    @invariant()
    def every_claim_was_told_what_it_was_delivered(self) -> None:
        if self.seen >= 0:
            self.done(self.follow())
        for role, claims in self.oracle.told.items():
            told = self.done(self._told(role))
            differing = [(a, b) for a, b in zip(told, claims, strict=False) if a != b]
            self.holds(
                told == claims,
                f"{role} was told something else than it claimed: {differing},"
                f" {len(told)} messages for {len(claims)} claims",
            )

    async def _told(self, role: str) -> list[Told]:
        try:
            entries = await self.store.entries(StreamId(f"{FLOW}__{role}"))
        except SessionNotFound:
            return []
        texts = [m.text for e in entries if e.kind == MESSAGE and (m := e.message) is not None]
        return [
            msgspec.json.decode(text.removeprefix(TOLD), type=Told)
            for text in texts
            if text.startswith(TOLD)
        ]

    @invariant()
    def a_flow_that_stands_still_has_ended_or_waits_for_a_person(self) -> None:
        if not self.has_stopped:
            return
        state = self.done(self.state())
        has_said_why = state.run.status == "completed" or waits_in(state)
        self.holds(has_said_why, f"the flow stands still and does not say why: {state.run}")
        for session in state.sessions.values():
            is_open = self.done(self.store.state(session)).open_turn is not None
            self.holds(not is_open, f"the flow stands still, and a turn of {session} is open")


def noted(what: str) -> None:
    """Count `what` in the statistics of hypothesis, where it is asking."""
    if currently_in_test_context():
        event(what)


TestFlows = FlowWorld.TestCase
TestFlows.settings = settings(
    max_examples=40,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_a_flow_of_which_an_edit_took_what_a_node_waits_for_says_that_it_cannot_go_on() -> None:
    def answer(desk: Desk) -> str:
        ends = {"n0": "await-handoff", "n1": "prompt-human"}
        return signal(ends[desk.node]) if desk.node in ends else good_answer(desk)

    world = FlowWorld()
    roles = {"owner-intake": "owner", "n0": "developer", "n1": "reviewer", "end": "owner"}
    world.begin(
        drawn=graph("owner-intake>n0", "owner-intake>n1", "n1>n0", "n0>end", "n1>end", **roles)
    )
    world.done(world.all_work(random.Random(0), answer))
    world.reply(whom="n1", text="go on")
    world.starve(place=0)
    world.everything_holds()
    (waiting,) = waits_in(world.done(world.state()))
    assert "n0 waits for a handoff" in waiting.text
    world.teardown()


@pytest.mark.parametrize("kind", WRONG)
async def test_every_wrong_end_of_a_turn_is_told_as_what_it_is(tmp_path: Path, kind: str) -> None:
    code, answer = WRONG[kind]
    clock = HastyClock()
    store = MemoryStore(clock=clock, random=SeededRandom(1))
    drawn = graph("owner-intake>end", **{"owner-intake": "owner", "end": "owner"})
    found = await begun(store, clock, drawn, tmp_path)
    desk = Desk(tmp_path, await found.journal.state(), "owner-intake", random.Random(0), 1)
    roles = ScriptedRoles(store, clock, {"owner": [answer(desk), signal("prompt-human")]})
    await FlowRunner(ground(store, clock, tmp_path), roles, clock, store.changes).run()
    asked = [body_of(entry) for entry in await store.entries(FLOW)]
    codes: list[RepairCode] = [body.code for body in asked if isinstance(body, RepairAsked)]
    assert codes == [code]
