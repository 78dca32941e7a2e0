"""Models and tools with hooks around them are what they were, until a hook says otherwise."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from perdure.engine.hooks.hooked import HookedModels, hooked_tools
from perdure.engine.hooks.points import Block
from perdure.engine.hooks.registry import Hooks
from perdure.errors import ModelRefused, ToolDenied
from perdure.models.protocol import Delta, Finished, ModelInfo, ModelRequest, TextDelta
from perdure.models.stream import answer_of
from perdure.session.messages import assistant, thinking, tool_call, user
from perdure.tools.declare import tool
from perdure.tools.registry import registry_of
from tests.fakes.tool_calls import tool_call_of

REQUEST = ModelRequest("m:m", (user("hi"),))


class Words:
    """A model that says two words, and knows whether it was told to stop."""

    def __init__(self) -> None:
        self.is_closed = False

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model, 7)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        try:
            for word in ("one ", "two"):
                yield TextDelta(word)
            yield Finished("stop")
        finally:
            self.is_closed = True


@tool
async def look() -> str:
    """Look."""
    return "seen"


async def test_without_hooks_nothing_is_different() -> None:
    models = HookedModels(Words(), Hooks(), "s")
    deltas = [delta async for delta in models.stream(REQUEST)]
    assert deltas == [TextDelta("one "), TextDelta("two"), Finished("stop")]
    assert models.info("m:m") == ModelInfo("m:m", 7)
    registry = registry_of([look])
    hooked = hooked_tools(registry, Hooks())
    assert hooked.declarations() == registry.declarations()
    assert hooked.schema_hash("look") == registry.schema_hash("look")
    assert (await hooked.get("look").run(tool_call_of("look"))).text == "seen"


async def test_a_stream_that_is_closed_closes_the_model_s() -> None:
    words = Words()
    stream = HookedModels(words, Hooks(), "s").stream(REQUEST)
    await anext(stream)
    assert isinstance(stream, AsyncGenerator)
    await stream.aclose()
    assert words.is_closed


async def test_a_supplied_answer_comes_as_a_model_would_give_it() -> None:
    hooks = Hooks()
    answer = assistant(thinking("hm"), "look", tool_call("c", "look", {"at": [1]}))
    hooks.on("before_model_call", lambda point: answer)
    stream = HookedModels(Words(), hooks, "s").stream(REQUEST)
    made = answer_of([delta async for delta in stream], "m:m")
    assert made.parts == answer.parts
    assert made.stop_reason == "tool_calls"
    assert made.usage is not None
    assert made.usage.total_tokens == 0


async def test_what_is_blocked_is_an_error_the_engine_knows() -> None:
    hooks = Hooks()
    hooks.on("before_model_call", lambda point: Block("no"))
    hooks.on("tool_call", lambda point: Block("no"))
    with pytest.raises(ModelRefused, match="no"):
        await anext(HookedModels(Words(), hooks, "s").stream(REQUEST))
    with pytest.raises(ToolDenied, match="no"):
        await hooked_tools(registry_of([look]), hooks).get("look").run(tool_call_of("look"))
