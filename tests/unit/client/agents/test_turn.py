"""A turn that fails, as its caller sees it."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import traceback
import weakref
from operator import attrgetter
from pathlib import Path
from typing import get_args

import pytest

from perdure import assistant, blocking, tool_call
from perdure import open as open_store
from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.agents.runtime import Runtime
from perdure.client.agents.turn import Turn
from perdure.client.watch import Watch
from perdure.engine.turns.config import Limits
from perdure.engine.turns.executor.model_call import AnswerCall
from perdure.engine.turns.session_turns import Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import (
    LeaseHeld,
    ModelRefused,
    ModelUnavailable,
    StoreUnavailable,
    TurnFailed,
    TurnFailure,
    TurnSuspended,
)
from perdure.models.retry import RetryPolicy
from perdure.session.ids import StreamId
from perdure.session.ledger import TurnFinished
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult
from perdure.testing import ScriptedModel
from perdure.tools.decorator import tool
from tests.conftest import REPOSITORY
from tests.fakes.chats import Stage, calls, says


def nothing_to_watch(after: int) -> Watch:
    raise AssertionError(f"nobody watches after {after}")


async def test_error_at_the_start_of_a_turn_is_raised_to_every_caller() -> None:
    async def work(signals: Signals) -> TurnState:
        raise LeaseHeld("s", "another", 0)

    turn = Turn(work, nothing_to_watch)
    with pytest.raises(LeaseHeld):
        await turn
    with pytest.raises(LeaseHeld):
        await turn.started()
    with pytest.raises(LeaseHeld):
        [event async for event in turn]
    assert not turn.is_running


async def test_failure_during_turn_ends_iteration() -> None:
    stage = Stage(says(calls("break_the_store")))

    async def break_the_store() -> str:
        await stage.memory.close()
        return "closed"

    chat = await stage.chat([break_the_store])
    turn = chat.send("go")
    with pytest.raises(StoreUnavailable):
        [event async for event in turn]


async def test_turn_stopped_by_its_caller_stays_open_in_the_store() -> None:
    entered = asyncio.Event()

    async def wait() -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    stage = Stage(says(calls("wait")))
    chat = await stage.chat([wait])
    turn = chat.send("go")
    await entered.wait()
    await turn.stop()
    assert not turn.is_running
    assert (await stage.memory.state(StreamId("s"))).open_turn is not None
    with pytest.raises(TurnSuspended):
        await turn


async def test_waiting_turn_without_references_is_not_garbage_collected() -> None:
    wakeups: weakref.WeakSet[asyncio.Event] = weakref.WeakSet()
    woken = asyncio.Event()

    async def work(signals: Signals) -> TurnState:
        wakeup = asyncio.Event()
        wakeups.add(wakeup)
        await wakeup.wait()
        woken.set()
        raise TurnSuspended

    Turn(work, nothing_to_watch)
    await asyncio.sleep(0)
    gc.collect()
    for wakeup in wakeups:
        wakeup.set()
    async with asyncio.timeout(60):
        await woken.wait()


async def test_error_for_reading_an_unawaited_reply_shows_await() -> None:
    turn = (await Stage(says("Hello")).chat()).send("hi")
    with pytest.raises(AttributeError, match=r"its reply has: \(await turn\)\.text"):
        attrgetter("text")(turn)
    with pytest.raises(AttributeError, match=r"no attribute 'txet'$"):
        attrgetter("txet")(turn)
    assert (await turn).text == "Hello"


async def test_chat_is_idle_when_the_iteration_of_a_turn_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(says("one"), says("two"))
    chat = await stage.chat()
    commit = MemoryStore.commit

    async def slow_end(store: MemoryStore, what: Commit) -> CommitResult:
        committed = await commit(store, what)
        if any(new.kind == TurnFinished.kind for new in what.writes[0].entries):
            for _ in range(50):  # a watcher reads the end before the turn returns
                await asyncio.sleep(0)
        return committed

    monkeypatch.setattr(MemoryStore, "commit", slow_end)
    async for _ in chat.send("first"):
        pass
    assert chat.status == "idle"
    assert (await chat.send("second")).text == "two"


def test_blocking_chat_accepts_a_message_after_each_iterated_turn(tmp_path: Path) -> None:
    agent = Agent("echo", model="scripted:echo")
    with (
        blocking.open(f"sqlite:///{tmp_path}/s.db") as store,
        blocking.Runtime(store, [agent]) as runtime,
    ):
        chat = runtime.start("echo")
        ends = [[event.type for event in chat.send(str(n))][-1] for n in range(20)]
    assert ends == ["session:turn_completed"] * 20


async def failure_of_turn(chat: Chat) -> TurnFailed:
    with pytest.raises(TurnFailed) as failed:
        await chat.send("go")
    return failed.value


async def test_failed_turn_has_the_error_of_the_model_as_its_cause() -> None:
    key = "sk-live-0123456789abcdef0123"
    origin = KeyError(key)
    error = ModelRefused("test:any", "no credit", 402)
    error.__cause__ = origin
    store = Stage().store
    agent = Agent("a", model="x:y")
    async with Runtime(store, models=ScriptedModel([error])) as runtime:
        failed = await failure_of_turn(await runtime.start(agent))
    assert failed.failure == "provider_refused"
    assert isinstance(failed.__cause__, ModelRefused)
    printed = "".join(traceback.format_exception(failed))
    assert "no credit" in printed
    assert key not in printed


async def test_failed_turn_has_the_unexpected_error_as_its_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(_: AnswerCall) -> None:
        raise OSError("the disk has gone")

    monkeypatch.setattr(AnswerCall, "outcome", fail)
    failed = await failure_of_turn(await Stage(says("one")).chat())
    assert failed.failure == "internal"
    assert isinstance(failed.__cause__, OSError)


async def test_turn_that_fails_at_a_limit_has_no_cause() -> None:
    error = ModelUnavailable("test:any", "overloaded")
    call = assistant(tool_call("c1", "look", {}))

    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "nothing"

    soon = RetryPolicy(first_wait_s=0.001)
    agent = Agent("a", model="x:y", tools=[look], limits=Limits(max_tool_rounds=1), retry=soon)
    models = ScriptedModel([error, call, call])
    async with open_store("memory:") as store, Runtime(store, models=models) as runtime:
        failed = await failure_of_turn(await runtime.start(agent))
    assert failed.failure == "tool_round_limit"
    assert failed.__cause__ is None


def test_every_failure_of_a_turn_is_documented() -> None:
    guide = (REPOSITORY / "docs" / "guides" / "turns.md").read_text("utf-8")
    table = guide.split("| `TurnFailed.failure` |")[1].split("\n\n")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    named = re.findall(r"`(\w+)`", " ".join(first_cells))
    assert sorted(named) == sorted(get_args(TurnFailure))


def test_turn_that_the_program_leaves_unfinished_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "perdure.client.agents.turn")

    async def leave(*, is_begun: bool) -> None:
        store = await open_store("memory:")
        runtime = Runtime(store, [Agent("a", model="test:x")], models=ScriptedModel(["Hello"]))
        turn = (await runtime.start("a")).send("Hello")
        if is_begun:
            await turn.started()

    for is_begun, told in ((False, "before the message to session "), (True, "during a turn of ")):
        caplog.clear()
        asyncio.run(leave(is_begun=is_begun))
        (record,) = caplog.records
        assert record.getMessage().startswith(f"the event loop ended {told}")


async def test_suspending_a_turn_writes_no_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_store("memory:") as store:
        runtime = Runtime(store, [Agent("a", model="test:x")], models=ScriptedModel(["Hello"]))
        turn = (await runtime.start("a")).send("Hello")
        await runtime.suspend()
        with pytest.raises(TurnSuspended):
            await turn
    assert not caplog.records
