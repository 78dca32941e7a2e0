"""Signatures of reasoning that a framework needs again are returned only to that framework.

An entry contains signatures only in the framework's own value: in `Message.foreign`, or in the data
of a `Custom`. Only the log and perdure's own export of the log contain the framework's value
(decision 60).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast, get_args

import pytest
from google.adk.events import Event
from google.genai import types
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    UserPromptPart,
)

import perdure
from perdure.adapters.google_adk import PerdureSessionService
from perdure.adapters.openai_agents import PerdureSession
from perdure.adapters.pydantic_ai import PerdureConversationStore
from perdure.interop.reports import ExportFormat
from perdure.testing import ScriptedModel

SIGNATURE = "c2lnbmF0dXJlLW9mLXJlYXNvbmluZw=="
OTHER_FORMATS = [each for each in get_args(ExportFormat) if each != "perdure"]


@pytest.fixture
async def store() -> AsyncIterator[perdure.Store]:
    async with perdure.open("memory:") as opened:
        yield opened


async def from_openai(store: perdure.Store) -> str:
    """Store a conversation of the OpenAI Agents SDK whose reasoning has signatures."""
    items: list[Any] = [
        {"role": "user", "content": "1 + 2?"},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "I add."}],
            "encrypted_content": SIGNATURE,
        },
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": SIGNATURE},
        {"type": "message", "role": "assistant", "content": "Three."},
    ]
    session = PerdureSession("s", store)
    await session.add_items(items)
    assert await PerdureSession("s", store).get_items() == items
    return session.stored_id


async def from_pydantic_ai(store: perdure.Store) -> str:
    """Store a conversation of Pydantic AI whose reasoning has signatures."""
    answer = ModelResponse(
        parts=[
            ThinkingPart("I add.", signature=SIGNATURE, provider_name="anthropic"),
            ThinkingPart("", id="redacted_thinking", signature=SIGNATURE, provider_name="x"),
            TextPart("Three."),
        ]
    )
    said = [ModelRequest(parts=[UserPromptPart("1 + 2?")]), answer]
    conversations = PerdureConversationStore(store)
    await conversations.save(Conversation(conversation_id="s", messages=[*said]))
    loaded = await PerdureConversationStore(store).load("s")
    assert loaded is not None
    assert loaded.messages[1].parts == answer.parts
    return "pai:s"


async def from_google_adk(store: perdure.Store) -> str:
    """Store a session of the ADK whose reasoning has signatures."""
    names: dict[str, Any] = {"app_name": "a", "user_id": "u", "session_id": "s"}
    service = PerdureSessionService(store)
    session = await service.create_session(**names)
    parts = [
        types.Part(text="I add.", thought=True, thought_signature=SIGNATURE.encode()),
        types.Part(text="Three.", thought_signature=SIGNATURE.encode()),
    ]
    question = types.Content(role="user", parts=[types.Part(text="1 + 2?")])
    for author, content in (("user", question), ("m", types.Content(role="model", parts=parts))):
        await service.append_event(
            session, Event(author=author, content=content, invocation_id="i")
        )
    again = await PerdureSessionService(store).get_session(**names)
    assert again is not None
    assert again.events[1].content is not None
    assert again.events[1].content.parts == parts
    return "adk:a:u:s"


FRAMEWORKS = [from_openai, from_pydantic_ai, from_google_adk]


def is_in(told: object) -> bool:
    text = told if isinstance(told, bytes) else str(told).encode()
    return SIGNATURE.rstrip("=").encode() in text or b"YzJsbmJtRjBkWEp" in text


@pytest.mark.parametrize("fill", FRAMEWORKS)
async def test_signature_is_not_in_messages_or_exports_to_other_formats(
    store: perdure.Store, fill: Any
) -> None:
    session = await store.open(await fill(store))
    messages = await session.messages()
    assert [message.text for message in messages if message.role == "user"] == ["1 + 2?"]
    assert messages[-1].text == "Three."
    assert not any(is_in(repr(message.parts)) for message in messages)
    assert any("I add." in repr(message.parts) for message in messages)
    assert (await store.search("Three")) != []
    assert await store.search(SIGNATURE.rstrip("=")) == []
    for name in OTHER_FORMATS:
        exported = await session.export(cast("ExportFormat", name))
        assert not is_in(exported.content), name
    whole = await session.export()
    assert is_in(whole.content)


@pytest.mark.parametrize("fill", FRAMEWORKS)
async def test_perdure_sends_no_signature_of_another_framework_to_a_model(
    store: perdure.Store, fill: Any
) -> None:
    stored_id = await fill(store)
    model = ScriptedModel(["Sure."])
    agent = perdure.Agent("other", model="openai:gpt-5")
    async with perdure.Runtime(store, agents=[agent], models=model) as runtime:
        chat = await runtime.resume(stored_id, agent=agent)
        events = [perdure.wire(event) async for event in chat.send("Sure?")]
    (request,) = model.requests
    assert "Three." in repr(request.messages)
    assert not is_in(repr(request))
    assert not is_in(json.dumps(events))
