"""The runner among other writers: conflicts, fencing, late outcomes, partial answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from perdure.client.agents.chat import Chat
from perdure.engine.turns.config import CompactionSettings
from perdure.engine.turns.inputs import Input, Waited
from perdure.engine.turns.runner import StopRequest
from perdure.errors import LeaseLost, StoreUnavailable
from perdure.models.protocol import (
    Delta,
    ModelInfo,
    ModelRequest,
    StreamEnd,
    TextDelta,
    ThinkingDelta,
)
from perdure.models.scenario import Hang, Scenario, When
from perdure.models.scripted import ScriptedModel
from perdure.session.codec import body_of
from perdure.session.ids import StreamId
from perdure.session.kinds import Compaction
from perdure.session.ledger import LateOutcome
from perdure.session.messages import decode_message, user
from perdure.tools.spec import Subject, ToolCall, ToolOutput, ToolSpec
from tests.fakes.chats import Stage, calls, says, until

S = StreamId("s")


class Gate:
    """A tool that waits until it is released, and counts its runs."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()
        self.runs = 0

    async def gate(self) -> str:
        """Wait."""
        self.runs += 1
        self.entered.set()
        await self.leave.wait()
        return "through"


async def at_the_gate(*more: str) -> tuple[Stage, Gate, Chat]:
    stage, gate = Stage(says(calls("gate")), *(says(text) for text in more)), Gate()
    chat = await stage.chat([gate.gate])
    chat.send("go")
    await gate.entered.wait()
    return stage, gate, chat


async def test_turn_completes_despite_concurrent_entries_of_other_writers() -> None:
    stage, gate, chat = await at_the_gate("done")
    other = await stage.store.open("s")
    for n in range(5):
        await other.rename(f"title {n}")
    gate.leave.set()
    assert chat.turn is not None
    assert (await chat.turn).text == "done"
    assert (await stage.memory.maintenance.verify()).is_ok
    assert gate.runs == 1


async def test_late_outcome_is_not_stored_in_a_session_that_reuses_the_id() -> None:
    stage, gate, chat = await at_the_gate("done")
    stage.clock.set_time_of_day(stage.clock.now_ms() + 60_000)
    await stage.store.erase("s")
    other = await stage.store.create(id="s", reuse_erased=True)
    await other.append(*(user(f"{n}") for n in range(9)))
    await stage.memory.acquire_lease(S, "another", 60_000)
    gate.leave.set()
    assert chat.turn is not None
    with pytest.raises(LeaseLost):
        await chat.turn
    assert {entry.kind async for entry in other.entries()} == {"message"}


async def test_outcome_after_a_lost_lease_is_stored_as_late_outcome() -> None:
    stage, gate, chat = await at_the_gate("done")
    stage.clock.set_time_of_day(stage.clock.now_ms() + 60_000)
    taken = await stage.memory.acquire_lease(S, "another", 60_000)
    gate.leave.set()
    assert chat.turn is not None
    with pytest.raises(LeaseLost):
        await chat.turn
    entries = [entry async for entry in chat.session.entries()]
    assert [entry.kind for entry in entries[-2:]] == ["tool_started", "late_outcome"]
    late = body_of(entries[-1])
    assert isinstance(late, LateOutcome)
    assert b"through" in bytes(late.outcome)
    assert (await stage.memory.state(S)).epoch == taken.epoch


async def test_no_effect_begins_after_the_lease_is_lost() -> None:
    stage = Stage(says(calls("strike")))
    struck = 0

    async def strike() -> str:
        nonlocal struck
        struck += 1
        return "struck"

    chat = await stage.chat([strike])
    commit = stage.memory.commit

    async def commit_then_stall(asked: object) -> object:
        # This process is stopped right after its intent is in the log, for longer than its lease.
        committed = await commit(asked)  # type: ignore[arg-type] - passed through as it came
        if any(entry.kind == "tool_started" for entry in committed.entries[0]):
            stage.clock.set_time_of_day(stage.clock.now_ms() + 60_000)
            await stage.memory.acquire_lease(S, "another", 60_000)
        return committed

    stage.memory.commit = commit_then_stall  # type: ignore[method-assign] - a stall is not a state
    with pytest.raises(LeaseLost):
        await chat.send("go")
    assert struck == 0


async def test_partial_answer_is_stored_when_stream_stalls() -> None:
    stage = Stage(says("so far, so good", Hang(), chunk_chars=4))
    chat = await stage.chat()
    chat.send("go")
    assert (await stage.kept()).text.startswith("so f")
    await chat.abort()


@pytest.mark.parametrize("policy", ["continue", "rollback", "ask", "retry"])
async def test_first_text_is_stored_immediately_except_with_policy_retry(
    policy: str,
) -> None:
    stage = Stage()
    kept: list[bytes | None] = []

    class Watching:
        def info(self, model: str) -> ModelInfo:
            return ModelInfo(model)

        async def stream(self, _: ModelRequest) -> AsyncIterator[Delta]:
            for piece in (ThinkingDelta("Hm."), TextDelta("so far"), TextDelta(", so good")):
                yield piece
                partial = await stage.memory.partial(S)
                kept.append(partial and partial[1])
            yield StreamEnd("stop")

    stage.models = Watching()  # type: ignore[assignment] - it looks into the store
    chat = await stage.chat(on_interrupt=policy)
    assert (await chat.send("go")).text == "so far, so good"
    before, at_once, later = kept
    assert before is None
    assert later == at_once
    assert (at_once is None) == (policy == "retry")
    assert at_once is None or decode_message(at_once).text == "so far"


