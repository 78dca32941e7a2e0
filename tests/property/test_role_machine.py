"""Real role sessions with random tools, models, stops, answers and kills.

This test uses the runtime's roles instead of the fake roles of ``test_flow_machine``: every turn is
real, and its tools need the approval of a person. The oracle of ``test_flow_machine`` checks the
flow's log. In addition, the test checks that no file is written before the write is allowed.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.clock import Outside
from perdure.client.flows import waker
from perdure.client.flows.consent import RULES
from perdure.client.flows.flow import Flow
from perdure.client.flows.flows import Flows
from perdure.client.store import Store
from perdure.engine.flows.rules.flow_waits import FlowWait
from perdure.engine.flows.rules.improvement import FEEDBACK_ROLE
from perdure.errors import FlowRefusal, InvalidEntry
from perdure.models.protocol import Delta, ModelInfo, ModelRequest
from perdure.models.scenario import (
    CallTools,
    Fail,
    Hang,
    Reply,
    Say,
    Scenario,
    ScriptedCall,
    Step,
    situation_of,
)
from perdure.models.scripted import ScriptedModel
from perdure.session import ledger, notes
from perdure.session.codec import body_of
from perdure.session.flows import kinds
from perdure.session.flows.graph import Graph
from perdure.session.flows.run import FlowState
from perdure.tools.permissions import Permissions
from tests.fakes.clock import SeededRandom
from tests.fakes.flow_log import FLOW
from tests.fakes.flow_world import FlowMachine
from tests.fakes.random_flows import (
    MOODS,
    ROLES,
    STRANGER,
    Answer,
    Desk,
    HastyClock,
    Moment,
    Process,
    good_answer,
    graphs,
    in_mood,
    reflection,
)

T = TypeVar("T")

OFFERED = ("scripted:flow", "scripted:other")
QUIET = 120
"""Iterations of the event loop without a commit after which a flow counts as stuck."""

MOST_ROUNDS = 25
MOST_CALLS = 300
"""Number of model calls after which every role only asks a person."""


class ChanceModel:
    """A ``ModelClient`` that answers each request with the result of `reply`."""

    def __init__(self, world: RoleWorld) -> None:
        self._world = world

    def info(self, model: str) -> ModelInfo:
        """Return no information."""
        return ModelInfo(model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """The answer."""
        reply = await self._world.reply(request)
        name = request.model.partition(":")[2]
        scripted = ScriptedModel(Scenario(name=name, rules=(reply,)), clock=self._world.clock)
        async for delta in scripted.stream(request):
            yield delta


class RoleClock(HastyClock):
    """A clock that measures a sleep in rounds of the event loop: longer sleeps end later."""

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run."""
        for _ in range(10 + min(300, round(seconds * 60))):
            await asyncio.sleep(0)


