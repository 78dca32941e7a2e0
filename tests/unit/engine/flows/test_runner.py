from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from perdure.engine.flows.journal import Journal
from perdure.engine.flows.node_turn import FlowContext
from perdure.engine.flows.rules.people import approve, choose_improvement, decide_feedback, reply
from perdure.engine.flows.runner import FlowRunner
from perdure.errors import ConfigError
from perdure.session.flows.graph import FlowNode, Graph
from perdure.session.flows.kinds import RoleConfigured
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.stores.in_memory.store import MemoryStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.flow_log import FLOW, graph
from tests.fakes.scripted_roles import ScriptedRoles, begun, ground, hand, signal

OWNERS = {"owner-intake": "owner", "end": "owner"}
LINE = graph("owner-intake>build", "build>end", **OWNERS, build="developer")
CLOSE = signal("forward-pass-closed")
ASK = signal("prompt-human")


class Place:
    """A store, a flow in it, and roles."""

    def __init__(self, folder: Path, **script: list[str]) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock, random=SeededRandom(1))
        self.roles = ScriptedRoles(self.store, self.clock, script)
        self.folder = folder
        self.ground: FlowContext | None = None

    async def run(self, graph: Graph | None = None) -> FlowState:
        """Start the flow with `graph` if given, and run it like a process without a cache."""
        if graph is not None:
            self.ground = await begun(self.store, self.clock, graph, self.folder)
        self.ground = ground(self.store, self.clock, self.folder)
        return await FlowRunner(self.ground, self.roles, self.clock, self.store.changes).run()

    @property
    def journal(self) -> Journal:
        """The flow's log."""
        assert self.ground is not None
        return self.ground.journal


async def test_flow_of_roles_in_a_line_runs_to_its_end(tmp_path: Path) -> None:
    place = Place(
        tmp_path,
        owner=[hand(tmp_path, "build", name="plan.md"), CLOSE],
        developer=[hand(tmp_path, "end", name="done.md")],
    )
    state = await place.run(LINE)
    assert state.run.status == "awaiting_improvement_choice"
    assert place.roles.told == {
        "owner": ["owner-intake", "end build=>end"],
        "developer": ["build owner-intake=>build"],
    }
    assert place.roles.scopes[:2] == [
        {"flow": state.run.flow_id, "role": "owner", "node": "owner-intake"},
        {"flow": state.run.flow_id, "role": "developer", "node": "build"},
    ]
    digests = [d for held in state.digests.values() for d in held]
    assert [await place.store.blob(d) for d in digests] == [
        b"what is in plan.md",
        b"what is in done.md",
    ]


async def test_cancellation_at_the_end_of_a_flow_run_is_raised(tmp_path: Path) -> None:
    place = Place(tmp_path, owner=[ASK])
    here = await begun(place.store, place.clock, LINE, tmp_path)
    is_ending, may_end = asyncio.Event(), asyncio.Event()

    async def wakes() -> AsyncGenerator[int | None]:
        try:
            await asyncio.Event().wait()
            yield None
        finally:
            is_ending.set()
            await may_end.wait()

    running = asyncio.create_task(FlowRunner(here, place.roles, place.clock, wakes).run())
    await is_ending.wait()
    running.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_turns_of_one_role_never_run_in_parallel(
    tmp_path: Path,
) -> None:
    flow = graph(
        *("owner-intake>a", "owner-intake>b", "owner-intake>c", "a>end", "b>end", "c>end"),
        **OWNERS,
        a="dev",
        b="dev",
        c="qa",
    )
    place = Place(
        tmp_path,
        owner=[hand(tmp_path, "a", "b", "c", name="plan.md"), ASK, ASK, ASK],
        dev=[hand(tmp_path, "end", name="a.md"), hand(tmp_path, "end", name="b.md")],
        qa=[hand(tmp_path, "end", name="c.md")],
    )
    state = await place.run(flow)
    assert place.roles.most_at_once == {"owner": 1, "dev": 1, "qa": 1}
    assert set(state.run.history_handoff) >= {"a=>end", "b=>end", "c=>end"}


async def test_review_runs_again_after_its_handoff_was_returned(tmp_path: Path) -> None:
    place = Place(
        tmp_path,
        owner=[
            hand(tmp_path, "build", name="plan.md"),
            hand(tmp_path, "build", name="no.md"),
            CLOSE,
        ],
        developer=[hand(tmp_path, "end", name="one.md"), hand(tmp_path, "end", name="two.md")],
    )
    state = await place.run(LINE)
    assert state.run.status == "awaiting_improvement_choice"
    assert place.roles.told["developer"] == ["build owner-intake=>build", "build end=>build"]


async def test_unusable_answer_is_repaired_then_waits_for_person(
    tmp_path: Path,
) -> None:
    place = Place(
        tmp_path,
        owner=["done", hand(tmp_path, "build", name="plan.md")],
        developer=["done"] * 4,
    )
    state = await place.run(LINE)
    assert len(place.roles.told["owner"]) == 2
    assert "without a handoff block" in place.roles.told["owner"][1]
    assert state.run.awaiting_human_nodes["build"].reason == "autonomous-abort"
    assert "after 3 repairs" in (state.run.awaiting_human_nodes["build"].detail or "")


