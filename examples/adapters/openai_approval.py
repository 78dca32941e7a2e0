"""A run of the OpenAI Agents SDK waits for an approval, and the inbox answers it; offline.

python examples/adapters/openai_approval.py
"""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import perdure
from perdure.adapters.openai_agents import PerdureSession

CONFIG = RunConfig(tracing_disabled=True)


@function_tool(needs_approval=True)
def light(place: str) -> str:
    """Light the lamp."""
    print(f"The lamp of the lighthouse burns at the {place}.")
    return "done"


def keeper(answer: Any) -> Agent[Any]:
    """Return the agent; its model is a script."""
    return Agent(name="keeper", model=ScriptedModel([[answer]]), tools=[light])


async def main() -> None:
    """Pause a run, allow its call in the inbox, and resume the run."""
    async with perdure.open("memory:") as store:
        session = PerdureSession("user-1", store)
        agent = keeper(function_call("light", {"place": "cape"}, call_id="c1"))
        paused = await Runner.run(agent, "Light it", session=session, run_config=CONFIG)
        await session.save_state(paused.to_state())

        (asked,) = await store.questions()
        print(asked.question.text, asked.question.arguments)
        await store.answer(asked.id, "allow", by="ana")

        agent = keeper(assistant_message("It burns."))
        state = await session.load_state(agent)
        assert state is not None
        result = await Runner.run(agent, state, session=session, run_config=CONFIG)
        await session.save_state(None)
        print(result.final_output)


asyncio.run(main())
