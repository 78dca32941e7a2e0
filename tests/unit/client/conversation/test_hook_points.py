"""Hooks in real turns, forks and branch changes observe, change, block or supply results."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.engine.hooks.points import (
    AfterModelCall,
    BeforeCompact,
    BeforeModelCall,
    BeforeTree,
    Block,
    Compacted,
    HookName,
    SessionStart,
    ToolAnswered,
    ToolAsked,
    TreeMoved,
)
from perdure.engine.hooks.registry import Hooks
from perdure.engine.turns.config import CompactionSettings
from perdure.errors import HookBlocked, TurnFailed, Waiting
from perdure.models.protocol import ModelRequest
from perdure.session.codec import body_of
from perdure.session.kinds import BranchSummary, Compaction
from perdure.session.ledger import ToolFinished
from perdure.session.messages import Message, ToolCallPart, assistant, user
from perdure.tools.decorator import tool
from perdure.tools.spec import ToolOutput
from tests.fakes.chats import MODEL, Stage, calls, says

RAN: list[str] = []


@tool(effect="write")
async def change(what: str = "it") -> str:
    """Change something."""
    RAN.append(what)
    return f"changed {what}"


async def bodies(chat: Chat, kind: type[Any]) -> list[Any]:
    found = [body_of(entry) async for entry in chat.session.entries()]
    return [body for body in found if isinstance(body, kind)]


async def test_request_hook_can_change_the_request_but_not_its_model() -> None:
    stage = Stage(says("hi"))
    chat = await stage.chat()
    seen: list[ModelRequest] = []

    def shout(point: BeforeModelCall) -> ModelRequest:
        said = (user(point.request.messages[-1].text.upper()),)
        return msgspec.structs.replace(point.request, messages=said, model="other:one")

    stage.store.hooks.on("before_model_call", shout)
    stage.store.hooks.on("after_model_call", lambda point: seen.append(point.request))
    assert (await chat.send("hello")).text == "hi"
    assert (seen[0].messages[0].text, seen[0].model) == ("HELLO", MODEL)
    assert (await chat.session.messages())[0].text == "hello"


async def test_answer_supplied_by_hook_needs_no_model_call() -> None:
    stage = Stage()
    chat = await stage.chat([change])
    stage.store.hooks.on("before_model_call", lambda point: assistant("from the hook"))
    assert (await chat.send("hello")).text == "from the hook"


async def test_blocked_call_ends_turn_with_reason() -> None:
    stage = Stage(says("hi"), says("hi"))
    chat = await stage.chat()
    remove = stage.store.hooks.on("before_model_call", lambda point: Block("not on Sundays"))
    with pytest.raises(TurnFailed, match="not on Sundays"):
        await chat.send("hello")
    remove()
    assert (await chat.send("again")).text == "hi"


async def test_answer_hook_gets_the_whole_answer() -> None:
    stage = Stage(says("one ", "two"))
    chat = await stage.chat()
    told: list[Message] = []

    def look(point: AfterModelCall) -> None:
        told.append(point.message)

    stage.store.hooks.on("after_model_call", look)
    await chat.send("hello")
    assert [message.text for message in told] == ["one two"]


@pytest.mark.parametrize("answer", [Block("hands off"), RuntimeError("broken")])
async def test_blocked_tool_never_runs_and_model_gets_the_reason(answer: object) -> None:
    RAN.clear()
    stage = Stage(says(calls("change")), says("as you like"))
    chat = await stage.chat([change])

    def guard(point: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    stage.store.hooks.on("tool_call", guard)
    assert (await chat.send("go")).text == "as you like"
    assert RAN == []
    (finished,) = await bodies(chat, ToolFinished)
    assert finished.outcome == "refused"


@tool(effect="external", needs_approval=True)
async def pay(amount: int, to: list[str]) -> str:
    """Pay."""
    return f"paid {amount} to {', '.join(to)}"


async def test_hook_cannot_change_approved_arguments() -> None:
    stage = Stage(says(calls("pay", json='{"amount": 5, "to": ["ana"]}')), says("done"))
    chat = await stage.chat([pay])

    def change_in_place(point: ToolAsked) -> None:
        args: Any = point.call.args
        args["amount"] = 5000
        args["to"].append("mallory")

    stage.store.hooks.on("tool_call", change_in_place)
    turn = chat.send("go", while_waiting="raise")
    with pytest.raises(Waiting):
        await turn
    (question,) = await stage.store.questions()
    await stage.store.answer(question.id, "allow", by="ana")
    await turn
    (result,) = [m.text for m in await chat.session.messages() if m.role == "tool"]
    assert result == "paid 5 to ana"


async def test_hook_cannot_change_stored_messages_through_request() -> None:
    stage = Stage(says(calls("change", json='{"what": "lamp"}')), says("ok"), says("ok"))
    chat = await stage.chat([change])

    def forget_arguments(point: BeforeModelCall) -> None:
        for message in point.request.messages:
            for part in message.parts:
                if isinstance(part, ToolCallPart):
                    part.args.clear()

    seen: list[ModelRequest] = []
    stage.store.hooks.on("before_model_call", forget_arguments)
    stage.store.hooks.on("after_model_call", lambda point: seen.append(point.request))
    await chat.send("go")
    await chat.send("again")
    sent = [part for message in seen[-1].messages for part in message.parts]
    assert [part.args for part in sent if isinstance(part, ToolCallPart)] == [{"what": "lamp"}]


async def test_tool_hook_can_supply_or_change_a_result() -> None:
    RAN.clear()
    stage = Stage(says(calls("change")), says("ok"), says(calls("change")), says("ok"))
    chat = await stage.chat([change])
    hooks = stage.store.hooks
    remove = hooks.on("tool_call", lambda point: ToolOutput("supplied"))
    hooks.on("tool_result", lambda point: ToolOutput(point.output.text + " and seen"))
    await chat.send("go")
    remove()
    await chat.send("go")
    results = [m.text for m in await chat.session.messages() if m.role == "tool"]
    assert results == ["supplied and seen", "changed it and seen"]
    assert RAN == ["it"]


@tool(effect="write")
async def stumble() -> str:
    """Stumble."""
    raise ValueError("over pk-live-1234")


async def test_result_hook_changes_a_tool_error_before_storage() -> None:
    stage = Stage(says(calls("stumble")), says("ok"))
    chat = await stage.chat([stumble])
    asked: list[ToolAnswered] = []

    def hide(point: ToolAnswered) -> ToolOutput:
        asked.append(point)
        return ToolOutput(point.output.text.replace("1234", "****"), is_error=True)

    stage.store.hooks.on("tool_result", hide)
    await chat.send("go")
    assert [(point.outcome, "1234" in point.output.text) for point in asked] == [("error", True)]
    (finished,) = await bodies(chat, ToolFinished)
    assert (finished.outcome, finished.error) == ("error", "stumble: ValueError: over pk-live-****")
    assert not [e async for e in chat.session.entries() if b"1234" in e.body]


async def compacting() -> tuple[Stage, Chat]:
    stage = Stage(says("x" * 400), says("y" * 400))
    settings = CompactionSettings(is_enabled=False, keep_recent_tokens=1)
    chat = await stage.chat(compaction=settings)
    await chat.send("a" * 400)
    await chat.send("b")
    return stage, chat


async def test_summary_supplied_by_a_hook_has_the_reason_hook() -> None:
    stage, chat = await compacting()
    told: list[Compaction] = []

    def supply(point: BeforeCompact) -> str:
        assert point.history[0].text == "a" * 400
        return "What the hook wants to be kept of it."

    stage.store.hooks.on("session_before_compact", supply)
    stage.store.hooks.on("session_compact", lambda point: told.append(point.compaction))
    assert await chat.compact() is not None
    (compaction,) = await bodies(chat, Compaction)
    assert (compaction.reason, compaction.summary) == (
        "hook",
        "What the hook wants to be kept of it.",
    )
    assert told == [compaction]


async def test_compaction_that_is_blocked_appends_nothing() -> None:
    stage, chat = await compacting()
    stage.store.hooks.on("session_before_compact", lambda point: Block("later"))
    assert await chat.compact() is None
    assert await bodies(chat, Compaction) == []


@pytest.mark.parametrize("answer", ["", "short", RuntimeError("broken")])
async def test_compaction_hook_that_fails_or_returns_a_short_summary_is_ignored(
    answer: object,
) -> None:
    stage, chat = await compacting()

    def hook(point: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    stage.store.hooks.on("session_before_compact", hook)
    await chat.compact()
    (compaction,) = await bodies(chat, Compaction)
    assert (compaction.reason, compaction.summary[:7]) == ("manual", "## Goal")


async def test_fork_hook_can_block_or_observe_a_fork() -> None:
    stage = Stage(says("hi"))
    chat = await stage.chat()
    told: list[str] = []
    remove = stage.store.hooks.on("session_before_fork", lambda point: Block("no forks"))
    with pytest.raises(HookBlocked, match=r"session_before_fork.*no forks"):
        await chat.session.fork()
    remove()
    stage.store.hooks.on("session_fork", lambda point: told.append(point.fork))
    fork = await chat.session.fork()
    assert told == [fork.id]


async def test_branch_hook_can_block_or_summarise_a_branch_change() -> None:
    stage = Stage(says("hi"))
    chat = await stage.chat()
    await chat.send("hello")
    hooks, session = stage.store.hooks, chat.session
    first = (await session.path())[0]
    seen: list[Any] = []
    remove = hooks.on("session_before_tree", lambda point: Block("stay"))
    with pytest.raises(HookBlocked, match="stay"):
        await session.branch(first)
    remove()

    def summary(point: BeforeTree) -> str:
        seen.append(point.target)
        return "what was tried"

    remove = hooks.on("session_before_tree", summary)
    hooks.on("session_tree", lambda point: seen.append(point.entry.kind))
    moved = await session.branch(first)
    assert moved is not None
    body = body_of(moved)
    assert isinstance(body, BranchSummary)
    assert (body.summary, moved.parent_id) == ("what was tried", first.id)
    remove()
    await session.branch(first)
    await session.branch_with_summary(None, "all over")
    assert seen == [first.id, "branch_summary", "leaf", "branch_summary"]


async def test_session_hooks_are_called_when_a_session_is_opened_or_closed() -> None:
    stage = Stage(says("hi"))
    told: list[tuple[str, object]] = []
    names: tuple[HookName, ...] = ("session_start", "session_shutdown")
    for name in names:
        stage.runtime().on(name, lambda point: told.append((point.name, point)))
    chat = await stage.chat()
    async with stage.runtime(chat.agent) as runtime:
        await runtime.resume("s")
    assert [name for name, _ in told] == ["session_start", "session_start", "session_shutdown"]
    assert told[1][1] == SessionStart("s", "helper", is_resumed=True)
    assert isinstance(told[1][1], SessionStart)
    assert not isinstance(told[0][1], TreeMoved | Compacted)


async def test_hooks_of_an_agent_run_only_in_sessions_of_the_agent() -> None:
    stage = Stage(*(says("hi") for _ in range(3)))
    told: list[tuple[str, str]] = []
    hooks = Hooks()
    names: tuple[HookName, ...] = ("session_start", "before_model_call", "session_shutdown")
    for name in names:
        hooks.on(name, lambda point: told.append((point.session_id, point.name)))
    hooks.on("session_before_fork", lambda point: Block("not this one"))
    asked = Agent("asked", model=MODEL, hooks=hooks)
    other = Agent("other", model=MODEL)
    async with stage.runtime(asked, other) as runtime:
        chat = await runtime.start(asked, id="a")
        await chat.send("one")
        await (await runtime.start(other, id="b")).send("one")
        with pytest.raises(HookBlocked):
            await chat.session.fork()
        await (await stage.store.open("a")).fork()
    async with stage.runtime(asked, other) as runtime:
        await (await runtime.resume("a")).send("two")
    assert told == [("a", name) for name in names] * 2
