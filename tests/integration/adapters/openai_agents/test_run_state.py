"""The state of a run that waits for an approval is stored with its session."""

from __future__ import annotations

import base64
import json
from typing import Any, Literal, cast, get_args

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import perdure
import perdure.types
from perdure.adapters.openai_agents import PerdureSession
from perdure.adapters.openai_agents.session import RUN_STATE

ANSWER = [[assistant_message("It is sent.")]]
CONFIG = RunConfig(tracing_disabled=True)


class Sender:
    """An agent whose tool needs an approval."""

    def __init__(self, script: Any) -> None:
        self.sent: list[str] = []

        @function_tool(needs_approval=True)
        def send(text: str) -> str:
            """Send a text."""
            self.sent.append(text)
            return f"sent {text}"

        self.agent = Agent(name="sender", model=ScriptedModel(script), tools=[send])


async def paused_at(address: str, text: str) -> None:
    """Run until the approval; store the state."""
    asking = Sender([[function_call("send", {"text": text}, call_id="c1")]])
    async with perdure.open(address) as store:
        session = PerdureSession("s", store)
        assert await session.load_state(asking.agent) is None
        result = await Runner.run(asking.agent, "Send it", session=session, run_config=CONFIG)
        assert len(result.interruptions) == 1
        await session.save_state(result.to_state())
    assert asking.sent == []


@pytest.mark.parametrize("text", ["hello", "long " * 20_000])
async def test_paused_run_continues_after_its_approval(store_address: str, text: str) -> None:
    await paused_at(store_address, text)
    sender = Sender(ANSWER)
    async with perdure.open(store_address) as store:
        session = PerdureSession("s", store)
        state = await session.load_state(sender.agent)
        assert state is not None
        (asked,) = state.get_interruptions()
        state.approve(asked)
        result = await Runner.run(sender.agent, state, session=session, run_config=CONFIG)
        await session.save_state(None)
        assert result.final_output == "It is sent."
        assert sender.sent == [text]
        kinds = [cast("dict[str, Any]", item).get("type") for item in await session.get_items()]
        assert kinds == [None, "function_call", "function_call_output", "message"]
        assert await PerdureSession("s", store).load_state(sender.agent) is None
        assert (await store.verify()).is_ok


async def test_rejected_call_does_not_run(store_address: str) -> None:
    await paused_at(store_address, "hello")
    sender = Sender([[assistant_message("Then not.")]])
    with perdure.blocking.open(store_address) as store:
        session = PerdureSession("s", store)
        state = await session.load_state(sender.agent)
        assert state is not None
        state.reject(state.get_interruptions()[0])
        result = await Runner.run(sender.agent, state, session=session, run_config=CONFIG)
    assert (result.final_output, sender.sent) == ("Then not.", [])


@pytest.mark.parametrize("clear", ["branch", "erase"])
async def test_clearing_a_session_removes_its_run_state(clear: Literal["branch", "erase"]) -> None:
    asking = Sender([[function_call("send", {"text": "zebra"}, call_id="c1")]])
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store, clear=clear)
        await session.save_state(None)
        assert await store.recent(scope="all") == []
        result = await Runner.run(asking.agent, "Send it", session=session, run_config=CONFIG)
        await session.save_state(result.to_state())
        await session.save_state(result.to_state())
        await session.clear_session()
        assert await session.load_state(asking.agent) is None
        assert await PerdureSession("s", store).load_state(asking.agent) is None
        await session.add_items([{"role": "user", "content": "Anew"}])
        assert await session.load_state(asking.agent) is None
        await session.save_state(result.to_state())
        assert await session.load_state(asking.agent) is not None


async def test_run_state_is_only_in_exports_of_the_perdure_format() -> None:
    asking = Sender([[function_call("send", {"text": "zebra"}, call_id="c1")]])
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store)
        result = await Runner.run(asking.agent, "Send it", session=session, run_config=CONFIG)
        await session.save_state(result.to_state())
        assert await store.search("schemaVersion") == []
        stored = await store.open(session.stored_id)
        (note,) = [entry async for entry in stored.notes(RUN_STATE)]
        state = await store.content(json.loads(note.body)["data"]["content"]["handle"])
        assert b"$schemaVersion" in state
        shown = set[str]()
        for format in get_args(perdure.types.ExportFormat):
            content = (await stored.export(format)).content
            if b"$schemaVersion" in content or base64.b64encode(state) in content:
                shown.add(format)
        assert shown == {"perdure"}
