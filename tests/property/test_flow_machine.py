"""Random flows, random behaviour of roles and people, and kills: the invariants always hold.

No role has two concurrent turns. No handoff is lost or delivered twice. No artifact is used again.
A flow that does not run has ended, waits for a person, or states the reason. `FlowOracle` describes
the allowed behaviour independently of the engine. At the end, people answer all questions and roles
answer correctly: then every flow ends, except a flow in which a role has no agent.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, currently_in_test_context, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from perdure.client.flows.consent import RULES
from perdure.client.flows.feeds import RoleFeed
from perdure.engine.flows.files.graph_file import WORKFLOW, GraphFile
from perdure.engine.flows.files.record import RecordFolder
from perdure.engine.flows.files.workflow_text import workflow_text
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.node_turn import FlowContext
from perdure.engine.flows.rules import people
from perdure.engine.flows.rules.answers import apply_answer
from perdure.engine.flows.rules.flow_waits import FlowWait, waits_in
from perdure.engine.flows.rules.improvement import FEEDBACK_ROLE
from perdure.engine.flows.rules.structure import faults_of
from perdure.engine.flows.runner import FlowRunner
from perdure.errors import FlowRefusal, InvalidEntry, SessionNotFound
from perdure.session.codec import body_of
from perdure.session.flows.feed import FeedItem
from perdure.session.flows.fold import flow_state
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.flows.kinds import NodeParked, RepairAsked, RepairCode
from perdure.session.flows.run import FlowState
from perdure.session.ids import EntryId, StreamId
from perdure.session.messages import MESSAGE
from perdure.session.notes import SideBody
from perdure.stores.in_memory.store import MemoryStore
from tests.fakes.clock import SeededRandom
from tests.fakes.flow_log import FLOW, graph, owing_in
from tests.fakes.flow_oracle import Told
from tests.fakes.flow_world import FlowMachine
from tests.fakes.random_flows import (
    CHOOSY,
    MOODS,
    ROLES,
    STRANGER,
    TOLD,
    WRONG,
    Answer,
    Desk,
    HastyClock,
    Moment,
    Process,
    RandomRoles,
    good_answer,
    graphs,
    in_mood,
    reflection,
)
from tests.fakes.samples import rounds
from tests.fakes.scripted_roles import ScriptedRoles, begun, ground, signal

T = TypeVar("T")

MOST_TURNS = 120
"""Number of answers of one flow after which every role only asks a person."""

MOST_ROUNDS = 6
"""Maximum rounds of a person's answers at the end: this many for each node, and once more."""

Death = tuple[int, Moment]
"""How many commits a process makes before it ends, and how it ends."""

MOMENTS: tuple[Moment, ...] = get_args(Moment)

READ = ("owner", "developer", "writer", FEEDBACK_ROLE)
"""Roles whose feeds the test reads."""

LONGEST_S = 60
"""Maximum time of one event; a flow that runs longer is aborted."""

WHOM = (*ROLES, STRANGER, "owner-intake", "n0", "n1", "n2", "n3", "end")
EDITS = ("mended", "broken", "shrunk", "grown", "recast", "cut", "joined", "watched")
ANSWERS = ("go on", "approve", "decline", "parallel", "none", "grant", "default", "")


