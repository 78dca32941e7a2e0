"""Background tasks end with their worker job; a turn begun by another process is continued."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import perdure
from perdure import Agent, Chat, Runtime, Store, user
from perdure.client.agents.runners import EmbeddedRunner, NewTurn, answering
from perdure.client.cluster.limits import Slots
from perdure.client.cluster.performer import MAX_LEFT_OPEN, Performer
from perdure.client.cluster.runner import cluster_of
from perdure.engine.turns.session_turns import SessionTurns, Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import StoreReadOnly, StoreUnavailable
from perdure.models.scenario import Scenario
from perdure.models.scripted import ScriptedModel
from perdure.session.codec import new_side
from perdure.session.ids import entry_id
from perdure.session.ledger import ToolFinished, TurnRequested, TurnStopRequested
from perdure.stores.cluster.protocol import Work
from perdure.stores.protocol import Commit, Write
from tests.fakes.chats import MODEL, calls, says
from tests.fakes.clock import ManualClock

pytestmark = pytest.mark.full_only

WATCH = "Performer._obey_stops"
BESIDE = {WATCH, "Performer._long_wait", "Turn.settled"}
"""The tasks that a performer runs beside a turn."""

READS = ("acquire_lease", "commit", "context_window", "entries", "notes", "state", "tail")
"""The calls with which a worker's turn accesses the database."""

ENDS_S = 60
"""How long a test waits for an end before the test fails."""


def is_watch() -> bool:
    """Return whether the current task is the one that watches for stops."""
    task = asyncio.current_task()
    return task is not None and getattr(task.get_coro(), "__qualname__", "") == WATCH


def names() -> list[str]:
    """Return the names of the running coroutines."""
    return [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]


