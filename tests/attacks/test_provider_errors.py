"""A key in an error of a provider or its client is neither shown nor logged."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

import perdure
from perdure.client.agents.agent import Agent
from perdure.errors import (
    ContextOverflow,
    CredentialsRefused,
    ModelError,
    ModelRefused,
    TurnFailed,
)
from perdure.events.types import AnyEvent
from perdure.models.protocol import Delta, ModelInfo, ModelRequest, TextDelta
from perdure.session.messages import Usage

KEY = "sk-ant-api03-" + "a1b2c3d4" * 5
SAID = f"no access with Authorization: Bearer {KEY}"


class Client:
    """A model client that raises `error` at `place`."""

    def __init__(self, place: str, error: Exception) -> None:
        self.place = place
        self.error = error

    def _at(self, place: str) -> None:
        if self.place == place:
            raise self.error

    def info(self, model: str) -> ModelInfo:
        self._at("info")
        return ModelInfo(model, 100_000)

    def cost_microcents(self, model: str, usage: Usage) -> int | None:
        self._at("cost")
        return 1

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self._at("first")
        yield TextDelta("Hello")
        raise self.error


ERRORS: tuple[Exception, ...] = (
    RuntimeError(SAID),
    ExceptionGroup(SAID, [ValueError(SAID)]),
    ModelRefused("p:main", SAID),
    CredentialsRefused("p:main", SAID),
    ContextOverflow("p:main", SAID),
    ModelError("p:main", SAID),
)


@pytest.mark.parametrize("place", ["info", "cost", "first", "middle"])
async def test_key_in_model_client_error_is_never_shown_or_stored(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for error in ERRORS:
        shown: list[AnyEvent | str] = []
        async with perdure.open("memory:") as store:
            client = Client("never" if place == "info" else place, error)
            agent = Agent("helper", model="p:main", max_cost_microcents=10**9, on_exceed="warn")
            async with perdure.Runtime(store, models=client) as runtime:
                chat = await runtime.start(agent, id="s")
                client.place = place
                turn = chat.send("go")
                shown += [event async for event in turn]
                with pytest.raises(TurnFailed) as failed:
                    await turn
                shown += [str(failed.value), failed.value.reason, str(failed.value.facts())]
            session = await store.open("s")
            kept = [entry.body.decode() async for entry in session.entries()]
        assert len(kept) > 3
        whole = [each if isinstance(each, str) else perdure.wire(each) for each in shown]
        assert KEY not in str(whole) + str(shown) + str(kept) + caplog.text
    assert place in ("first", "middle") or caplog.text