class FlowWorld(FlowMachine):
    """A state machine of one flow; each rule is an event in the flow."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self.is_healthy = True
        self.has_stopped = False
        self.breaks = asyncio.Event()
        self.asked: list[EntryId] = []
        """Everything that ever waited for an answer."""
        self.points: dict[str, str] = {}
        self.items: dict[str, dict[str, FeedItem]] = {role: {} for role in READ}
        """The feeds of roles as read by an occasional reader."""
        self.broken: str | None = None
        """The first violation; later ones may only be its consequences."""

    def teardown(self) -> None:
        try:
            if self.seen >= 0 and self.broken is None:
                self.everybody_does_as_they_should()
        finally:
            self.let_go()

    def done(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`.

        Raises: the error of `work`; AssertionError if a rule was violated before.
        """
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
        """Raise an error if `is_so` is false, or if it was false in any earlier call."""
        if self.broken is None and not is_so:
            self.broken = broken
            self.breaks.set()
        if self.broken is not None:
            raise AssertionError(self.broken)

    async def state(self) -> FlowState:
        """Return the flow's state, read from its whole log."""
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
        mood=st.sampled_from((*MOODS,)),
        deaths=st.lists(
            st.none() | st.tuples(st.integers(0, 12), st.sampled_from(MOMENTS)),
            min_size=1,
            max_size=2,
        ),
    )
    def run(self, seed: int, mood: str, deaths: Sequence[Death | None]) -> None:
        """Run the flow in several processes; each can die at a commit."""
        self.done(self.all_work(random.Random(seed), in_mood(mood), *deaths, meddled=True))

    @rule(seed=st.integers(0, 2**32), mood=st.sampled_from((*MOODS,)))
    def go_on(self, seed: int, mood: str) -> None:
        """Run the flow as far as possible in one process."""
        self.run(seed, mood, (None,))

    @rule(place=st.integers(0, 5), is_let=st.booleans(), seed=st.integers(0, 2**32))
    def answer_and_go_on(self, place: int, is_let: bool, seed: int) -> None:
        """A person answers all questions except one, and a process runs the flow.

        In addition, the person sometimes sends a message to a role that waits for a handoff.
        """
        state = self.done(self.state())
        for number, each in enumerate(waits_in(state)):
            if number != place:
                self._settle(each, number, is_let=is_let)
        for node in state.run.awaiting_handoff[: place % 3]:
            self.reply(node, "do what you can")
        self.run(seed, (*MOODS,)[seed % len(MOODS)], (None,))

    async def all_work(
        self, chance: random.Random, answer: Answer, *deaths: Death | None, meddled: bool = False
    ) -> None:
        """Run processes until none can continue or all have died.

        Each element of `deaths` is the death of one process. If there are no `deaths`, one process
        runs.
        """
        processes = [self.process(*(death or (None, "before"))) for death in deaths or (None,)]
        running = {
            self._running(process, chance, answer, meddled=meddled): process
            for process in processes
        }
        has_stopped = False
        while running:
            await self._either(running)
            ended = [task for task in running if task.done() or running[task].ends.is_set()]
            # Whether nothing is left to do is known by who saw the others end.
            has_stopped = not any(running[task].ends.is_set() for task in ended)
            for task in ended:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                del running[task]
        self.has_stopped = has_stopped

    async def _either(self, running: Mapping[asyncio.Task[FlowState], Process]) -> None:
        """Wait until one run is done or its process ends.

        Raises: the error of a run; AssertionError as soon as a rule is violated.
        """
        ends = [self.breaks, *(process.ends for process in running.values())]
        watched = [asyncio.ensure_future(each.wait()) for each in ends]
        waiting: list[asyncio.Future[Any]] = [*running, *watched]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in watched:
            each.cancel()
        if self.breaks.is_set():
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self.holds(False, "")
        for each in running:
            if each.done():
                each.result()

    def _running(
        self, process: Process, chance: random.Random, answer: Answer, *, meddled: bool
    ) -> asyncio.Task[FlowState]:
        async def meanwhile() -> None:
            if meddled and chance.random() < 0.1:
                await self._meddle(chance)

        async def answered(role: str) -> str:
            return await self._answer(role, chance, answer)

        roles = RandomRoles(process, self.clock, answered, meanwhile, chance)
        store: Any = process
        record = RecordFolder(self.folder, self.folder)
        drawing = GraphFile(self.folder, self.folder)
        found = FlowContext(Journal(store, FLOW, self.clock), record, record, self._checks, drawing)
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
        """Act as a person while roles work."""
        kind = chance.choice(("stop", "stop", "reply", "edit", "edit", "answer", "read"))
        whom = chance.choice((*WHOM, None))
        if kind == "edit":
            self.edit(chance.choice(EDITS), chance.randint(0, 29))
        elif kind == "answer":
            await self._answered(chance.randint(0, 99), chance.choice(ANSWERS))
        elif kind == "read":
            await self._read(chance.choice(READ), chance.choice((None, 1, 3)))
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

    @rule(place=st.integers(0, 99), words=st.sampled_from(ANSWERS))
    def answer_what_waited(self, place: int, words: str) -> None:
        """Answer a question, whether it is open or already closed."""
        self.done(self._answered(place, words))

    async def _answered(self, place: int, words: str) -> None:
        if not self.asked:
            return
        question = self.asked[place % len(self.asked)]
        with suppress(InvalidEntry):
            await self._decided(lambda state: apply_answer(state, question, words, "me"))

    def _settle(self, chosen: FlowWait, place: int, *, is_let: bool) -> None:
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
            case "role-configuration":
                role = chosen.role or ""
                self._decide(lambda state: people.configure(state, role, model="scripted:a"))
            case _:
                self._decide(lambda state: people.reply(state, "go on", "me", chosen.target))

    @rule(whom=st.sampled_from(WHOM))
    def stop(self, whom: str) -> None:
        self._decide(lambda state: people.stop(state, "me", whom))

    @rule(kind=st.sampled_from(EDITS), place=st.integers(0, 29))
    def edit(self, kind: str, place: int) -> None:
        """Edit the workflow file; the result can be invalid."""
        now = self.oracle.graph
        if kind == "broken":
            (self.folder / WORKFLOW).write_text("workflow: [")
            return
        nodes, edges = now.nodes, now.edges
        if kind in ("recast", "joined", "watched"):
            nodes = _changed(nodes, kind, place)
        if kind == "cut" and edges:
            edges = tuple(edge for edge in edges if edge != edges[place % len(edges)])
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

    @rule(place=st.integers(0, 29))
    def starve(self, place: int) -> None:
        """Remove the edges that a node waits for, and continue: the node can get no input."""
        now, awaited = self.oracle.graph, self.oracle.awaited()
        if not awaited:
            self.run(place, "waiting", (None,))
            return
        target, last = awaited[place % len(awaited)].target, now.nodes[-1].id
        gone = [edge for edge in awaited if edge.target == target]
        instead = [FlowEdge(edge.source, last) for edge in gone if edge.source != last]
        kept = [edge for edge in now.edges if edge not in (*gone, *instead)]
        self.draw(msgspec.structs.replace(now, edges=(*kept, *instead)))
        self.done(self.all_work(random.Random(place), good_answer))

    def draw(self, drawn: Graph) -> None:
        """Write the graph `drawn` to the flow's workflow file."""
        (self.folder / WORKFLOW).write_text(workflow_text(drawn))
        self.has_stopped = False

    @rule(
        kind=st.sampled_from(("health", "configure", "consent", "read", "read")),
        place=st.integers(0, 29),
    )
    def meanwhile(self, kind: str, place: int) -> None:
        """Change or read data that has little influence on the flow."""
        if kind == "health":
            self.is_healthy = place % 2 == 0
        elif kind == "read":
            self.done(self._read(READ[place % len(READ)], (None, 1, 2, 3)[place % 4]))
        elif kind == "consent":
            mode = (*RULES,)[place % len(RULES)]
            self._decide(lambda state: people.change_consent(state, "me", mode=mode))
        else:
            role, model = ROLES[place % len(ROLES)], f"scripted:{place % 2}"
            self._decide(lambda state: people.configure(state, role, model=model))

    async def _read(self, role: str, limit: int | None) -> None:
        feed = RoleFeed(self.store, FLOW, role, self.points.get(role))
        self.items[role].update((item.id, item) for item in await feed.read(limit))
        self.points[role] = feed.cursor

    def _decide(self, decide: Callable[[FlowState], SideBody]) -> None:
        self.done(self._decided(decide))

    async def _decided(self, decide: Callable[[FlowState], SideBody]) -> None:
        journal = Journal(self.store, FLOW, self.clock)
        with suppress(FlowRefusal):
            await journal.append(lambda state: (decide(state),))
            self.has_stopped = False

    def everybody_does_as_they_should(self) -> None:
        """Continue with correct roles and a person who answers everything: the flow must end."""
        self.is_healthy = True
        self.draw(self.done(self.state()).graph)
        chance = random.Random(0)
        # A role that an edit gave to a node that had worked was never asked what it works with.
        self._decide(lambda state: people.configure(state, CHOOSY, model="scripted:a"))
        for number in range(MOST_ROUNDS * (1 + len(self.oracle.graph.nodes))):
            self.turns = 0
            self.done(self.all_work(chance, good_answer))
            self.everything_holds()
            for each in waits_in(self.done(self.state())):
                self._settle(each, number, is_let=True)
            if self.oracle.is_completed:
                noted("ended")
                break
        is_able = STRANGER not in self.oracle.graph.roles
        run = self.done(self.state()).run
        self.holds(self.oracle.is_completed or not is_able, f"the flow never ends: {run}")
        self.feeds_that_were_read_now_and_then_are_whole()

    def feeds_that_were_read_now_and_then_are_whole(self) -> None:
        """Check that a feed read in pages at any times equals the feed read at the end."""
        for role, items in self.items.items():
            self.done(self._read(role, None))
            whole = self.done(RoleFeed(self.store, FLOW, role).read())
            read = tuple(items.values())
            self.holds(read == whole, f"the feed of {role} was read as {read}, and is {whole}")

    def everything_holds(self) -> None:
        """Check all invariants."""
        self.what_happened_might_and_the_state_says_so()
        self.every_claim_was_told_what_it_was_delivered()
        self.a_flow_that_stands_still_has_ended_or_waits_for_a_person()

    # ------------------------------------------------------------ what roles answer

    async def _answer(self, role: str, chance: random.Random, answer: Answer) -> str:
        """Return how the turn of `role` ends."""
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
        """Check every new entry of the log against the rules; return the flow's state."""
        self.holds(True, "")
        try:
            async for _, body in self.told():
                if isinstance(body, RepairAsked):
                    noted(f"repair: {body.code}")
                if isinstance(body, NodeParked) and _is_stalled(body):
                    noted("stalled")
        except AssertionError as error:
            self.holds(False, str(error))
        state = await self.state()
        self.holds(state.owing_ids == owing_in(state), "the nodes that owe a handoff are others")
        waiting = [each.question for each in waits_in(state) if each.question is not None]
        self.asked += [each for each in waiting if each not in self.asked]
        return state

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
            ("is asked", {each.question for each in waits_in(state)}, {*oracle.questions.values()}),
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
        # A queued reply waits for a process in which the role can work: the detail says why.
        queued, waiting = state.run.pending_human_inputs, state.run.awaiting_human_nodes
        has_said_why = has_said_why or any(waiting[id].detail for id in queued if id in waiting)
        self.holds(has_said_why, f"the flow stands still and does not say why: {state.run}")
        for session in state.sessions.values():
            is_open = self.done(self.store.state(session)).open_turn is not None
            self.holds(not is_open, f"the flow stands still, and a turn of {session} is open")


