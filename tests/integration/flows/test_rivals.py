"""Concurrent processes on one flow: one changes data that another has just read.

Each rival is a separate journal or runner on the same store, as in another process. The rival acts
between a read and the commit of the other process, or between that commit and the next read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from perdure.client.flows.flow import Flow
from perdure.client.flows.waker import Waker
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.node_turn import FlowContext, NodeTurn
from perdure.engine.flows.rules.parts import NodePart
from perdure.engine.flows.rules.people import choose_improvement, reply
from perdure.engine.flows.runner import LEAST_WAIT_S, MOST_WAIT_S, FlowRunner, Wakes
from perdure.engine.turns.co_commit import CommitParticipant
from perdure.errors import FlowRefusal, LeaseHeld
from perdure.models.scenario import Hang, Reply, Say, When
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.flows.kinds import NodeParked, RoleConfigured
from perdure.session.flows.run import FlowRun, FlowState
from perdure.session.ids import StreamId
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Lease
from tests.fakes.chats import until
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.flow_log import FLOW, graph
from tests.fakes.flow_stage import FlowStage, ends
from tests.fakes.rivals import meanwhile
from tests.fakes.scripted_roles import ScriptedRoles, begun, ground, hand, signal

PATIENCE_S = 60.0
OWNERS = {"owner-intake": "owner", "end": "owner"}
LINE = graph("owner-intake>a", "a>end", **OWNERS, a="dev")
FAN = graph("owner-intake>a", "owner-intake>b", "a>end", "b>end", **OWNERS, a="dev", b="qa")
ASK, CLOSE = signal("prompt-human"), signal("forward-pass-closed")
HANGS = "hangs"


class Roles(ScriptedRoles):
    """A role that answers "hang" stays in its turn until `released`."""

    def __init__(
        self, store: MemoryStore, clock: ManualClock, script: dict[str, list[str]]
    ) -> None:
        super().__init__(store, clock, script)
        self.released = asyncio.Event()

    async def _finish(self, lease: Lease, role: str, companion: CommitParticipant) -> None:
        answers = self.script[role]
        if answers and answers[0] == HANGS:
            answers.popleft()
            await self.released.wait()
        await super()._finish(lease, role, companion)


class Place:
    """A store, and a flow in it whose roles answer by a script."""

    def __init__(self, folder: Path, **script: list[str]) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock, random=SeededRandom(1))
        self.roles = Roles(self.store, self.clock, script)
        self.ground: FlowContext | None = None

    def journal(self) -> Journal:
        """Return a new journal of the flow, such as another process has."""
        return Journal(self.store, FLOW, self.clock)

    async def run(self, wakes: Wakes | None = None, roles: Roles | None = None) -> FlowState:
        """Run the flow, as a process without any cached state."""
        self.ground = ground(self.store, self.clock, self.folder)
        wakes = self.store.changes if wakes is None else wakes
        run = FlowRunner(self.ground, roles or self.roles, self.clock, wakes).run()
        return await asyncio.wait_for(run, PATIENCE_S)

    async def kinds(self) -> list[str]:
        """Return the kinds of the flow's entries."""
        return [entry.kind for entry in await self.store.entries(FLOW)]

    async def reply(self, target: str, text: str = "go on") -> None:
        """Reply as a person in another process."""
        await self.journal().append(lambda now: [reply(now, text, "ana", target)])


async def settled() -> None:
    """Run everything that can run before time passes."""
    for _ in range(500):
        await asyncio.sleep(0)


async def never() -> AsyncIterator[int | None]:
    """Never wake up, as if the notification were very late."""
    await asyncio.Event().wait()
    yield None


# ---------------------------------------------------------------- what is decided on a look


async def test_flow_is_completed_once_by_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(
        tmp_path,
        owner=[hand(tmp_path, "a", name="plan.md"), CLOSE],
        dev=[hand(tmp_path, "end", name="done.md")],
    )
    await begun(place.store, place.clock, LINE, tmp_path)
    await place.run()
    await place.journal().append(lambda now: [choose_improvement(now, "none", "ana")])
    meanwhile(monkeypatch, place.store, "flow_completed", place.run)
    assert (await place.run()).run.status == "completed"
    assert (await place.kinds()).count("flow_completed") == 1