class RoleWorld(FlowMachine):
    """A state machine of one flow; each rule is an event in the flow."""

    def __init__(self) -> None:
        super().__init__(RoleClock())
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(waker, "LOOK_EVERY_S", 0)
        self.calls = 0
        self.chance = random.Random(0)
        self.answer: Answer = good_answer
        self.running: dict[asyncio.Task[Any], Process] = {}

    def teardown(self) -> None:
        try:
            if self.seen >= 0:
                self.done(self.everybody_does_as_they_should())
        finally:
            self.done(self._ended(list(self.running)))
            self.patched.undo()
            self.let_go()

    def done(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`."""
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    # ------------------------------------------------------------ what happens

    @initialize(
        drawn=graphs(most=3),
        configuring=st.sampled_from(("given", "ask", "auto", "auto")),
        consent=st.sampled_from((*RULES,)),
    )
    def begin(
        self, drawn: Graph, configuring: kinds.Configuring, consent: kinds.ConsentMode
    ) -> None:
        async def begun() -> None:
            flows = self._flows(self.process())
            await flows.start(
                drawn,
                workspace=self.folder,
                record_folder="record",
                id=FLOW,
                configuring=configuring,
                consent=consent,
            )
            await self.follow()

        self.done(begun())

    @rule(
        seed=st.integers(0, 2**32),
        mood=st.sampled_from((*MOODS,)),
        dies_at=st.none() | st.integers(0, 15),
        moment=st.sampled_from(("before", "after", "asked")),
    )
    def run(self, seed: int, mood: str, dies_at: int | None, moment: Moment) -> None:
        """Run the flow in a new process while the previous process might still run the flow."""
        self.done(self._ended([*self.running][:-1]))
        self.chance, self.answer = random.Random(seed), in_mood(mood)
        self.done(self._run(self.process(dies_at, moment)))

    async def _run(self, process: Process) -> None:
        flows = self._flows(process)

        async def run() -> None:
            async with flows:
                await flows.look(FLOW).run()

        self.running[asyncio.ensure_future(run())] = process
        await self.settled()

    async def settled(self) -> None:
        """Run all processes until nothing changes, and release the ended processes."""
        quiet, at = 0, -1
        while self.running and quiet < QUIET:
            await asyncio.sleep(0)
            await self._ended([t for t, p in self.running.items() if p.ends.is_set() or t.done()])
            before, at = at, await self.store.position()
            quiet = quiet + 1 if at == before else 0
        await self.follow()

    async def _ended(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        for task in tasks:
            process = self.running.pop(task)
            is_over = task.done()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            if is_over and not process.ends.is_set() and not self.running:
                await self.it_says_why_it_stands_still()

    async def it_says_why_it_stands_still(self) -> None:
        state = await self.follow()
        waiting = await self._flow().waiting()
        # A queued reply waits for a process in which the role can work: the detail says why.
        run, parked = state.run, state.run.awaiting_human_nodes
        is_queued = any(parked[id].detail for id in run.pending_human_inputs if id in parked)
        assert run.status == "completed" or waiting or is_queued, f"it stands still: {run}"

    @rule(place=st.integers(0, 9), choice=st.integers(0, 9))
    def answer_the_inbox(self, place: int, choice: int) -> None:
        self.done(self._answered(place, choice))

    async def _answered(self, place: int, choice: int) -> None:
        store = Store(self.store, Outside(self.clock, SeededRandom(2)))
        asked = await store.questions()
        if not asked:
            return
        one = asked[place % len(asked)]
        choices = one.question.choices or ("go on",)
        with suppress(FlowRefusal, InvalidEntry):
            await store.answer(one.id, choices[choice % len(choices)], by="me")
        await self.settled()

    @rule(whom=st.sampled_from((*ROLES, "owner-intake", "n0", "n1", "end")))
    def stop(self, whom: str) -> None:
        async def stopped() -> None:
            with suppress(FlowRefusal):
                await self._flow().stop(whom)
            await self.settled()

        self.done(stopped())

    @rule(mode=st.sampled_from((*RULES,)))
    def consent(self, mode: kinds.ConsentMode) -> None:
        async def changed() -> None:
            with suppress(FlowRefusal):
                await self._flow().consent(mode)
            await self.settled()

        self.done(changed())

    @rule(role=st.sampled_from(ROLES))
    def configure(self, role: str) -> None:
        async def configured() -> None:
            with suppress(FlowRefusal):
                await self._flow().configure(role, model=OFFERED[1])
            await self.settled()

        self.done(configured())

    @rule()
    def kill(self) -> None:
        """Kill all processes together, in the middle of their work."""
        self.done(self._killed())

    async def _killed(self) -> None:
        for process in self.running.values():
            process.kill()
        await self._ended(list(self.running))

    async def everybody_does_as_they_should(self) -> None:
        """Continue with correct roles and a person who answers everything: the flow must end."""
        self.answer, self.calls = good_answer, 0
        await self._killed()
        state = await self.follow()
        for number in range(MOST_ROUNDS):
            await self._ended(list(self.running))
            await self._run(self.process())
            state = await self.follow()
            if state.run.status == "completed":
                break
            for each in await self._flow().waiting():
                await self._settled(each, number)
            await self.settled()
        has_stranger = STRANGER in state.graph.roles
        assert state.run.status == "completed" or has_stranger, f"it never ends: {state.run}"
        assert (await self.store.maintenance.verify()).problems == ()

    async def _settled(self, each: FlowWait, number: int) -> None:
        flow = self._flow()
        with suppress(FlowRefusal):
            match each.topic:
                case "handoff-approval":
                    await flow.approve(each.target)
                case "improvement-choice":
                    await flow.choose_improvement(("parallel", "none")[number % 2])
                case "feedback-consent":
                    await flow.decide_feedback(is_granted=bool(number % 2))
                case "role-configuration":
                    await flow.configure(each.role or "", model=OFFERED[0])
                case _ if each.session is not None and each.question is not None:
                    choice = "allow" if "allow" in each.choices else each.choices[-1]
                    await self._flow_store().answer(each.question, choice, by="me")
                case _:
                    await flow.reply("go on", each.target)

    # ------------------------------------------------------------ what models answer

    async def reply(self, request: ModelRequest) -> Reply:
        """Return the model's answer: sometimes first a tool call or two, then the turn's end."""
        chance, situation = self.chance, situation_of(request)
        self.calls += 1
        is_good = self.answer is good_answer
        if "is about to begin." in situation.user_text:
            words = [f"model={name}" for name in OFFERED]
            return _says(chance.choice(words if is_good else [*words, "no", "hang", "error"]))
        role = next(each for each in (*ROLES, FEEDBACK_ROLE) if f"I AM {each}." in situation.system)
        state = await self.follow()
        if not situation.results and chance.random() < 0.4 and self.calls < MOST_CALLS:
            return Reply(steps=(CallTools(tuple(self._calls())),))
        node = next((n.id for n in state.graph.nodes if _is_at_work(state, n.id, role)), None)
        self.serial += 1
        if self.calls >= MOST_CALLS:
            return _says("```handoff\ntype: prompt-human\n```")
        if node is not None:
            desk = Desk(self.folder / "record", state, node, chance, self.serial)
            return _says(self.answer(desk))
        record = self.folder if role == FEEDBACK_ROLE else self.folder / "record"
        return _says(reflection(record, state, role, chance, is_good=is_good))

    def _calls(self) -> list[ScriptedCall]:
        calls: list[ScriptedCall] = []
        for _ in range(self.chance.randint(1, 2)):
            self.serial += 1
            args = {"path": f"record/t{self.serial}.md", "content": "words"}
            calls.append(ScriptedCall("write_file", json.dumps(args)))
        return calls

    # ------------------------------------------------------------ what holds

    async def follow(self) -> FlowState:
        """Check every new entry of the flow's log against the rules; return the flow's state."""
        async for _ in self.told():
            pass
        return await self._flow().state()

    @invariant()
    def nothing_is_written_that_nobody_allowed(self) -> None:
        if self.seen >= 0:
            self.done(self._nothing_is_written_that_nobody_allowed())

    async def _nothing_is_written_that_nobody_allowed(self) -> None:
        state = await self.follow()
        modes = [(entry.at, body_of(entry)) for entry in await self.store.entries(FLOW)]
        for session in state.sessions.values():
            allowed: set[str] = set()
            asked: dict[str, str] = {}
            judged_at = 0
            for entry in await self.store.entries(session):
                body = body_of(entry)
                if isinstance(body, ledger.ModelFinished):
                    judged_at = entry.at
                if isinstance(body, notes.Question):
                    asked[entry.id] = body.call_id or ""
                if isinstance(body, notes.Answer) and body.choice != "deny":
                    allowed.add(asked.get(entry.about or "", ""))
                if isinstance(body, ledger.ToolStarted) and body.tool == "write_file":
                    free = _was_free(modes, judged_at, entry.at)
                    assert free or body.id in allowed, f"{entry.id} ran and nobody allowed it"

    # ------------------------------------------------------------ inside

    def _flows(self, process: Process) -> Flows:
        backend: Any = process
        store = Store(backend, Outside(self.clock, SeededRandom(self.processes)))
        agents = [
            Agent(
                role,
                model=OFFERED[0],
                instructions=f"I AM {role}.",
                tools=["write_file"],
                permissions=Permissions(approval="auto"),
            )
            for role in (*ROLES, FEEDBACK_ROLE)
        ]
        model: Any = ChanceModel(self)
        runtime = Runtime(store, agents, models=model, owner=f"process {self.processes}")
        return Flows(runtime, offered_models=OFFERED)

    def _flow_store(self) -> Store:
        return Store(self.store, Outside(self.clock, SeededRandom(3)))

    def _flow(self) -> Flow:
        """Return the flow as a person sees it."""
        return Flows(Runtime(self._flow_store())).look(FLOW)


def _says(text: str) -> Reply:
    steps: tuple[Step, ...] = (Say(text),)
    if text in ("hang", "aborted"):
        steps = (Say("Wait."), Hang())
    if text == "error":
        steps = (Fail("model_refused"),)
    return Reply(steps=steps, stop_reason="length" if text == "length" else None)


def _is_at_work(state: FlowState, node: str, role: str) -> bool:
    known = state.graph.node(node)
    return node in state.run.running_nodes and known is not None and known.role == role


def _was_free(modes: Sequence[tuple[int, object]], since: int, until: int) -> bool:
    """Return True if files could be written without approval at any time in the interval."""
    mode, found = "no-access", False
    for at, body in modes:
        if at > until:
            break
        if isinstance(body, kinds.FlowStarted):
            mode = body.consent
        if isinstance(body, kinds.ConsentChanged) and body.mode is not None:
            found = found or (at >= since and mode != "no-access")
            mode = body.mode
    return found or mode != "no-access"


TestRoles = RoleWorld.TestCase
TestRoles.settings = settings(
    max_examples=max(4, settings().max_examples // 12),
    derandomize=True,  # a turn has many steps: long runs are made with seeds, by hand
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