def _changed(nodes: tuple[FlowNode, ...], kind: str, place: int) -> tuple[FlowNode, ...]:
    """Return `nodes` with one changed node: another role, a toggled join, or a toggled person."""
    node = nodes[place % len(nodes)]
    changed = {
        "recast": msgspec.structs.replace(node, role=ROLES[place % len(ROLES)]),
        "joined": msgspec.structs.replace(node, awaits_all_inputs=not node.awaits_all_inputs),
        "watched": msgspec.structs.replace(node, has_human=not node.has_human),
    }[kind]
    return tuple(changed if each is node else each for each in nodes)


def _is_stalled(parked: NodeParked) -> bool:
    return (parked.detail or "").startswith("no node can go on")


def noted(what: str) -> None:
    """Count `what` in the statistics of hypothesis, if a test of hypothesis is running."""
    if currently_in_test_context():
        event(what)


TestFlows = FlowWorld.TestCase
TestFlows.settings = settings(
    max_examples=max(4, settings().max_examples // 8),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.all_only
@pytest.mark.soak
class TestMoreFlows(FlowWorld.TestCase):
    """The same tests with more examples."""

    settings = settings(TestFlows.settings, max_examples=rounds(30))


def test_flow_completes_if_awaited_edges_are_removed() -> None:
    def answer(desk: Desk) -> str:
        if desk.node == "n1":
            is_new = "n1=>m" not in desk.state.run.completed_handoffs
            return desk.hands("m", "end") if is_new else signal("prompt-human")
        ends = {"n0": "await-handoff", "end": "prompt-human"}
        return signal(ends[desk.node]) if desk.node in ends else good_answer(desk)

    world = FlowWorld()
    edges = ("owner-intake>n0", "owner-intake>n1", "n1>n0", "n0>m", "n1>m", "m>end", "n1>end")
    owners = dict.fromkeys(("owner-intake", "n0", "end"), "owner")
    world.begin(drawn=graph(*edges, **owners, n1="reviewer", m="developer"))
    world.done(world.all_work(random.Random(0), answer))
    world.starve(place=0)
    run = world.done(world.state()).run
    assert (run.awaiting_handoff, {*run.awaiting_human_nodes}) == (("n0",), {"n1", "end"})
    world.teardown()
    assert world.oracle.is_completed


def test_flow_completes_if_a_node_waiting_for_a_handoff_is_removed() -> None:
    def answer(desk: Desk) -> str:
        if desk.node == "a":
            return desk.hands("end")
        is_new = "owner-intake=>a" not in desk.state.run.completed_handoffs
        return desk.hands("a") if is_new else signal("prompt-human")

    world = FlowWorld()
    edges = ("owner-intake>a", "owner-intake>b", "a>end", "b>end")
    owners = dict.fromkeys(("owner-intake", "end"), "owner")
    world.begin(drawn=graph(*edges, **owners, a="developer", b="reviewer"))
    world.done(world.all_work(random.Random(0), answer))
    assert world.done(world.follow()).owing_ids == {"owner-intake"}
    world.edit("shrunk", place=2)
    world.done(world.all_work(random.Random(0), answer))
    state = world.done(world.follow())
    assert [node.id for node in state.graph.nodes] == ["owner-intake", "a", "end"]
    assert not state.owing_ids
    world.teardown()
    assert world.oracle.is_completed


def test_flow_with_two_last_nodes_ends() -> None:
    world = FlowWorld()
    owners = dict.fromkeys(("owner-intake", "n0", "end"), "owner")
    world.begin(drawn=graph("owner-intake>n0", "owner-intake>end", **owners))
    world.teardown()
    assert world.oracle.is_completed


@pytest.mark.parametrize("kind", WRONG)
async def test_role_is_asked_for_a_repair_after_an_invalid_turn_end(
    tmp_path: Path, kind: str
) -> None:
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
