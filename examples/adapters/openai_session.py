"""An agent of the OpenAI Agents SDK on a store, offline: its model is a script.

python examples/adapters/openai_session.py
"""

from __future__ import annotations

from agents import Agent, RunConfig, Runner
from agents.testing import ScriptedModel, assistant_message

import perdure
from perdure.adapters.openai_agents import PerdureSession


def main() -> None:
    """Ask two questions, and read the conversation from the store."""
    with perdure.blocking.open("memory:") as store:
        session = PerdureSession("user-1", store)
        for question, answer in (("Where is it?", "On the cape."), ("How high?", "20 metres.")):
            agent = Agent(name="guide", model=ScriptedModel([[assistant_message(answer)]]))
            config = RunConfig(tracing_disabled=True)
            result = Runner.run_sync(agent, question, session=session, run_config=config)
            print(result.final_output)
        stored = store.open("oa:user-1")
        print([message.text for message in stored.messages()])


main()
