"""An agent of Google's ADK on a store, offline: its model is a script.

python examples/adapters/adk_session.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.genai import types

import perdure
from perdure.adapters.google_adk import PerdureMemoryService, PerdureSessionService


class Scripted(BaseLlm):
    """A model that answers every question with the same sentence."""

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: FBT001, FBT002 - as the base class
    ) -> AsyncGenerator[LlmResponse, None]:
        part = types.Part(text="The lighthouse is on the cape.")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def main() -> None:
    """Ask a question, then find the answer in the memory and in the store."""
    async with perdure.open("memory:") as store:
        sessions, memory = PerdureSessionService(store), PerdureMemoryService(store)
        agent = LlmAgent(name="guide", model=Scripted(model="scripted"))
        runner = Runner(app_name="tours", agent=agent, session_service=sessions)
        names: dict[str, Any] = {"app_name": "tours", "user_id": "ana", "session_id": "s-1"}
        await sessions.create_session(**names, state={"user:language": "en"})
        question = types.Content(role="user", parts=[types.Part(text="Where is it?")])
        async for event in runner.run_async(user_id="ana", session_id="s-1", new_message=question):
            print(event.author, event.content and event.content.parts)
        session = await sessions.get_session(**names)
        assert session is not None
        await memory.add_session_to_memory(session)
        found = await memory.search_memory(app_name="tours", user_id="ana", query="lighthouse")
        print(len(found.memories), "memory found")
        print(
            [message.text for message in await (await store.open("adk:tours:ana:s-1")).messages()]
        )


asyncio.run(main())