async def test_two_processes_report_stall_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = signal("await-handoff")
    place = Place(tmp_path, owner=[hand(tmp_path, "a", name="plan.md"), waits], dev=[waits])
    line = graph("owner-intake>a", "a>b", "b>end", **OWNERS, a="dev", b="owner")
    await begun(place.store, place.clock, line, tmp_path)
    meanwhile(monkeypatch, place.store, "node_parked", place.run)
    assert (await place.run()).run.awaiting_human_nodes
    assert (await place.kinds()).count("node_parked") == 1


async def test_two_processes_apply_graph_edit_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = FlowStage(tmp_path, ends("Node `owner-intake`", "prompt-human"))
    flows = stage.flows("owner", "dev")
    flow = await flows.start(LINE, workspace=tmp_path, record_folder="record", id="f")
    file = tmp_path / "record" / "workflow.yaml"
    drawn = file.read_text()
    file.write_text(drawn.replace('"a flow"', '"first"'))

    async def rival() -> None:
        file.write_text(drawn.replace('"a flow"', '"second"'))
        await (await stage.flows("owner", "dev", owner="there").open("f")).run()

    meanwhile(monkeypatch, stage.memory, "flow_workflow", rival)
    await flow.run()
    entries = await stage.memory.entries(StreamId("f"))
    changes = [entry.body for entry in entries if entry.kind == "flow_workflow"]
    assert ["second" in body.decode() for body in changes] == [True]
    assert (await flow.state()).graph.name == "second"


async def test_role_configured_meanwhile_does_not_wait_for_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, dev=[])

    async def configured() -> None:
        place.roles.script["owner"] = deque([ASK])
        await place.journal().append(lambda _: [RoleConfigured("owner", "a:b")])

    await begun(place.store, place.clock, LINE, tmp_path)
    meanwhile(monkeypatch, place.store, "node_parked", configured)
    state = await place.run()
    assert state.run.awaiting_human_nodes["owner-intake"].reason == "prompt-human"
    assert (await place.kinds()).count("node_parked") == 1


async def test_failed_node_waits_for_a_person_despite_a_concurrent_change(
    tmp_path: Path,
) -> None:
    """The turn of the node has failed. A change of another part of the flow causes no retry."""
    place = Place(tmp_path)

    class Failing(Roles):
        tries = 0

        async def begin(
            self, session: StreamId, message: str, companion: CommitParticipant
        ) -> None:
            """See `ScriptedRoles`."""
            self.tries += 1
            await place.journal().append(lambda _: [RoleConfigured("dev", "a:b")])
            raise ValueError(f"try {self.tries}")

    roles = Failing(place.store, place.clock, {"owner": []})
    await begun(place.store, place.clock, LINE, tmp_path)
    state = await place.run(roles=roles)
    assert state.run.awaiting_human_nodes["owner-intake"].detail == "ValueError: try 1"


async def test_node_ended_by_another_process_is_not_set_to_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, owner=[HANGS, hand(tmp_path, "a", name="plan.md")], dev=[ASK])
    await begun(place.store, place.clock, LINE, tmp_path)
    first = asyncio.create_task(place.run())

    async def goes_away() -> None:
        first.cancel()

    meanwhile(monkeypatch, place.store, "handoff_made", goes_away, is_after=True)

    class Second(Roles):
        async def is_open(self, session: StreamId) -> bool:
            """See `ScriptedRoles`."""
            place.roles.released.set()
            await asyncio.wait((first,))
            return await super().is_open(session)

    async def is_at_work() -> bool:
        return "node_claimed" in await place.kinds()

    await until(is_at_work, within_s=PATIENCE_S)
    await place.run(never, Second(place.store, place.clock, {"owner": [], "dev": [ASK]}))
    assert "handoff_made" in await place.kinds()
    parked = [
        entry.body for entry in await place.store.entries(FLOW) if entry.kind == "node_parked"
    ]
    assert [b"prompt-human" in body for body in parked] == [True]


