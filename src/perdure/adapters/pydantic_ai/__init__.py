"""Conversations and durable runs of Pydantic AI in a store; needs the extra ``pydantic-ai``.

    store = perdure.blocking.open("sqlite:///agents.db")
    conversations = PerdureConversationStore(store)

    agent = Agent("openai:gpt-5", name="helper", capabilities=[PerdureDurability()])
    async with DurableRun("job-17", store):
        result = await agent.run("Hello")

docs/guides/pydantic-ai.md has the details.
"""

from __future__ import annotations

from perdure.adapters.pydantic_ai.durability import PerdureDurability
from perdure.adapters.pydantic_ai.migration import import_conversations
from perdure.adapters.pydantic_ai.runs import DurableRun
from perdure.adapters.pydantic_ai.store import PerdureConversationStore

__all__ = ["DurableRun", "PerdureConversationStore", "PerdureDurability", "import_conversations"]
