"""Whole turns with tools on every wire format, and the same turns resumed by another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.models.router import ModelRouter
from perdure.tools.decorator import tool
from tests.fakes.chats import Stage
from tests.fakes.model_backends import HTTP_BACKENDS, PATIENT_S, HttpBackend, Waits
from tests.fakes.model_server import Handler, hanging, mute
from tests.fakes.plans import Plan
from tests.fakes.signatures import signature_of

SILENCE_S = 100.0
THOUGHT = "I must look into the file."
CALLS = Plan(
    thinking=THOUGHT,
    calls=(("call_1", "look", {"where": "a"}), ("call_2", "look", {"where": "b"})),
)
MORE = Plan(thinking="And there.", calls=(("call_3", "look", {"where": "c"}),))
FORMATS = ("openai-compatible", "openrouter", "openai-responses", "anthropic", "google")


@tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing in {where}"


@pytest.fixture(params=FORMATS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[HttpBackend]:
    async with HTTP_BACKENDS[request.param]() as made:
        yield made


def agent_of(backend: HttpBackend) -> Agent:
    return Agent("a", model=backend.model, tools=[look], thinking_level="high")


async def test_turn_of_several_tool_rounds_stores_no_signature(
    backend: HttpBackend,
) -> None:
    stage = Stage()
    client = backend.client(Plan())
    backend.server.will(*(backend.handler(plan) for plan in (CALLS, MORE, Plan(text="Empty."))))
    runtime = Runtime(stage.store, [agent_of(backend)], models=client, owner="here")
    chat = await runtime.start("a")
    reply = await chat.send("What is there?")
    assert reply.text == "Empty."
    assert backend.server.refused == []
    assert len(backend.server.requests) == 3
    signatures = [signature_of(text) for text in (THOUGHT, "And there.", "rs_1", "look")]
    log = [bytes(entry.body).decode() async for entry in chat.session.entries()]
    assert THOUGHT in "".join(log)
    assert not [text for text in log for signature in signatures if signature in text]


async def test_second_turn_with_tool_rounds_is_accepted(backend: HttpBackend) -> None:
    stage = Stage()
    client = backend.client(Plan())
    plans = (CALLS, Plan(text="Empty."), MORE, Plan(text="Still empty."))
    backend.server.will(*(backend.handler(plan) for plan in plans))
    runtime = Runtime(stage.store, [agent_of(backend)], models=client, owner="here")
    chat = await runtime.start("a")
    await chat.send("What is there?")
    reply = await chat.send("And now?")
    assert reply.text == "Still empty."
    assert backend.server.refused == []


@pytest.mark.parametrize("name", FORMATS)
async def test_turn_interrupted_between_tool_rounds_is_resumed(name: str) -> None:
    stage = Stage()
    async with HTTP_BACKENDS[name]() as here, HTTP_BACKENDS[name]() as there:
        first = here.client(Plan())
        here.server.will(here.handler(CALLS), hanging())
        chat = await Runtime(stage.store, [agent_of(here)], models=first, owner="here").start("a")
        chat.send("What is there?")
        async with asyncio.timeout(60):
            while here.calls < 2:  # noqa: ASYNC110 - the server sets no event for it
                await asyncio.sleep(0.01)
        await chat.suspend()
        # A separate client, as in another process: it has no cached reasoning.
        second = there.client(Plan(text="Empty."))
        runtime = Runtime(stage.store, [agent_of(there)], models=second, owner="there")
        again = await runtime.resume(chat.id)
        assert again.turn is not None
        assert (await again.turn).text == "Empty."
        assert there.server.refused == []
        assert THOUGHT not in str(there.server.requests[-1].body)


@pytest.mark.parametrize("name", FORMATS)
async def test_session_continues_with_another_provider(name: str) -> None:
    stage = Stage()
    other_name = FORMATS[(FORMATS.index(name) + 1) % len(FORMATS)]
    async with HTTP_BACKENDS[name]() as here, HTTP_BACKENDS[other_name]() as there:
        first = here.client(Plan())
        here.server.will(here.handler(CALLS), here.handler(Plan(text="Empty.")))
        chat = await Runtime(stage.store, [agent_of(here)], models=first, owner="here").start("a")
        await chat.send("What is there?")
        router = ModelRouter({there.model.partition(":")[0]: there.client(Plan(text="Yes."))})
        runtime = Runtime(stage.store, [agent_of(there)], models=router, owner="here")
        again = await runtime.resume(chat.id, agent=agent_of(there))
        await again.set_model(there.model)
        assert (await again.send("Sure?")).text == "Yes."
        assert there.server.refused == []
        assert THOUGHT not in str(there.server.requests[-1].body)


@pytest.mark.parametrize(
    ("silent", "limits", "told"),
    [
        (mute(), (SILENCE_S, PATIENT_S), "no byte for 100 s"),
        (hanging(), (PATIENT_S, SILENCE_S), "no further byte for 100 s"),
    ],
    ids=["first_byte", "stream"],
)
async def test_answer_comes_from_the_fallback_model_after_a_provider_timeout(
    silent: Handler, limits: tuple[float, float], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both providers have these limits: the second one reaches none, however slow the machine is.
    stage, waits = Stage(), Waits(monkeypatch, SILENCE_S)
    async with HTTP_BACKENDS["anthropic"]() as here, HTTP_BACKENDS["openai-compatible"]() as there:
        clients = {
            here.model.partition(":")[0]: here.client(Plan()),
            there.model.partition(":")[0]: there.client(Plan(text="Hello.")),
        }
        here.server.will(silent)
        agent = Agent(
            "a",
            model=here.model,
            fallbacks=[there.model],
            first_byte_timeout_s=limits[0],
            stream_idle_timeout_s=limits[1],
        )
        runtime = Runtime(stage.store, [agent], models=ModelRouter(clients), owner="here")
        chat = await runtime.start("a")
        async with asyncio.timeout(60 + SILENCE_S):
            turn = chat.send("Hi")
            await waits.last(SILENCE_S)
            assert (await turn).text == "Hello."
        log = [bytes(entry.body).decode() async for entry in chat.session.entries()]
        assert told in "".join(log)
        assert len(here.server.requests) == 1
        resumed = await runtime.resume(chat.id)
        assert resumed.agent.first_byte_timeout_s == limits[0]
