"""Events of the ADK become messages if possible, and are read back unchanged."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.events import Event, EventActions
from google.adk.events.event_actions import EventCompaction
from google.genai import types

import perdure
from perdure.adapters.google_adk.events import entry_of, event_of, fields_of, validated


def event(*parts: types.Part, role: str | None = "model", **fields: Any) -> Event:
    given: dict[str, Any] = {"invocation_id": "e-1", "author": "bot", "timestamp": 1.5, **fields}
    return Event(content=types.Content(role=role, parts=list(parts)), **given)


def call(**fields: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(**fields))


def result(**fields: Any) -> types.Part:
    return types.Part(function_response=types.FunctionResponse(**fields))


READABLE: dict[str, tuple[Event, str]] = {
    "question": (event(types.Part(text="Hello"), role="user", author="user"), "user"),
    "answer": (event(types.Part(text="Hi")), "assistant"),
    "no role": (event(types.Part(text="Hi"), role=None), "assistant"),
    "thought": (event(types.Part(text="hm", thought=True), types.Part(text="Hi")), "assistant"),
    "signature": (event(types.Part(text="Hi", thought_signature=b"\xff\x00")), "assistant"),
    "call": (event(call(id="c", name="add", args={"a": [1, None]})), "assistant"),
    "call without id": (event(call(name="add", args={}), types.Part(text="on it")), "assistant"),
    "call without arguments": (event(call(id="c", name="add")), "assistant"),
    "call with base64": (
        event(call(id="c", name="save", args={"x": "see data:a/b;base64,AAAA"})),
        "assistant",
    ),
    "result": (event(result(id="c", name="add", response={"result": "3"}), role="user"), "tool"),
    "object": (event(result(id="c", name="add", response={"sum": 3}), role="user"), "tool"),
    "number": (event(result(id="c", name="add", response={"result": 3}), role="user"), "tool"),
    "error": (event(result(id="c", name="add", response={"error": "x"}), role="user"), "tool"),
    "empty result": (event(result(name="add", response={}), role="user"), "tool"),
    "no response": (event(result(id="c", will_continue=True), role="user"), "tool"),
    "base64": (event(result(id="c", response={"result": "base64 AAAA"}), role="user"), "tool"),
    "code": (
        event(
            types.Part(text="I run"),
            types.Part(
                executable_code=types.ExecutableCode(code="1", language=types.Language.PYTHON)
            ),
        ),
        "assistant",
    ),
    "picture": (
        event(
            types.Part(inline_data=types.Blob(data=b"\xfb\xff", mime_type="image/png")),
            types.Part(text="what is it?"),
            role="user",
            author="user",
        ),
        "user",
    ),
    "named picture": (
        event(
            types.Part(
                inline_data=types.Blob(data=b"a", mime_type="image/png", display_name="a.png")
            ),
            role="user",
        ),
        "user",
    ),
    "everything else": (
        event(
            types.Part(text="Hi"),
            actions=EventActions(
                state_delta={"a": None, "b": {"c": [1.5, True]}},
                artifact_delta={"file": 0},
                transfer_to_agent="other",
                agent_state={},
            ),
            long_running_tool_ids={"b", "a"},
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=9, cached_content_token_count=4, candidates_token_count=2
            ),
            grounding_metadata=types.GroundingMetadata(
                search_entry_point=types.SearchEntryPoint(sdk_blob=b"blob")
            ),
            custom_metadata={"k": "v"},
            branch="a.b",
            partial=False,
            output={"x": 1},
        ),
        "assistant",
    ),
}

OPAQUE: dict[str, Event] = {
    "without content": Event(author="bot", actions=EventActions(state_delta={"a": 1})),
    "without parts": event(),
    "empty text": event(types.Part(text="")),
    "file": event(types.Part(file_data=types.FileData(file_uri="gs://a", mime_type="a/b"))),
    "picture of the model": event(
        types.Part(inline_data=types.Blob(data=b"a", mime_type="image/png"))
    ),
    "other bytes": event(
        types.Part(inline_data=types.Blob(data=b"a", mime_type="a/b")), role="user"
    ),
    "result and text": event(result(id="c", response={}), types.Part(text="a"), role="user"),
    "data address": event(types.Part(text="data:image/png;base64,AAAA"), role="user"),
    "huge number": Event(author="bot", actions=EventActions(state_delta={"n": 2**70})),
    "compaction": Event(
        author="bot",
        actions=EventActions(
            compaction=EventCompaction(
                start_timestamp=1, end_timestamp=2, compacted_content=types.Content(role="model")
            )
        ),
    ),
    "long": Event(author="bot", output="x" * 70_000),
}


async def stored(given: Event) -> tuple[perdure.Entry, Event]:
    """Store `given`; return its entry and the event that is read from the entry."""
    async with perdure.open("memory:") as store:
        entry = await (await store.create()).append(entry_of(fields_of(given)))
        found = event_of(entry)
        assert found is not None
        handles = {handle for handle, _ in found.media} | ({found.whole} - {""})
        return entry, validated(found, {each: await store.content(each) for each in handles})


@pytest.mark.parametrize("name", READABLE)
async def test_event_is_stored_as_message_and_restored(name: str) -> None:
    given, role = READABLE[name]
    entry, read = await stored(given)
    assert read == given
    assert entry.message is not None
    assert entry.message.role == role


@pytest.mark.parametrize("name", OPAQUE)
async def test_event_stored_as_custom_entry_is_restored(name: str) -> None:
    entry, read = await stored(OPAQUE[name])
    assert entry.kind == "custom"
    assert read == OPAQUE[name]


async def test_text_of_event_is_stored_once() -> None:
    entry, _ = await stored(event(types.Part(text="Where is the lighthouse?")))
    assert entry.body.count(b"lighthouse") == 1


async def test_usage_of_an_answer_is_stored_with_its_message() -> None:
    entry, _ = await stored(READABLE["everything else"][0])
    assert entry.message is not None
    assert entry.message.usage == perdure.Usage(5, 2, 4)


async def test_message_of_another_program_becomes_event() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        said = [
            perdure.user("Add"),
            perdure.assistant(perdure.tool_call("c", "add", {"a": 1})),
            perdure.tool_result("c", "3"),
        ]
        events = [event_of(entry) for entry in await session.append_many(said)]
        read = [validated(each, {}) for each in events if each is not None]
        assert [each.author for each in read] == ["user", "perdure", "perdure"]
        assert read[1].get_function_calls()[0].args == {"a": 1}
        assert read[2].get_function_responses()[0].response == {"result": "3"}
        assert event_of(await session.append(perdure.Custom("other", {"json": "{}"}))) is None


async def test_invalid_stored_event_data_is_ignored() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        strange: list[dict[str, object]] = [
            {"adk_event": 1},
            {"adk_event": {}, "parts": [{}, {}]},
            {"x": 1},
        ]
        for foreign in strange:
            entry = await session.append(perdure.user("a", foreign=foreign))
            read = event_of(entry)
            assert read is not None
            assert validated(read, {}).author == "user"
        made_by_hand: list[dict[str, object]] = [
            {},
            *({"json": each} for each in ("{", 1, "[]", "7", "null")),
            *({"content": each} for each in (1, {"handle": "x"}, {"handle": 7})),
        ]
        for data in made_by_hand:
            assert event_of(await session.append(perdure.Custom("adk.event", data))) is None
