"""Model calls and tool calls with hooks are unchanged unless a hook changes something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

import pytest

from perdure.engine.hooks.points import Block, ToolAnswered
from perdure.engine.hooks.registry import Hooks
from perdure.engine.hooks.wrappers import HookedCall, HookedModels
from perdure.errors import ModelRefused, ToolDenied, ToolError, ToolLost
from perdure.models.protocol import Delta, ModelInfo, ModelRequest, StreamEnd, TextDelta
from perdure.models.stream import answer_of
from perdure.session.messages import assistant, thinking, tool_call, user
from perdure.tools.decorator import tool
from perdure.tools.execution import ToolRun, run_tool
from perdure.tools.spec import ToolOutput, ToolSpec
from tests.fakes.clock import ManualClock
from tests.fakes.tool_calls import tool_call_of

REQUEST = ModelRequest("m:m", (user("hi"),))


class Words:
    """A model that sends two texts, and records whether it was stopped."""

    def __init__(self) -> None:
        self.is_closed = False

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model, 7)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        try:
            for word in ("one ", "two"):
                yield TextDelta(word)
            yield StreamEnd("stop")
        finally:
            self.is_closed = True


async def ran(spec: ToolSpec, hooks: Hooks) -> ToolRun:
    """Return the result of a call of `spec` with `hooks`."""
    hooked = HookedCall(spec, hooks)
    call = tool_call_of(spec.name)
    return await run_tool(hooked.spec, call, clock=ManualClock(), answered=hooked.apply_hooks)


@tool
async def look() -> str:
    """Look."""
    return "seen"


async def test_model_call_and_tool_without_hooks_are_unchanged() -> None:
    models = HookedModels(Words(), Hooks(), "s")
    deltas = [delta async for delta in models.stream(REQUEST)]
    assert deltas == [TextDelta("one "), TextDelta("two"), StreamEnd("stop")]
    assert models.info("m:m") == ModelInfo("m:m", 7)
    assert (await ran(look, Hooks())).output == ToolOutput("seen")


async def test_closing_the_stream_with_hooks_closes_the_stream_of_the_model() -> None:
    words = Words()
    stream = HookedModels(words, Hooks(), "s").stream(REQUEST)
    await anext(stream)
    assert isinstance(stream, AsyncGenerator)
    await stream.aclose()
    assert words.is_closed


async def test_answer_supplied_by_a_hook_is_streamed_like_a_model_answer() -> None:
    hooks = Hooks()
    answer = assistant(thinking("hm"), "look", tool_call("c", "look", {"at": [1]}))
    hooks.on("before_model_call", lambda point: answer)
    stream = HookedModels(Words(), hooks, "s").stream(REQUEST)
    made = answer_of([delta async for delta in stream], "m:m")
    assert made.parts == answer.parts
    assert made.stop_reason == "tool_calls"
    assert made.usage is not None
    assert made.usage.total_tokens == 0


async def test_model_call_that_a_hook_blocks_raises_model_refused() -> None:
    hooks = Hooks()
    hooks.on("before_model_call", lambda point: Block("no"))
    with pytest.raises(ModelRefused, match="no"):
        await anext(HookedModels(Words(), hooks, "s").stream(REQUEST))


async def test_result_hook_is_not_called_for_a_blocked_tool() -> None:
    hooks, asked = Hooks(), list[ToolAnswered]()
    hooks.on("tool_call", lambda point: Block("no"))
    hooks.on("tool_result", asked.append)
    run = await ran(look, hooks)
    assert (run.outcome, run.error_code, run.error) == ("refused", "tool_denied", "look: no")
    assert asked == []


async def sulk() -> str:
    """Sulk."""
    raise ToolDenied("sulk", "not today")


async def wait() -> str:
    """Wait."""
    await asyncio.sleep(60)
    return "at last"


async def fail() -> ToolOutput:
    """Fail."""
    return ToolOutput("no such city", is_error=True)


async def lose() -> str:
    """Lose touch."""
    raise ToolLost("lose", "the line went dead")


@pytest.mark.parametrize(
    ("function", "outcome", "code", "said"),
    [
        (sulk, "refused", "tool_denied", "not today"),
        (wait, "timeout", "tool_timeout", "0.001"),
        (fail, "error", "tool_error", "no such city"),
        (lose, "unknown", "tool_lost", "the line went dead"),
    ],
)
async def test_result_hook_runs_for_every_outcome(
    function: Callable[[], Awaitable[object]], outcome: str, code: str, said: str
) -> None:
    spec = tool(timeout_s=0.001 if function is wait else 60)(function)
    hooks, asked = Hooks(), list[ToolAnswered]()
    hooks.on("tool_result", asked.append)
    run = await ran(spec, hooks)
    assert (run.outcome, run.error_code) == (outcome, code)
    assert [(point.outcome, point.output) for point in asked] == [(outcome, run.output)]
    assert said in asked[0].output.text
    assert asked[0].output.is_error

    remove = hooks.on("tool_result", lambda point: ToolOutput("told so", is_error=True))
    run = await ran(spec, hooks)
    assert (run.outcome, run.error_code, run.error) == (outcome, code, "told so")
    remove()
    hooks.on("tool_result", lambda point: ToolOutput("never mind"))
    run = await ran(spec, hooks)
    assert (run.outcome, run.error_code, run.output) == ("ok", None, ToolOutput("never mind"))


async def test_hook_can_turn_success_into_error() -> None:
    hooks = Hooks()
    hooks.on("tool_result", lambda point: ToolOutput("not good enough", is_error=True))
    run = await ran(look, hooks)
    assert (run.outcome, run.error_code, run.error) == ("error", "tool_error", "not good enough")


async def test_failing_guard_hides_the_tool_result() -> None:
    def broken(point: ToolAnswered) -> None:
        raise RuntimeError("cannot tell")

    hooks = Hooks()
    remove = hooks.on("tool_result", broken)
    assert (await ran(look, hooks)).output.text == "seen"
    remove()
    hooks.on("tool_result", broken, is_guard=True)
    run = await ran(look, hooks)
    assert (run.outcome, run.error_code) == ("error", "tool_error")
    assert "seen" not in run.output.text


async def test_long_error_text_of_a_hook_is_truncated() -> None:
    hooks, asked = Hooks(), list[ToolAnswered]()
    hooks.on("tool_result", asked.append)
    hooks.on("tool_result", lambda point: ToolOutput(point.output.text * 2, is_error=True))
    run = await ran(tool(max_output_bytes=100)(rant), hooks)
    assert len(asked[0].output.text) > 5000
    assert len(run.output.text) < 200
    assert run.whole == asked[0].output.text * 2


async def rant() -> str:
    """Rant."""
    raise ToolError("rant", "and another thing! " * 300)