async def test_node_restarted_by_another_process_is_not_set_to_waiting(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, owner=[HANGS, ASK])
    await begun(place.store, place.clock, LINE, tmp_path)
    first = asyncio.create_task(place.run())
    again: list[asyncio.Task[FlowState]] = []
    rival = Roles(place.store, place.clock, {"owner": [HANGS, ASK]})

    async def claims(count: int) -> bool:
        return (await place.kinds()).count("node_claimed") == count

    class Late(Roles):
        async def is_open(self, session: StreamId) -> bool:
            """Return an outdated result: another process has begun a new turn meanwhile."""
            if again:
                return await super().is_open(session)
            place.roles.released.set()
            await first
            is_open = await super().is_open(session)
            await place.reply("owner-intake")
            again.append(asyncio.create_task(place.run(roles=rival)))
            await until(lambda: claims(2), within_s=PATIENCE_S)
            return is_open

        async def recover(self, session: StreamId, companion: CommitParticipant) -> None:
            """Fail, because the rival is alive."""
            rival.released.set()
            await again[0]

    await until(lambda: claims(1), within_s=PATIENCE_S)
    await place.run(never, Late(place.store, place.clock, {"owner": []}))
    entries = await place.store.entries(FLOW)
    parked = [body_of(entry) for entry in entries if entry.kind == "node_parked"]
    assert [each.reason for each in parked if isinstance(each, NodeParked)] == ["prompt-human"] * 2


async def test_recovery_of_a_node_ignores_the_open_turn_of_another_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process ends a node, claims the next node of the role, and dies.

    The other process reads the log only after the first process has died.
    """
    both = graph("owner-intake>a", "a>b", "b>end", **OWNERS, a="dev", b="dev")
    place = Place(
        tmp_path,
        owner=[hand(tmp_path, "a", name="plan.md")],
        dev=[HANGS, hand(tmp_path, "b", name="half.md"), HANGS],
    )
    await begun(place.store, place.clock, both, tmp_path)
    first = asyncio.create_task(place.run())

    async def is_at(node: str) -> bool:
        return node in (await place.journal().state()).run.running_nodes

    async def hang_again() -> None:
        place.roles.released = asyncio.Event()

    looked: list[StreamId] = []

    class Late(Roles):
        async def is_open(self, session: StreamId) -> bool:
            """Return True after the other process has died in the turn of the next node."""
            if not looked:
                place.roles.released.set()
                await until(lambda: is_at("b"), within_s=PATIENCE_S)
                first.cancel()
                await asyncio.wait((first,))
            looked.append(session)
            return await super().is_open(session)

    await until(lambda: is_at("a"), within_s=PATIENCE_S)
    meanwhile(monkeypatch, place.store, "handoff_made", hang_again, is_after=True)
    state = await place.run(never, Late(place.store, place.clock, {"owner": [], "dev": [ASK]}))
    assert list(state.run.awaiting_human_nodes) == ["b"]
    assert (await place.kinds()).count("handoff_made") == 2
    assert len(looked) == 2


async def test_turn_ended_by_other_process_is_not_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If `recover` raised an error, the node would be parked during the other process's turn."""
    stage = FlowStage(tmp_path, ends("Node `owner-intake`", "prompt-human"))
    flows = stage.flows("owner", "dev")
    flow = await flows.start(LINE, workspace=tmp_path, record_folder="record", id="f")
    await flow.run()
    journal = Journal(stage.memory, flow.id, stage.clock)
    context, roles = flows._execution._roles(journal, await journal.state())  # pyright: ignore[reportPrivateUsage] - the roles as the runner has them
    part = NodePart("owner", "owner-intake", StreamId("f__owner"))
    turn = NodeTurn(context, part, partial(roles.last_answer, part.session))

    async def begun_since(session: StreamId) -> bool:
        return True

    monkeypatch.setattr(roles, "is_open", begun_since)
    await roles.recover(part.session, turn)
    assert (await stage.memory.state(part.session)).open_turn is None


async def test_decision_during_concurrent_change_is_retried_and_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, owner=[ASK])
    await begun(place.store, place.clock, LINE, tmp_path)
    await place.run()

    async def configured() -> None:
        await place.journal().append(lambda _: [RoleConfigured("dev", "a:b")])

    meanwhile(monkeypatch, place.store, "human_replied", configured)
    await place.reply("owner-intake")
    assert (await place.kinds())[-2:] == ["role_configured", "human_replied"]


async def test_second_of_two_concurrent_replies_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, owner=[ASK])
    await begun(place.store, place.clock, LINE, tmp_path)
    await place.run()

    async def first() -> None:
        await place.reply("owner-intake", "the first")

    meanwhile(monkeypatch, place.store, "human_replied", first)
    with pytest.raises(FlowRefusal):
        await place.reply("owner-intake", "the second")
    assert (await place.kinds()).count("human_replied") == 1