async def test_answer_from_other_process_continues_flow(tmp_path: Path) -> None:
    place = Place(tmp_path, owner=[ASK, ASK], developer=[])
    state = await place.run(LINE)
    assert state.run.awaiting_human_nodes["owner-intake"].reason == "prompt-human"
    await place.journal.append(lambda now: [reply(now, "the red one", "me")])
    await place.run()
    assert place.roles.told["owner"] == ["owner-intake", "owner-intake  the red one"]


async def test_role_that_cannot_run_does_not_stop_other_roles(tmp_path: Path) -> None:
    flow = graph(
        *("owner-intake>a", "owner-intake>b", "a>end", "b>end"), **OWNERS, a="nobody", b="qa"
    )
    place = Place(
        tmp_path,
        owner=[hand(tmp_path, "a", "b", name="plan.md"), ASK],
        qa=[hand(tmp_path, "end", name="b.md")],
    )
    state = await place.run(flow)
    assert state.run.awaiting_human_nodes["a"].detail == "role 'nobody' has no agent"
    assert "b=>end" in state.run.completed_handoffs


@pytest.mark.parametrize("end", ["aborted", "error"])
async def test_failed_turn_makes_only_its_node_wait_for_a_person(tmp_path: Path, end: str) -> None:
    place = Place(tmp_path, owner=[end], developer=[])
    state = await place.run(LINE)
    waiting = state.run.awaiting_human_nodes["owner-intake"]
    assert (waiting.reason, waiting.detail) == ("autonomous-abort", f"its turn ended as {end}")


async def test_handoff_of_a_node_that_needs_approval_waits_for_a_person(tmp_path: Path) -> None:
    intake = FlowNode("owner-intake", "owner", has_human=True)
    flow = Graph("g", (intake, *LINE.nodes[1:]), LINE.edges)
    place = Place(
        tmp_path,
        owner=[hand(tmp_path, "build", name="plan.md")],
        developer=[ASK],
    )
    state = await place.run(flow)
    assert "build" not in state.run.visited_node_ids
    await place.journal.append(lambda now: [approve(now, "me")])
    state = await place.run()
    assert "build" in state.run.visited_node_ids
    assert len(place.roles.told["owner"]) == 1


async def test_deadlocked_flow_asks_a_person(tmp_path: Path) -> None:
    flow = graph("owner-intake>a", "owner-intake>b", "a>end", "b>end", **OWNERS, a="x", b="y")
    place = Place(
        tmp_path,
        owner=[
            hand(tmp_path, "a", name="p.md"),
            signal("await-handoff"),
            *["done"] * 4,
        ],
        x=[hand(tmp_path, "owner-intake", name="no.md")],
        y=[],
    )
    state = await place.run(flow)
    assert state.run.awaiting_human_nodes
    assert state.run.running_nodes == ()


async def test_flow_is_complete_after_role_reviews_and_feedback(tmp_path: Path) -> None:
    feedback = "a-society/feedback/p-flow-20260527T143000123Z-a1b2c3.md"
    roles = ("developer", "owner")
    findings = {role: f"findings/{role}-findings.md" for role in roles}
    (tmp_path / "a-society" / "feedback").mkdir(parents=True)
    for path in (*findings.values(), feedback):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("found")
    done = {
        role: signal("meta-analysis-complete", findings_path=path)
        for role, path in findings.items()
    }
    place = Place(
        tmp_path,
        owner=[hand(tmp_path, "build", name="plan.md"), CLOSE, done["owner"]],
        developer=[hand(tmp_path, "end", name="done.md"), "not yet", done["developer"]],
        **{"a-society-feedback": [signal("backward-pass-complete", artifact_path=feedback)]},
    )
    await place.run(LINE)
    await place.journal.append(lambda now: [choose_improvement(now, "graph-based", "me")])
    state = await place.run()
    assert state.run.status == "awaiting_feedback_consent"
    assert place.roles.told["owner"][-1] == "look back findings/developer-findings.md"
    await place.journal.append(lambda now: [decide_feedback(now, "me", is_granted=True)])
    state = await place.run()
    assert state.run.status == "completed"
    assert (await place.run()).run == state.run


async def test_reply_to_a_role_without_an_agent_stays_queued(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    await place.run(LINE)  # the owner has no agent
    await place.journal.append(lambda state: (reply(state, "try again", "me", "owner-intake"),))
    state = await place.run()
    assert state.run.awaiting_human_nodes["owner-intake"].reason == "autonomous-abort"
    assert state.run.pending_human_inputs["owner-intake"].text == "try again"
    assert [entry.kind for entry in await place.store.entries(FLOW)].count("node_parked") == 2
    place.roles = ScriptedRoles(place.store, place.clock, {"owner": [signal("prompt-human")]})
    state = await place.run()
    assert place.roles.told["owner"] == ["owner-intake  try again"]
    assert state.run.pending_human_inputs == {}


async def test_failed_role_is_tried_again_after_a_change_of_the_flow(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)

    class Moving(ScriptedRoles):
        calls = 0

        async def session(self, state: FlowState, role: str) -> StreamId:
            """Change the flow at the first call, and raise an error at every call."""
            self.calls += 1
            if self.calls == 1:
                await place.journal.append(lambda _: (RoleConfigured(role, model="a:b"),))
            raise ConfigError(f"{role} cannot work, said {self.calls} times")

    place.roles = roles = Moving(place.store, place.clock, {})
    state = await place.run(LINE)
    waiting = state.run.awaiting_human_nodes["owner-intake"]
    assert (waiting.detail, roles.calls) == ("owner cannot work, said 2 times", 2)
