"""Two chats of one session in one process: the second follows the turn that the first runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import perdure
from perdure import Chat, assistant, tool_call
from perdure.client.reads import OpenQuestion
from perdure.client.requests import led_turn
from perdure.errors import Erased, InvalidTransition, LeaseHeld, SessionNotFound
from perdure.testing import ScriptedModel
from tests.fakes.chats import until

CALL = assistant(tool_call("c1", "book", {}))


@perdure.tool(effect="external", needs_approval=True, on_unknown="retry")
async def book() -> str:
    """Book."""
    return "booked"


AGENT = perdure.Agent("desk", model="test:x", tools=[book])

Opened = tuple[Chat, perdure.Runtime, Callable[[], perdure.Runtime], list[str]]


@asynccontextmanager
async def asking_chat(address: str, *says: str) -> AsyncGenerator[Opened]:
    """Yield a waiting chat, its runtime, a function that makes another runtime, and questions."""
    told: list[str] = []
    models = ScriptedModel([CALL, *(says or ("the end",))])

    def runtime(owner: str) -> perdure.Runtime:
        def tell(question: OpenQuestion) -> None:
            told.append(f"{owner}: {question.id}")

        return perdure.Runtime(store, [AGENT], models=models, owner=owner, on_question=tell)

    async with asyncio.timeout(60), perdure.open(address) as store, runtime("one") as first:
        chat = await first.start("desk", id="s")
        chat.send("go")

        async def is_told() -> bool:
            return bool(told)

        await until(is_told)
        yield chat, first, lambda: runtime("two"), told


async def answer(runtime: perdure.Runtime) -> None:
    (question,) = await runtime.host.store.questions()
    await runtime.host.store.answer(question.id, "allow", by="me")


@pytest.fixture(params=["memory:", "sqlite:///{}/s.db", "jsonl:///{}/files"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path)


async def test_question_is_reported_once_although_two_chats_follow_the_turn(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(led_turn, "LOOK_S", 0.01)
    async with asking_chat(address) as (chat, runtime, _, told):
        second = await runtime.resume("s")
        assert second.turn is not None
        await second.turn.started()
        for _ in range(10):
            assert second.turn.held is None
            await asyncio.sleep(0.02)
        assert await runtime.resume_all() == []
        with pytest.raises(InvalidTransition, match="while the turn is running"):
            second.send("more")
        await answer(runtime)
        assert chat.turn is not None
        assert [(await each).text for each in (chat.turn, second.turn)] == ["the end"] * 2
        assert len(told) == 1


@pytest.mark.parametrize(("method", "end"), [("abort", "aborted"), ("cancel", "cancelled")])
async def test_second_chat_can_stop_the_turn_of_the_first_chat(
    address: str, method: str, end: str
) -> None:
    async with asking_chat(address) as (chat, runtime, *_):
        second = await runtime.resume("s")
        await getattr(second, method)()
        assert chat.turn is not None
        assert second.turn is not None
        assert [(await each).end for each in (chat.turn, second.turn)] == [end] * 2


async def test_turn_suspended_by_one_chat_continues_in_the_other_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(led_turn, "LOOK_S", 0.01)
    async with asking_chat("memory:") as (chat, runtime, _, told):
        second = await runtime.resume("s")
        assert second.turn is not None
        await second.turn.started()
        await chat.suspend()

        async def is_told_again() -> bool:
            return len(told) == 2

        await until(is_told_again)  # the turn waits again
        await answer(runtime)
        assert (await second.turn).text == "the end"


async def test_question_is_announced_only_by_the_runtime_that_runs_the_turn() -> None:
    async with asking_chat("memory:") as (chat, runtime, other, told), other() as elsewhere:
        second = await elsewhere.resume("s")
        assert second.turn is not None
        assert second.turn.is_waiting
        await answer(runtime)
        assert (await second.turn).text == "the end"
        assert told == [f"one: {told[0][5:]}"]
        assert not chat.is_running


async def test_chat_stays_open_after_a_refused_attempt_to_end_it() -> None:
    opened = asking_chat("memory:", "the end", "next")
    async with opened as (_, runtime, other, _told), other() as elsewhere:
        second = await elsewhere.resume("s")
        with pytest.raises(LeaseHeld):
            await second.end()
        assert second.status == "running"
        assert second.turn is not None
        await answer(runtime)
        await second.turn
        assert (await second.send("and now?")).text == "next"


async def test_recover_returns_the_reply_of_a_finished_turn() -> None:
    script = ScriptedModel(["one", CALL, "two"])
    async with (
        asyncio.timeout(60),
        perdure.open("memory:") as store,
        perdure.Runtime(store, [AGENT], models=script) as runtime,
    ):
        chat = await runtime.start("desk", id="s")
        await chat.send("first")
        began = [each async for each in chat.session.entries(kind="turn_started")]
        await chat.send("second").started()
        await chat.suspend()
        assert (await chat.recover(began[0].seq)).text == "one"
        second = chat.recover()
        await second.started()
        await chat.abort()
        assert (await second).end == "aborted"


@pytest.mark.parametrize("method", ["abort", "end"])
async def test_chat_created_before_the_turn_began_can_abort_the_turn(
    address: str, method: str
) -> None:
    script = ScriptedModel([CALL, "next"])
    async with (
        asyncio.timeout(60),
        perdure.open(address) as store,
        perdure.Runtime(store, [AGENT], models=script) as runtime,
    ):
        chat = await runtime.start("desk", id="s")
        second = await runtime.resume("s")
        turn = chat.send("go")

        async def is_asked() -> bool:
            return bool(await store.questions())

        await until(is_asked)
        assert second.status == "idle"
        await getattr(second, method)()
        assert (await turn).end == "aborted"
        await chat.abort()  # no turn runs: no effect
        assert await store.questions() == []


@pytest.mark.parametrize("close", ["cancel", "end"])
async def test_closed_chat_aborts_no_turn_of_another_chat(address: str, close: str) -> None:
    async with (
        asyncio.timeout(60),
        perdure.open(address) as store,
        perdure.Runtime(store, [AGENT], models=ScriptedModel([CALL, "the end"])) as runtime,
    ):
        chat = await runtime.start("desk", id="s")
        closed = await runtime.resume("s")
        await getattr(closed, close)()
        turn = chat.send("go")

        async def is_asked() -> bool:
            return bool(await store.questions())

        await until(is_asked)
        await closed.abort()
        assert closed.turn is None
        await answer(runtime)
        assert (await turn).text == "the end"


async def test_error_says_that_another_runtime_of_the_process_runs_the_turn(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/s.db"
    async with (
        asking_chat(address) as (chat, runtime, *_),
        perdure.open(address) as store,
        perdure.Runtime(store, [AGENT], models=ScriptedModel(["next"])) as other,
    ):
        second = await other.resume("s")
        assert second.turn is not None
        told = "another Store or Runtime of this process runs a turn in it"
        with pytest.raises(LeaseHeld, match=told):
            await second.abort()
        with pytest.raises(LeaseHeld, match=told):
            second.send("more")
        await answer(runtime)
        assert chat.turn is not None
        assert [(await each).text for each in (chat.turn, second.turn)] == ["the end"] * 2


async def test_error_for_a_second_chat_explains_how_to_queue_a_message(
    address: str,
) -> None:
    models = ScriptedModel([CALL, "the end", "the next"])
    async with (
        asyncio.timeout(60),
        perdure.open(address) as store,
        perdure.Runtime(store, [AGENT], models=models) as runtime,
    ):
        first = await runtime.start("desk", id="s")
        second = await runtime.resume("s")
        turn = first.send("go")
        await turn.started()
        told = r"another Chat of this session in this Runtime .* idempotency_key="
        with pytest.raises(LeaseHeld, match=told):
            await second.send("more")
        queued = second.send("more", idempotency_key="1")

        async def is_asked() -> bool:
            return bool(await store.questions())

        await until(is_asked)
        await answer(runtime)
        assert [(await each).text for each in (turn, queued)] == ["the end", "the next"]


async def test_followed_turn_ends_immediately_when_its_session_is_erased(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(led_turn, "LOOK_S", 3_600.0)
    async with asking_chat(address) as (chat, runtime, other, _told), other() as elsewhere:
        second = await elsewhere.resume("s")
        assert second.turn is not None
        await second.turn.started()
        await runtime.host.store.erase("s")
        with pytest.raises((Erased, SessionNotFound)):
            await second.turn
        await chat.suspend()
