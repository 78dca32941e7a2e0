"""An agent of Pydantic AI on a store, offline: its model is a script.

python examples/adapters/pydantic_ai_conversation.py
"""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import perdure
from perdure.adapters.pydantic_ai import DurableRun, PerdureConversationStore, PerdureDurability


def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Look on the map first, then say what it shows."""
    last = messages[-1].parts[-1]
    if last.part_kind == "tool-return":
        return ModelResponse(parts=[TextPart(f"It is {last.content}.")])
    return ModelResponse(parts=[ToolCallPart("look", {"place": "lighthouse"})])


agent = Agent(FunctionModel(answer), name="guide", capabilities=[PerdureDurability()])


@agent.tool_plain
def look(place: str) -> str:
    """Find a place on the map."""
    print(f"looks for the {place}")
    return "on the cape"


async def main() -> None:
    """Ask a question in a conversation, then run a job twice: its tool runs once."""
    async with perdure.open("memory:") as store:
        conversations = PerdureConversationStore(store)
        loaded = await conversations.load("user-1")
        conversation = loaded or Conversation(conversation_id="user-1")
        await conversations.save(await agent.run("Where is it?", conversation=conversation))
        session = await store.open("pai:user-1")
        print([message.text for message in await session.messages()])
        for _ in range(2):  # the second run reads what the first one stored
            async with DurableRun("job-17", store):
                print((await agent.run("Where is it?")).output)


asyncio.run(main())