class HeldWatch:
    """Blocks the first read of the task that watches for stops.

    If the blocked read is cancelled, `cancelled` is called. `work` is the work that the task can
    stop.
    """

    work: Work

    def __init__(self, cancelled: Callable[[], Awaitable[Any]]) -> None:
        self._cancelled = cancelled
        self.is_reading = asyncio.Event()
        self.is_cancelled = asyncio.Event()

    def silent(self, changes: Callable[..., AsyncIterator[None]]) -> Callable[..., Any]:
        """Return a version of `changes` that gives the watching task only the first wake-up."""

        async def one() -> AsyncGenerator[None]:
            yield
            await asyncio.Event().wait()

        def either(*args: Any) -> AsyncIterator[None]:
            return one() if is_watch() else changes(*args)

        return either

    def wrapped(self, state: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return a version of `state` that blocks the first read of the watching task."""

        async def wrapper(*args: Any) -> Any:
            if is_watch() and not self.is_reading.is_set():
                self.is_reading.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.is_cancelled.set()
                    await self._cancelled()
                    raise
            return await state(*args)

        return wrapper


@asynccontextmanager
async def performing(
    store: Store, watch: HeldWatch, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[asyncio.Task[str], asyncio.Event]]:
    """Continue an open turn like a worker; yield its task, and an event that ends its tool."""
    release = asyncio.Event()

    async def hold() -> str:
        await release.wait()
        return "held"

    agent = Agent("helper", model=MODEL, tools=(perdure.tool(effect="read")(hold),))

    def runtime() -> Runtime:
        scenario = Scenario(name="test", sequence=(says("Well.", calls("hold")), says("done")))
        return Runtime(store, [agent], models=ScriptedModel(scenario, clock=ManualClock()))

    async with runtime() as first:
        chat = await first.start(agent)
        turn = chat.send("go")
        await turn.started()
        await turn.stop()
    async with runtime() as second:
        open_turn = (await store.backend.state(chat.id)).open_turn
        assert open_turn is not None
        with monkeypatch.context() as patched:
            patched.setattr(store.backend, "state", watch.wrapped(store.backend.state))
            patched.setattr(store.backend, "changes", watch.silent(store.backend.changes))
            work = watch.work = Work(store.backend.namespace, chat.id, None, open_turn)
            performer = Performer(second, Slots(cluster_of(store.backend).limits, "worker"))
            try:
                yield asyncio.ensure_future(performer.perform(work)), release
            finally:
                await second.suspend()


async def test_worker_job_ends_even_if_its_watch_ignores_cancellation(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable() -> None:
        raise StoreUnavailable(store.backend.address, "the read was cut")

    watch = HeldWatch(unavailable)
    async with performing(store, watch, monkeypatch) as (work, release):
        await asyncio.wait_for(watch.is_reading.wait(), ENDS_S)
        release.set()
        assert await asyncio.wait_for(work, ENDS_S) == "continued"
        assert BESIDE.isdisjoint(names())


async def test_worker_job_continues_its_turn_after_a_store_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, failures = store.backend.commit, 0

    async def failing_once(made: Commit) -> Any:
        nonlocal failures
        if not failures and any(
            entry.kind == ToolFinished.kind for entry in made.writes[0].entries
        ):
            failures += 1
            raise StoreReadOnly(store.backend.address)
        return await commit(made)

    async def nothing() -> None:
        return None

    watch = HeldWatch(nothing)
    async with performing(store, watch, monkeypatch) as (work, release):
        monkeypatch.setattr(store.backend, "commit", failing_once)
        release.set()
        assert await asyncio.wait_for(work, ENDS_S) == "continued"
        assert failures == 1
        assert (await store.backend.state(watch.work.stream)).open_turn is None


async def test_worker_job_ends_after_errors_that_leave_its_turn_open(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, failures = store.backend.commit, 0

    async def failing(made: Commit) -> Any:
        nonlocal failures
        if ToolFinished.kind in {entry.kind for entry in made.writes[0].entries}:
            failures += 1
            raise StoreReadOnly(store.backend.address)
        return await commit(made)

    async def nothing() -> None:
        return None

    monkeypatch.setattr("perdure.client.cluster.performer.BUSY_S", 0.001)
    async with performing(store, HeldWatch(nothing), monkeypatch) as (work, release):
        monkeypatch.setattr(store.backend, "commit", failing)
        release.set()
        assert await asyncio.wait_for(work, ENDS_S) == "left open"
        assert failures == MAX_LEFT_OPEN


class FailingWatch(HeldWatch):
    """Fails the first read of the task that watches for stops."""

    def wrapped(self, state: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def wrapper(*args: Any) -> Any:
            if is_watch() and not self.is_reading.is_set():
                self.is_reading.set()
                raise StoreUnavailable("", "the server was restarted")
            return await state(*args)

        return wrapper


async def test_stop_request_is_obeyed_although_the_first_check_for_it_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing() -> None:
        return None

    watch = FailingWatch(nothing)
    async with performing(store, watch, monkeypatch) as (work, _):
        stream, turn = watch.work.stream, watch.work.turn
        assert turn is not None
        stop = new_side(TurnStopRequested(), entry_id(stream, turn))
        write = Write(stream=stream, entries=(stop,))
        await store.backend.commit(Commit(writes=(write,), at=store.outside.clock.now_ms()))
        assert await asyncio.wait_for(work, ENDS_S) == "continued"
        assert watch.is_reading.is_set()


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_worker_job_cancelled_repeatedly_leaves_no_task(
    store: Store, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancel_on_the_server() -> None:
        await asyncio.shield(asyncio.sleep(0.2))

    watch = HeldWatch(cancel_on_the_server)
    async with performing(store, watch, monkeypatch) as (work, _):
        await asyncio.wait_for(watch.is_reading.wait(), ENDS_S)
        assert BESIDE.issubset(names())
        work.cancel()
        await asyncio.wait_for(watch.is_cancelled.wait(), ENDS_S)
        for _ in range(times - 1):
            work.cancel()
            await asyncio.sleep(0)
        await asyncio.wait((work,), timeout=ENDS_S)
        assert work.cancelled()
        assert BESIDE.isdisjoint(names())


class BeatenRunner(EmbeddedRunner):
    """A runner; before its first turn, another process starts a turn and leaves it open."""

    def __init__(self, other: Chat, request: int | None, release: asyncio.Event) -> None:
        self._other: Chat | None = other
        self._request = request
        self._release = release

    async def new_turn(self, turns: SessionTurns, new: NewTurn, signals: Signals) -> TurnState:
        other, self._other = self._other, None
        if other is not None:
            with answering(other.id, self._request or 0):
                turn = other.send("go" if self._request else "before")
            await turn.started()
            await turn.stop()
            self._release.set()
        return await super().new_turn(turns, new, signals)


@pytest.mark.parametrize("is_same", [True, False])
async def test_worker_job_continues_a_turn_that_another_process_began(
    store: Store, is_same: bool
) -> None:
    release = asyncio.Event()

    async def hold() -> str:
        await release.wait()
        return "held"

    agent = Agent("helper", model=MODEL, tools=(perdure.tool(effect="read")(hold),))

    def runtime() -> Runtime:
        answers = (says("Well.", calls("hold")), says("done"), says("done, too"))
        scenario = Scenario(name="test", sequence=answers)
        return Runtime(store, [agent], models=ScriptedModel(scenario, clock=ManualClock()))

    async with runtime() as first, runtime() as second:
        chat = await first.start(agent)
        asked = new_side(TurnRequested(user("go")))
        write = Write(stream=chat.id, entries=(asked,))
        ((request,),) = (await store.backend.commit(Commit(writes=(write,), at=0))).entries
        performer = Performer(second, Slots(cluster_of(store.backend).limits, "worker"))
        second.host.runner = BeatenRunner(chat, request.seq if is_same else None, release)
        work = Work(store.backend.namespace, chat.id, request.seq)
        await asyncio.wait_for(performer.perform(work), ENDS_S)
        assert (await store.backend.state(chat.id)).open_turn is None
        assert not await store.backend.open_of_all(TurnRequested.kind)
        path = await chat.session.path()
    said = [each.text for each in path if each.message and each.message.role == "user"]
    assert said == (["go"] if is_same else ["before", "go"])


async def test_worker_job_continues_a_turn_that_began_during_the_resume(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent("helper", model=MODEL)

    def runtime() -> Runtime:
        scenario = Scenario(name="test", sequence=(says("done"), says("done, too")))
        return Runtime(store, [agent], models=ScriptedModel(scenario, clock=ManualClock()))

    async with runtime() as first, runtime() as second:
        chat = await first.start(agent)
        asked = new_side(TurnRequested(user("go")))
        write = Write(stream=chat.id, entries=(asked,))
        ((request,),) = (await store.backend.commit(Commit(writes=(write,), at=0))).entries
        resume, begun = second.resume, asyncio.Event()

        async def beaten(session: str) -> Chat:
            resumed = await resume(session)
            if not begun.is_set():
                begun.set()
                with answering(chat.id, request.seq):
                    turn = chat.send("go")
                await turn.started()
                await turn.stop()
                assert (await store.backend.state(chat.id)).open_turn is not None
            return resumed

        monkeypatch.setattr(second, "resume", beaten)
        performer = Performer(second, Slots(cluster_of(store.backend).limits, "worker"))
        work = Work(store.backend.namespace, chat.id, request.seq)
        assert await asyncio.wait_for(performer.perform(work), ENDS_S) == "continued"
        assert (await store.backend.state(chat.id)).open_turn is None
        path = await chat.session.path()
    assert [each.message.text for each in path if each.message] == ["go", "done"]


async def test_requested_turn_reads_its_session_only_a_few_times(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A turn that ends before the first look for a stop request has no such look, on any machine.
    monkeypatch.setattr("perdure.client.cluster.performer.STOP_LOOK_S", 2 * ENDS_S)
    asked: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Awaitable[Any]]:
        call = getattr(store.backend, name)

        async def counting(*args: Any, **kwargs: Any) -> Any:
            asked[name] += 1
            return await call(*args, **kwargs)

        return counting

    agent = Agent("helper", model=MODEL)
    scenario = Scenario(name="test", sequence=(says("done"),))
    models = ScriptedModel(scenario, clock=ManualClock())
    async with Runtime(store, [agent], models=models) as runtime:
        chat = await runtime.start(agent)
        write = Write(stream=chat.id, entries=(new_side(TurnRequested(user("go"))),))
        ((request,),) = (await store.backend.commit(Commit(writes=(write,), at=0))).entries
        performer = Performer(runtime, Slots(cluster_of(store.backend).limits, "worker"))
        for name in READS:
            monkeypatch.setattr(store.backend, name, counted(name))
        work = Work(store.backend.namespace, chat.id, request.seq)
        assert await asyncio.wait_for(performer.perform(work), ENDS_S) == "done"
    assert asked == {"state": 1, "tail": 3, "context_window": 1, "commit": 2}
