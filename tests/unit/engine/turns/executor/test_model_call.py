"""The requests of model calls, and their answers."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import msgspec
import pytest

import perdure
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.engine.turns.executor.model_call import client_call
from perdure.errors import ModelUnavailable
from perdure.models.protocol import Delta, ModelInfo, ModelRequest, StreamEnd, TextDelta
from perdure.models.retry import RetryPolicy
from perdure.session.messages import MediaPart, assistant, user
from perdure.stores.protocol import Commit, Write
from perdure.tools.decorator import tool
from tests.fakes.chats import Stage


class Listening:
    """A model client that records its requests."""

    def __init__(self, window: int | None = None) -> None:
        self.requests: list[ModelRequest] = []
        self._window = window

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model, self._window)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.requests.append(request)
        yield TextDelta("heard")
        yield StreamEnd("stop")


@tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    return where


async def test_request_contains_conversation_prompt_and_tools() -> None:
    stage, model = Stage(), Listening()
    agent = Agent("a", model="m:x", instructions="Listen.", tools=[look], max_output_tokens=77)
    runtime = Runtime(stage.store, models=model)
    chat = await runtime.start(agent)
    await chat.send("one")
    await chat.send("two")
    request = model.requests[-1]
    assert request.model == "m:x"
    assert request.system == "Listen."
    assert request.max_output_tokens == 77
    assert [declared.name for declared in request.tools] == ["look"]
    assert [m.text for m in request.messages] == ["one", "heard", "two"]


async def test_media_are_sent_as_bytes_and_missing_media_are_reported() -> None:
    stage, model = Stage(), Listening()
    picture = b"\x89PNG..."
    digest = "sha256-" + hashlib.sha256(picture).hexdigest()
    chat = await Runtime(stage.store, models=model).start(Agent("a", model="m:x"), id="s")
    at = stage.clock.now_ms()
    await stage.memory.commit(
        Commit(writes=(Write(stream=chat.id, expected_head=0),), at=at, blobs=(picture,))
    )
    here = MediaPart("image/png", f"media://{digest}", len(picture))
    gone = msgspec.structs.replace(here, handle="media://sha256-" + "0" * 64)
    await chat.send(user("look", here))
    assert model.requests[0].media == {here.handle: picture}
    with pytest.raises(perdure.errors.TurnFailed, match=f"{gone.handle}.* is missing or damaged"):
        await chat.send(user("and this?", gone))
    assert len(model.requests) == 1


async def test_missing_picture_fails_a_model_call_before_the_request() -> None:
    stage, model = Stage(), Listening()
    agent = Agent("a", model="m:x", fallbacks=["m:y"])
    chat = await Runtime(stage.store, models=model).start(agent, id="s")
    with pytest.raises(perdure.errors.TurnFailed, match="m:y: media://"):
        await chat.send(user("look", MediaPart("image/png", "media://sha256-" + "0" * 64, 1)))
    entries = [entry async for entry in chat.session.entries()]
    assert [e.kind for e in entries].count("model_called") == 2
    assert model.requests == []


async def test_context_beyond_the_window_is_trimmed_and_reported() -> None:
    stage, model = Stage(), Listening(window=2_000)
    agent = Agent("a", model="m:x", retry=RetryPolicy(max_attempts=1))
    chat = await Runtime(stage.store, models=model).start(agent, id="s")
    for n in range(8):
        await chat.session.append(user(f"{n} " * 600), assistant(f"{n} " * 600))
    await chat.send("and now?")
    assert "trimmed" in await stage.kinds()
    assert model.requests[-1].messages[-1].text.endswith("and now?")


async def test_error_of_a_model_client_contains_no_secret() -> None:
    async def fail() -> None:
        raise ModelUnavailable("p:m", "no sk-ant-api03-" + "Ab1" * 30)

    with pytest.raises(ModelUnavailable) as caught:
        await client_call("p:m", fail())
    for shown in (caught.value.reason, str(caught.value)):
        assert "no [redacted]" in shown