# ---------------------------------------------------------------- the newest known position


async def test_reply_that_arrives_while_its_node_starts_to_wait_is_handled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, owner=[ASK, ASK])
    await begun(place.store, place.clock, LINE, tmp_path)

    async def replied() -> None:
        await place.reply("owner-intake")

    meanwhile(monkeypatch, place.store, "node_parked", replied, is_after=True)
    await place.run(never)
    assert place.roles.told["owner"] == ["owner-intake", "owner-intake  go on"]


async def at_work(place: Place, wakes: Wakes | None = None) -> asyncio.Task[FlowState]:
    """Return the running flow: `a` is in a turn, and `b` waits for a person."""
    await begun(place.store, place.clock, FAN, place.folder)
    running = asyncio.create_task(place.run(wakes))

    async def is_asked() -> bool:
        return "b" in (await place.journal().state()).run.awaiting_human_nodes

    await until(is_asked, within_s=PATIENCE_S)
    await settled()  # and so far there is nothing new to read
    return running


async def ended(place: Place, running: asyncio.Task[FlowState]) -> FlowState:
    """Let the turn of node `a` end; return the last state of the flow."""
    place.roles.script["dev"].append(ASK)
    place.roles.released.set()
    return await running


def fan(folder: Path, *replies: str) -> Place:
    return Place(
        folder,
        owner=[hand(folder, "a", "b", name="plan.md")],
        dev=[HANGS],
        qa=[ASK, *replies],
    )


async def test_append_of_another_process_is_seen_while_a_role_works(tmp_path: Path) -> None:
    place = fan(tmp_path, ASK)
    waker = Waker(place.store)
    running = await at_work(place, lambda: waker.wakes(FLOW))
    await place.reply("b")

    async def is_heard() -> bool:
        return len(place.roles.told["qa"]) == 2

    await until(is_heard, within_s=PATIENCE_S)
    assert not running.done()
    await ended(place, running)
    await waker.close()


@pytest.mark.parametrize("is_known", [False, True])
async def test_notification_of_a_known_entry_causes_no_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    """The runner reads after a wake-up for an unknown entry, but not for a known entry."""
    place = fan(tmp_path, ASK, ASK)
    told: asyncio.Queue[int | None] = asyncio.Queue()

    async def wakes() -> AsyncIterator[int | None]:
        while True:
            yield await told.get()

    running = await at_work(place, wakes)
    reads = 0
    entries_as_they_are = place.store.entries

    async def entries(stream: StreamId, after: int = -1, limit: int | None = None) -> list[Entry]:
        nonlocal reads
        reads += stream == FLOW
        return await entries_as_they_are(stream, after, limit)

    assert place.ground is not None
    known = place.ground.journal.latest
    assert known is not None
    monkeypatch.setattr(place.store, "entries", entries)
    if is_known:
        for newest in (known.head, 0, known.head):
            told.put_nowait(newest)
            await settled()
        assert reads == 0
    else:
        await place.reply("b", "first")
        newest = (await place.store.state(FLOW)).head
        assert newest == known.head + 1
        told.put_nowait(newest)
        await settled()
        await place.reply("b", "second")
        told.put_nowait(None)
        await settled()
        assert [text.split()[-1] for text in place.roles.told["qa"][1:]] == ["first", "second"]
    await ended(place, running)


# ---------------------------------------------------------------- session held elsewhere


class Held(ScriptedRoles):
    """Roles whose sessions are leased by another process as long as `until` returns True."""

    until: int | None = None
    tries = 0

    async def session(self, state: FlowState, role: str) -> StreamId:
        """See ``Roles``."""
        self.tries += 1
        if self.until is not None:
            raise LeaseHeld(f"{state.run.flow_id}__{role}", "another", self.until)
        return await super().session(state, role)


