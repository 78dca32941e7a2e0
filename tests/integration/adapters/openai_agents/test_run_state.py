"""The state of a run that waits for an approval is stored with its session."""

from __future__ import annotations

from typing import Any, cast

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import perdure
from perdure.adapters.openai_agents import PerdureSession

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
    """Run until the approval, and store the state."""
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


async def test_state_is_gone_with_its_session_and_in_no_search_or_export() -> None:
    asking = Sender([[function_call("send", {"text": "zebra"}, call_id="c1")]])
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store, clear="erase")
        await session.save_state(None)
        assert await store.recent(scope="all") == []
        result = await Runner.run(asking.agent, "Send it", session=session, run_config=CONFIG)
        await session.save_state(result.to_state())
        await session.save_state(result.to_state())
        stored = await store.open(session.stored_id)
        assert b"$schemaVersion" not in (await stored.export("pi")).content
        assert await store.search("schemaVersion") == []
        await session.clear_session()
        assert await session.load_state(asking.agent) is None
        await session.add_items([{"role": "user", "content": "Anew"}])
        assert await session.load_state(asking.agent) is None
