"""Items of the Responses API are stored as entries, and restored unchanged."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure.adapters.openai_agents import PerdureSession
from perdure.adapters.openai_agents.items import entry_of, filled, items_of, opaque_item
from perdure.adapters.stored_json import is_plain

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n picture").decode()
LONG = "x" * 70_000

USER = {"role": "user", "content": "Hello"}
PARTS = {"content": [{"type": "input_text", "text": "Look"}, {"type": "input_text", "text": "!"}]}
ANSWER: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [
        {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": "No."},
    ],
}
OUTPUTS: list[list[dict[str, Any]]] = [
    [{"type": "output_text", "text": "Hi", "annotations": []}],
    [{"annotations": [], "text": "Hi", "type": "output_text", "logprobs": []}],
    [{"annotations": [], "text": "Hi", "type": "output_text"}],
]
"""Forms of the content that nearly every answer has: one text."""
CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1,"b":2}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "3"}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Add them."}],
    "encrypted_content": "gAAA",
}

READABLE: list[tuple[dict[str, Any], str, str]] = [
    (USER, "user", "Hello"),
    ({"role": "user", **PARTS}, "user", "Look\n\n!"),
    ({"role": "developer", "content": "Be short."}, "system", "Be short."),
    ({"role": "system", "content": "Be short."}, "system", "Be short."),
    ({"type": "message", "role": "assistant", "content": "Hi"}, "assistant", "Hi"),
    (ANSWER, "assistant", "Hi\n\nNo."),
    *(({**ANSWER, "content": each}, "assistant", "Hi") for each in OUTPUTS),
    ({**ANSWER, "content": OUTPUTS[1] * 2}, "assistant", "Hi\n\nHi"),
    ({**ANSWER, "content": [*OUTPUTS[0], *OUTPUTS[2]]}, "assistant", "Hi\n\nHi"),
    (
        {**ANSWER, "content": [{"type": "output_text", "annotations": [], "text": "Hi"}]},
        "assistant",
        "Hi",
    ),
    ({**ANSWER, "content": OUTPUTS[1], "phase": "final"}, "assistant", "Hi"),
    ({**ANSWER, "content": OUTPUTS[1], "id": None}, "assistant", "Hi"),
    ({**ANSWER, "content": OUTPUTS[1], "role": "user"}, "user", "Hi"),
    ({"content": "Hello", "role": "user"}, "user", "Hello"),
    (CALL, "assistant", ""),
    ({**CALL, "arguments": "not JSON"}, "assistant", ""),
    (RESULT, "tool", "3"),
    ({**RESULT, "output": f"see {PNG}"}, "tool", f"see {PNG}"),
    ({**RESULT, "output": [{"type": "input_text", "text": "three"}]}, "tool", "three"),
    (THOUGHT, "assistant", ""),
    ({"role": "user", "content": ""}, "user", ""),
]

OPAQUE: list[dict[str, Any]] = [
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "computer_call", "call_id": "c", "action": {"type": "click", "x": 1, "y": 2}},
    {"role": "user", "content": []},
    {"role": "poet", "content": "Ah"},
    {"type": "reasoning", "id": "rs_2", "summary": []},
    {"type": "function_call", "name": "without an id"},
    {"type": "shell_call_output", "output": LONG},
    {},
]


async def stored(item: dict[str, Any]) -> tuple[perdure.Entry, dict[str, Any]]:
    """Store `item`; return its entry and the item made from the entry."""
    async with perdure.open("memory:") as store:
        session = await store.create()
        entry = await session.append(entry_of(item))
        (parts,) = items_of(entry)
        contents = {handle: await store.content(handle) for handle, _, _ in parts.wanted}
        return entry, filled(parts, contents)


@pytest.mark.parametrize(("item", "role", "text"), READABLE)
async def test_readable_item_becomes_a_message_and_is_restored_unchanged(
    item: dict[str, Any], role: str, text: str
) -> None:
    entry, again = await stored(item)
    assert json.dumps(again) == json.dumps(item)  # the order of the keys, too
    message = entry.message
    assert message is not None
    assert message.role == role
    if "see data:" not in text:
        assert message.text == text


@pytest.mark.parametrize("item", OPAQUE)
async def test_item_other_than_a_message_becomes_a_custom_entry(
    item: dict[str, Any],
) -> None:
    entry, again = await stored(item)
    assert entry.kind == "custom"
    assert json.dumps(again) == json.dumps(item)


async def test_tool_call_and_reasoning_items_become_message_parts() -> None:
    call = (await stored(CALL))[0].message
    assert call is not None
    assert call.tool_calls == (perdure.ToolCallPart("c1", "add", {"a": 1, "b": 2}),)
    thought = (await stored(THOUGHT))[0].message
    assert thought is not None
    assert thought.parts == (perdure.ThinkingPart("Add them."),)


async def test_item_text_is_stored_once() -> None:
    said = "a text that is found once"
    entry, _ = await stored({"role": "user", "content": said})
    assert entry.body.count(said.encode()) == 1


async def test_plain_text_item_is_stored_only_as_a_message() -> None:
    entry, _ = await stored(USER)
    assert entry.message == perdure.user("Hello")


@pytest.mark.parametrize("content", OUTPUTS)
async def test_content_of_an_answer_item_is_stored_once(
    content: list[dict[str, Any]],
) -> None:
    entry, again = await stored({**ANSWER, "content": content})
    assert again == {**ANSWER, "content": content}
    assert b"annotations" not in entry.body


async def test_changing_a_returned_answer_does_not_change_other_answers() -> None:
    (first,) = await through_memory([{**ANSWER, "content": OUTPUTS[1]}])
    first["content"][0]["annotations"].append({})
    first["content"][0]["logprobs"].append({})
    (second,) = await through_memory([{**ANSWER, "content": OUTPUTS[1]}])
    assert second["content"] == OUTPUTS[1]


async def test_picture_is_stored_as_bytes_and_restored_unchanged() -> None:
    picture = {"type": "input_image", "detail": "auto", "image_url": PNG}
    item = {"role": "user", "content": [{"type": "input_text", "text": "Look"}, picture]}
    entry, again = await stored(item)
    assert again == item
    assert b"base64" not in entry.body
    message = entry.message
    assert message is not None
    assert isinstance(message.parts[1], perdure.MediaPart)


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": "half \ud800"},
        {"role": "user", "content": "a", "n": 2**70},
        {"role": "user", "content": "a", "when": {1: 2}},
        {**RESULT, "output": [{"type": "input_image", "image_url": PNG}]},
        {"role": "user", "content": "a", "x": float("nan")},
    ],
)
async def test_item_with_unusual_values_is_restored_unchanged(
    item: dict[str, Any],
) -> None:
    assert not is_plain(item)
    async with perdure.open("memory:") as store:
        session = await store.create()
        (parts,) = items_of(await session.append(opaque_item(item)))
        assert repr(parts.item) == repr(json.loads(json.dumps(item)))


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def output(usual: dict[str, Any], text: str) -> dict[str, Any]:
    return {**usual, "text": text}


texts = st.fixed_dictionaries({"type": st.just("input_text"), "text": st.text()})
outputs: st.SearchStrategy[dict[str, Any]] = st.builds(
    output, st.sampled_from([each[0] for each in OUTPUTS]), st.text()
)
made_up = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "developer", "x"])},
    optional={
        "content": st.text() | st.lists(texts | outputs | json_values, max_size=4),
        "type": st.sampled_from(["message", "function_call", "reasoning"]),
        "summary": json_values,
        "id": st.text(),
        "status": st.text(),
        "openai_item": json_values,
        "taken": json_values,
    },
)


@pytest.mark.full_only
@given(made_up)
def test_any_item_is_restored_unchanged(item: dict[str, Any]) -> None:
    before = json.dumps(item)
    (again,) = asyncio.run(through_memory([item]))
    assert json.dumps(again) == json.dumps(item) == before


async def through_memory(items: list[Any]) -> list[Any]:
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store)
        await session.add_items(items)
        return cast("list[Any]", await session.get_items())


@pytest.mark.parametrize(
    "taken", [[[5, "content"]], [[0, "nothing", 1]], [["x"]], [[]], [[0]], "no list", [[0, 0]]]
)
async def test_message_with_damaged_item_data_is_still_read(taken: object) -> None:
    foreign: dict[str, object] = {"openai_item": {"role": "user", "content": ""}, "taken": taken}
    async with perdure.open("memory:") as store:
        session = await store.create()
        (parts,) = items_of(await session.append(perdure.user("said", foreign=foreign)))
        assert parts.item["role"] == "user"


@pytest.mark.parametrize(
    "answer", [[9, 0, "msg", "completed"], [0, 9, "msg", "completed"], [0, 0, 1, 2], "none"]
)
async def test_message_with_damaged_answer_data_is_read_as_text(answer: object) -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        foreign = {"openai_answer": answer}
        (parts,) = items_of(await session.append(perdure.assistant("said", foreign=foreign)))
        assert parts.item == {"role": "assistant", "content": "said"}


async def test_message_of_another_program_becomes_items() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        call = perdure.tool_call("c", "f", {"a": 1})
        entries = await session.append(
            perdure.user("Hello"),
            perdure.assistant("I look.", call, perdure.tool_call("d", "g")),
            perdure.tool_result("c", "done"),
            perdure.assistant("Bye"),
            perdure.Custom("other.program", {"json": "{}"}),
        )
        items = [[each.item for each in items_of(entry)] for entry in entries]
    assert items == [
        [{"role": "user", "content": "Hello"}],
        [
            {"role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
            {"type": "function_call", "call_id": "d", "name": "g", "arguments": "{}"},
        ],
        [{"type": "function_call_output", "call_id": "c", "output": "done"}],
        [{"role": "assistant", "content": "Bye"}],
        [],
    ]


async def test_text_next_to_a_tool_result_becomes_a_separate_item() -> None:
    output = {"type": "function_call_output", "call_id": "c", "output": "22 C"}
    said = {"role": "user", "content": "Now also Rome.\n\nPlease."}
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store)
        await session.add_items([cast("Any", {**CALL, "call_id": "c"})])
        opened = await store.open(session.stored_id)
        texts = (perdure.TextPart("Now also Rome."), perdure.TextPart("Please."))
        await opened.append(
            perdure.Message("user", (texts[0], perdure.ToolResultPart("c", "22 C"), texts[1]))
        )
        assert (await session.get_items())[1:] == [output, said]
        assert await session.pop_item() == said
        assert (await session.get_items())[1:] == [output]
        assert await session.pop_item() == output
        assert len(await session.get_items()) == 1