@pytest.mark.parametrize("left_s", [60.0, 0.1, -60.0])
async def test_busy_session_is_retried_with_delay(tmp_path: Path, left_s: float) -> None:
    """The delay has a maximum, because a lease can last longer than its owner lives."""
    place = Place(tmp_path)
    roles = Held(place.store, place.clock, {"owner": [ASK]})
    await begun(place.store, place.clock, LINE, tmp_path)
    flow = ground(place.store, place.clock, tmp_path)
    roles.until = place.clock.now_ms() + round(left_s * 1000)
    running = asyncio.create_task(FlowRunner(flow, roles, place.clock, never).run())
    await settled()
    assert roles.tries == 1
    (left,) = place.clock.sleepers
    assert left == pytest.approx(min(max(left_s, LEAST_WAIT_S), MOST_WAIT_S))
    place.clock.advance(left)
    await settled()
    assert (roles.tries, running.done()) == (2, False)
    await Journal(place.store, FLOW, place.clock).append(lambda _: [RoleConfigured("dev", "a:b")])
    roles.until = None
    place.clock.advance(MOST_WAIT_S)
    state = await asyncio.wait_for(running, PATIENCE_S)
    assert state.run.awaiting_human_nodes["owner-intake"].reason == "prompt-human"


async def test_flow_change_causes_an_immediate_retry_of_a_busy_session(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    roles = Held(place.store, place.clock, {"owner": [ASK]})
    await begun(place.store, place.clock, LINE, tmp_path)
    flow = ground(place.store, place.clock, tmp_path)
    roles.until = place.clock.now_ms() + 60_000
    changes = place.store.changes
    running = asyncio.create_task(FlowRunner(flow, roles, place.clock, changes).run())
    await settled()
    roles.until = None
    await Journal(place.store, FLOW, place.clock).append(lambda _: [RoleConfigured("dev", "a:b")])
    state = await asyncio.wait_for(running, PATIENCE_S)
    assert state.run.awaiting_human_nodes["owner-intake"].reason == "prompt-human"


async def hung(folder: Path) -> tuple[FlowStage, Flow, asyncio.Task[FlowRun]]:
    """Return a flow and its run; the first node is in a turn that does not end."""
    at = When(user_contains="Node `owner-intake`")
    stage = FlowStage(folder, Reply(when=at, steps=(Say("Wait."), Hang())))
    flow = await stage.flows("owner", "dev").start(LINE, workspace=folder, id="f")
    running = asyncio.create_task(flow.run())

    async def is_at_work() -> bool:
        return bool((await flow.state()).run.running_nodes)

    await until(is_at_work)
    return stage, flow, running


async def test_second_process_takes_over_after_first_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, _, dying = await hung(tmp_path)
    tries = 0
    acquire_as_it_is = stage.memory.acquire_lease

    async def acquire(*words: object, **named: object) -> object:
        nonlocal tries
        tries += 1
        return await acquire_as_it_is(*words, **named)  # pyright: ignore[reportArgumentType] - passed on

    monkeypatch.setattr(stage.memory, "acquire_lease", acquire)
    stage.models = FlowStage(tmp_path, ends("Node `owner-intake`", "prompt-human")).models
    second = await stage.flows("owner", "dev", owner="there").open("f")
    running = asyncio.create_task(second.run())

    async def has_tried() -> bool:
        return tries > 0

    await until(has_tried)
    await asyncio.sleep(0.1)  # the store's waker works in real time
    assert not running.done()
    assert tries <= 5
    dying.cancel()
    await asyncio.wait((dying,))
    async with asyncio.timeout(PATIENCE_S):
        while not running.done():
            stage.clock.advance(MOST_WAIT_S)
            await asyncio.sleep(0.01)
    run = await running
    assert run.awaiting_human_nodes["owner-intake"].reason == "prompt-human"


@pytest.mark.parametrize("target", ["owner", "owner-intake"])
async def test_stop_request_for_a_dead_process_is_obeyed_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """The next process obeys the request even if nothing else happens in the flow."""
    stage, first, dying = await hung(tmp_path)
    dying.cancel()
    await asyncio.wait((dying,))
    await first.stop(target)
    second = stage.flows("owner", "dev")
    waker = second._execution._waker  # pyright: ignore[reportPrivateUsage] - to keep it from waking

    def wakes(_: StreamId) -> AsyncIterator[int | None]:
        return never()

    monkeypatch.setattr(waker, "wakes", wakes)
    run = await asyncio.wait_for((await second.open("f")).run(), PATIENCE_S)
    assert run.awaiting_human_nodes["owner-intake"].reason == "autonomous-abort"
    assert (await first.state()).stopping == ()