async def test_broken_client_ends_turn_with_error() -> None:
    stage = Stage()
    sound = stage.models

    class Broken:
        def info(self, model: str) -> object:
            return sound.info(model)

        async def stream(self, request: object) -> object:
            raise KeyError("secret")
            yield

    stage.models = Broken()  # type: ignore[assignment] - it breaks on purpose
    chat = await stage.chat()
    with pytest.raises(Exception, match="its client failed") as failed:
        await chat.send("go")
    assert "secret" not in str(failed.value)


async def test_context_is_compacted_during_turn_and_answer_follows() -> None:
    stage = Stage()
    scenario = Scenario(
        name="test",
        rules=(
            says("They counted words, and counted on. " * 10, when=When(asks_summary=True)),
            says("word " * 800),
        ),
        context_window=3_000,
    )
    stage.models = ScriptedModel(scenario, clock=stage.clock)
    chat = await stage.chat(compaction=CompactionSettings(keep_recent_tokens=500))
    for n in range(4):
        assert (await chat.send(f"go on {n}")).end == "stop"
    kinds = await stage.kinds()
    assert kinds.count("turn_finished") == 4
    compactions = [body_of(e) async for e in chat.session.entries() if e.kind == "compaction"]
    assert compactions
    assert all(isinstance(c, Compaction) and c.reason == "threshold" for c in compactions)
    assert "They counted words" in (await chat.session.context()).messages[0].message.text


async def test_steering_message_that_arrives_after_the_turn_is_stored_as_message() -> None:
    _, gate, chat = await at_the_gate("done")
    gate.leave.set()
    assert chat.turn is not None
    await chat.turn
    assert (await chat.steer("by the way")).kind == "message"
    assert (await chat.session.messages())[-1] == user("by the way")


# Stopping ----------------------------------------------------------------------------------------


def told() -> Input:
    return Waited()


async def test_effect_without_stop_request_returns_its_outcome() -> None:
    async def effect() -> Input:
        await asyncio.sleep(0)
        return told()

    assert await StopRequest().uncut(effect()) == told()


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_stop_request_ends_an_effect_without_cancelling_its_task(times: int) -> None:
    stopping = StopRequest()

    async def effect() -> Input:
        for _ in range(times):
            asyncio.get_running_loop().call_soon(stopping.ask)
        await asyncio.Event().wait()
        return told()

    task = asyncio.current_task()
    assert task is not None
    assert await stopping.uncut(effect()) is None
    assert not task.cancelling()
    await asyncio.sleep(0)
    assert stopping.has_cut


async def test_effect_can_stop_its_own_turn_and_return_immediately() -> None:
    stopping = StopRequest()

    async def effect() -> Input:
        stopping.ask()
        return told()

    assert await stopping.uncut(effect()) is None
    await asyncio.sleep(0)


async def test_stopped_effect_completes_its_cleanup() -> None:
    stopping, cleared = StopRequest(), False

    async def effect() -> Input:
        nonlocal cleared
        asyncio.get_running_loop().call_soon(stopping.ask)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleared = True
        return told()

    assert await stopping.uncut(effect()) is None
    assert cleared


async def test_error_of_stopped_effect_is_ignored() -> None:
    stopping = StopRequest()

    async def effect() -> Input:
        asyncio.get_running_loop().call_soon(stopping.ask)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("the connection broke") from None
        return told()

    assert await stopping.uncut(effect()) is None


async def test_error_of_effect_is_raised() -> None:
    async def effect() -> Input:
        raise OSError("the connection broke")

    with pytest.raises(OSError, match="broke"):
        await StopRequest().uncut(effect())


@pytest.mark.parametrize("is_asked", [False, True])
@pytest.mark.parametrize("has_outcome", [False, True])
async def test_cancellation_has_priority_over_other_stop_requests(
    *, is_asked: bool, has_outcome: bool
) -> None:
    stopping, entered = StopRequest(), asyncio.Event()

    async def effect() -> Input:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not has_outcome:
                raise
        return told()

    task = asyncio.create_task(stopping.uncut(effect()))
    await entered.wait()
    if is_asked:
        stopping.ask()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_turn_survives_a_failed_task_group_of_its_model_client() -> None:
    stage = Stage()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ConnectionError("this mirror is down")

    class Racing:
        def info(self, model: str) -> ModelInfo:
            return ModelInfo(model)

        async def stream(self, _: ModelRequest) -> AsyncIterator[Delta]:
            with contextlib.suppress(BaseExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(fails())
                    group.create_task(asyncio.sleep(1))
            yield TextDelta("from the other mirror")
            yield StreamEnd("stop")

    stage.models = Racing()  # type: ignore[assignment] - a client with tasks of its own
    chat = await stage.chat()
    assert (await chat.send("go")).text == "from the other mirror"


async def test_waiting_turn_fails_when_store_is_closed() -> None:
    stage = Stage(says(calls("strike")))

    async def strike(_call: ToolCall) -> ToolOutput:
        return ToolOutput("struck")

    made = ToolSpec(
        name="strike",
        description="Strike.",
        parameters={"type": "object"},
        run=strike,
        action="os",
        examine=lambda _arguments, _permissions: Subject("it", grant="it"),
    )
    chat = await stage.chat([made])
    turn = chat.send("go")

    async def is_asked() -> bool:
        return "question" in await stage.kinds()

    await until(is_asked)
    await stage.store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await turn
