"""Hooks run in order; a failing hook is skipped, or blocks if it is a guard."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from perdure.engine.hooks.points import (
    BeforeFork,
    Block,
    HookName,
    SessionShutdown,
    ToolAnswered,
    ToolAsked,
)
from perdure.engine.hooks.registry import Hooks
from perdure.tools.spec import ToolCall, ToolOutput
from tests.fakes.tool_calls import tool_call_of

CALL: ToolCall = tool_call_of("look")
ASKED = ToolAsked("s", CALL)
ANSWERED = ToolAnswered("s", CALL, ToolOutput("a"))


def failing(point: object) -> None:
    raise RuntimeError("ours")


async def test_hooks_run_in_order_and_see_earlier_changes() -> None:
    hooks = Hooks()

    async def louder(point: ToolAnswered) -> ToolOutput:
        return ToolOutput(point.output.text.upper())

    hooks.on("tool_result", louder)
    hooks.on("tool_result", lambda point: ToolOutput(point.output.text + "!"))
    point, answer = await hooks.ask(ANSWERED)
    assert (point.output.text, answer) == ("A!", None)


async def test_first_final_answer_skips_later_hooks() -> None:
    hooks = Hooks()
    asked: list[int] = []
    hooks.on("tool_call", lambda point: asked.append(1))
    hooks.on("tool_call", lambda point: Block("no"))
    hooks.on("tool_call", lambda point: asked.append(2))
    assert (await hooks.ask(ASKED))[1] == Block("no")
    assert asked == [1]


async def test_failing_hook_is_skipped_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks = Hooks()
    hooks.on("tool_result", failing)
    hooks.on("tool_result", lambda point: ToolOutput("b"))
    with caplog.at_level(logging.ERROR):
        point, _ = await hooks.ask(ANSWERED)
    assert point.output.text == "b"
    assert "a hook of tool_result failed" in caplog.text


async def test_failing_guard_blocks_without_revealing_details() -> None:
    hooks = Hooks()
    hooks.on("tool_call", failing)
    _, answer = await hooks.ask(ASKED)
    assert answer == Block("a hook of tool_call failed (RuntimeError)")
    hooks = Hooks()
    hooks.on("session_before_fork", failing, is_guard=False)
    assert (await hooks.ask(BeforeFork("s", None)))[1] is None
    hooks.on("session_shutdown", failing, is_guard=True)
    assert isinstance((await hooks.ask(SessionShutdown("s")))[1], Block)


async def test_answer_of_wrong_type_is_failure() -> None:
    hooks = Hooks()
    hooks.on("tool_result", lambda point: "text")
    assert (await hooks.ask(ANSWERED)) == (ANSWERED, None)
    hooks.on("tool_call", lambda point: True)
    assert isinstance((await hooks.ask(ASKED))[1], Block)


async def test_hook_can_be_removed_and_unknown_point_is_rejected() -> None:
    hooks = Hooks()
    assert not hooks.has("tool_call")
    remove = hooks.on("tool_call", lambda point: Block("no"))
    assert hooks.has("tool_call")
    remove()
    remove()
    assert (await hooks.ask(ASKED)) == (ASKED, None)
    with pytest.raises(ValueError, match=r"Hooks\.on takes 'session_start' or .* as name, not 'x'"):
        hooks.on(cast("HookName", "x"), failing)


async def test_layered_hooks_run_base_first_and_see_later_additions() -> None:
    of_store, of_agent = Hooks(), Hooks()
    both = Hooks(of_store, None, of_agent)
    of_agent.on("tool_result", lambda point: ToolOutput(point.output.text + "2"))
    remove = of_store.on("tool_result", lambda point: ToolOutput(point.output.text + "1"))
    both.on("tool_result", lambda point: ToolOutput(point.output.text + "3"))
    assert both.has("tool_result")
    assert not both.has("tool_call")
    assert (await both.ask(ANSWERED))[0].output.text == "a123"
    remove()
    assert (await both.ask(ANSWERED))[0].output.text == "a23"
