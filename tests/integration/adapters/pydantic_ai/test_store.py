"""Conversations of Pydantic AI in a store: a saved conversation is loaded, on every backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from pydantic_ai import BinaryContent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, InMemoryConversationStore
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

import perdure
from perdure.adapters.pydantic_ai import PerdureConversationStore, import_conversations
from tests.fakes.rivals import meanwhile

PICTURE = b"\x89PNG\r\n\x1a\n\xff\xfe\xfb"


def turn(question: str, answer: str) -> list[ModelMessage]:
    return [
        ModelRequest(parts=[UserPromptPart(question)]),
        ModelResponse(parts=[TextPart(answer)], model_name="m", provider_name="test"),
    ]


def everything() -> list[ModelMessage]:
    return [
        ModelRequest(
            parts=[
                SystemPromptPart("Be brief."),
                UserPromptPart(["Look", BinaryContent(PICTURE, media_type="image/png")]),
            ]
        ),
        ModelResponse(
            parts=[ThinkingPart("Hm."), ToolCallPart("add", '{"a": 1}', tool_call_id="c1")]
        ),
        ModelRequest(
            parts=[
                ToolReturnPart("add", {"sum": [2]}, tool_call_id="c1"),
                ToolReturnPart("data", "data:image/png;base64,iVBORw0K", tool_call_id="c2"),
                UserPromptPart("And half a pair: \ud83d, and 12345678901234567890123"),
            ]
        ),
        ModelResponse(parts=[]),
        ModelRequest(parts=[], instructions="Nothing is said."),
    ]


@pytest.fixture(
    params=["memory", "sqlite", "jsonl", pytest.param("postgres", marks=pytest.mark.full_only)]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[perdure.Store]:
    addresses = {
        "memory": "memory:",
        "sqlite": f"sqlite:///{tmp_path / 's.db'}",
        "jsonl": f"jsonl:///{tmp_path}/sessions",
    }
    postgres = None if request.param in addresses else request.getfixturevalue("warm_postgres")
    address = addresses[request.param] if postgres is None else postgres.take()
    async with perdure.open(address) as opened:
        yield opened
        assert (await opened.verify()).is_ok
    if postgres is not None:
        postgres.give_back(address)


async def saved(
    conversations: PerdureConversationStore, id: str, messages: list[ModelMessage]
) -> Conversation:
    conversation = Conversation(conversation_id=id, messages=messages)
    await conversations.save(conversation, scope="ana")
    return conversation


async def test_every_message_is_loaded_unchanged(store: perdure.Store) -> None:
    conversations = PerdureConversationStore(store)
    messages = everything()
    await saved(conversations, "c", messages)
    loaded = await PerdureConversationStore(store).load("c")
    assert loaded is not None
    as_json = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    assert loaded.messages == ModelMessagesTypeAdapter.validate_python(as_json)
    window = await conversations.load("c", limit=2)
    assert window is not None
    assert window.messages == loaded.messages[-2:]


async def test_session_shows_the_saved_messages(store: perdure.Store) -> None:
    conversations = PerdureConversationStore(store)
    plain = everything()
    plain[2] = ModelRequest(parts=[ToolReturnPart("add", {"sum": [2]}, tool_call_id="c1")])
    await saved(conversations, "c", plain)
    session = await store.open("pai:c")
    messages = await session.messages()
    assert [message.role for message in messages] == ["system", "user", "assistant", "tool"]
    picture = messages[1].parts[1]
    assert isinstance(picture, perdure.MediaPart)
    assert picture.mime_type == "image/png"
    assert messages[2].tool_calls[0].args == {"a": 1}
    assert session.subject == "ana"


async def test_branches_forks_and_deletion_work_as_documented(store: perdure.Store) -> None:
    conversations = PerdureConversationStore(store)
    first = await saved(conversations, "c", [*turn("1", "one"), *turn("2", "two")])
    fork = await conversations.fork("c", at=2, new_conversation_id="f")
    fork.messages += turn("3", "three")
    await conversations.save(fork)
    branch = await conversations.branch("c", at=2, expected_revision=first.revision)
    branch.messages += turn("4", "four")
    await conversations.save(branch)
    session = await store.open("pai:c")
    assert [message.text for message in await session.messages()] == ["1", "one", "4", "four"]
    records = await conversations.list_conversations(scope="ana")
    assert [record.conversation_id for record in records] == ["c", "f"]
    tip = records[0].branches[0]
    left = await conversations.branch("c", from_entry=tip, expected_revision=records[0].revision)
    assert left.messages == first.messages
    await conversations.delete("c")
    assert await conversations.load("c") is None
    kept = await PerdureConversationStore(store).load("f")
    assert kept is not None
    assert kept.messages == fork.messages
    await conversations.fork("f", new_conversation_id="c")
    await conversations.delete("f")
    await conversations.delete("c")
    await saved(conversations, "c", turn("5", "five"))
    assert [r.conversation_id for r in await conversations.list_conversations()] == ["c"]
    for scope in ("bob", ""):
        assert await conversations.list_conversations(scope=scope) == []


async def test_save_of_a_conversation_that_changed_meanwhile_raises_conflict(
    store: perdure.Store,
) -> None:
    conversations = PerdureConversationStore(store)
    await saved(conversations, "c", turn("1", "one"))
    loaded = [await conversations.load("c") for _ in range(2)]
    for number, each in enumerate(loaded):
        assert each is not None
        each.messages += turn(str(number), "again")
    results = await asyncio.gather(
        *(conversations.save(each) for each in loaded if each), return_exceptions=True
    )
    assert sum(isinstance(result, ConversationConflict) for result in results) == 1
    with pytest.raises(LookupError):
        await conversations.read_entry("no such entry")


async def test_conversations_of_another_pydantic_ai_store_are_copied_once() -> None:
    source = InMemoryConversationStore()
    first = Conversation(conversation_id="c", messages=[*turn("1", "one"), *turn("2", "two")])
    await source.save(first, scope="ana")
    await source.fork("c", at=2, new_conversation_id="f")
    await source.branch("c", at=2, expected_revision=first.revision)
    with perdure.blocking.open("memory:") as store:
        target = PerdureConversationStore(store)
        assert await import_conversations(source, target) == {"c": 4, "f": 0}
        assert await import_conversations(source, target) == {"c": 0, "f": 0}
        for id in ("c", "f"):
            assert await target.load(id) == await source.load(id)
            assert await target.read_record(id) == await source.read_record(id)
        await source.delete("f")
        longer = await source.load("c")
        assert longer is not None
        longer.messages += turn("3", "three")
        await source.save(longer)
        assert await import_conversations(source, target) == {"c": 2}
        ours = await target.load("c")
        assert ours is not None
        ours.messages += turn("4", "four")
        await target.save(ours)
        assert await import_conversations(source, target) == {"c": 0}  # it went on here
        found = await target.load("c")
        assert found is not None
        assert found.messages == ours.messages


@pytest.mark.parametrize("change", ["record", "entries"])
async def test_message_saved_just_before_another_change_of_a_conversation_is_kept(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    async with perdure.open("memory:") as store:
        conversations = PerdureConversationStore(store)
        await saved(conversations, "c", turn("1", "one"))
        mine, theirs = await conversations.load("c"), await conversations.load("c")
        record = await conversations.read_record("c")
        assert mine is not None
        assert theirs is not None
        assert record is not None
        theirs.messages += turn("2", "two")
        rival = partial(conversations.save, theirs)
        meanwhile(monkeypatch, store.backend, perdure.Note.kind, rival)
        mine.messages += turn("3", "three")
        own = conversations.save(mine)
        if change == "record":
            own.close()
            own = conversations.write_record(record, expected_revision=record.revision)
        with pytest.raises(ConversationConflict):
            await own
        found = await conversations.load("c")
        assert found is not None
        assert found.messages == theirs.messages
