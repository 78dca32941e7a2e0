"""Requests and responses of providers, converted to messages."""

from __future__ import annotations

import json
from typing import cast

import pytest

from perdure.client.recording.calls import Api, api_of, digest_of, request_of, response_of
from perdure.session.messages import (
    MediaPart,
    Message,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    assistant,
    thinking,
)


def asked(api: Api, **fields: object) -> tuple[Message, ...]:
    request = request_of(api, json.dumps(fields).encode())
    assert request is not None
    return request.messages


def test_only_calls_of_models_are_recorded() -> None:
    paths = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/files")
    assert [api_of(path) for path in paths] == ["chat", "responses", "messages", None, None]


def test_picture_in_each_api_format_becomes_media() -> None:
    picture = "data:image/png;base64,iVBORw0KGgo="
    chat = {"type": "image_url", "image_url": {"url": picture}}
    item = {"type": "input_image", "image_url": picture}
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    block = {"type": "image", "source": source}
    for found in (
        asked("chat", messages=[{"role": "user", "content": [chat]}]),
        asked("responses", input=[{"role": "user", "content": [item]}]),
        asked("messages", messages=[{"role": "user", "content": [block]}]),
    ):
        assert [type(part) for message in found for part in message.parts] == [MediaPart]


def test_adjacent_items_of_an_answer_become_one_message() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
    result = {"type": "function_call_output", "call_id": "c1", "output": "3"}
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I"}],
    }
    found = asked("responses", input=[said, call, result, {"role": "user", "content": "So?"}])
    assert [message.role for message in found] == ["assistant", "tool", "user"]
    assert [type(part) for part in found[0].parts][1:] == [ToolCallPart]
    assert [type(part) for part in found[1].parts] == [ToolResultPart]


def test_digest_of_a_message_ignores_reasoning_and_model() -> None:
    whole = assistant(thinking("Hm."), "Three.", model="openai:x")
    assert digest_of(whole) == digest_of(assistant("Three."))
    assert digest_of(whole) != digest_of(assistant("Four."))


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_unusual_request_bodies_are_read_without_error(api: str) -> None:
    known = cast("Api", api)
    for body in (b"", b"[]", b"\xff", b"null", b'{"messages": 1, "input": {}, "choices": [1]}'):
        request, response = request_of(known, body), response_of(known, body)
        assert request is None or request.messages == ()
        assert response is None or response.message is None
    odd: dict[str, object] = {
        "role": "assistant",
        "content": [1, None, {"type": "text"}],
        "tool_calls": [None, {"id": 1}],
    }
    assert request_of(known, json.dumps({"messages": [odd, None], "input": [odd, None]}).encode())


def test_recorded_chat_answer_contains_reasoning_and_refusal() -> None:
    said = {"reasoning_content": "Hm.", "content": None, "refusal": "No."}
    found = response_of("chat", json.dumps({"id": "x", "choices": [{"message": said}]}).encode())
    assert found is not None
    assert found.message is not None
    assert found.message.parts[0] == ThinkingPart("Hm.")
    assert (found.message.text, found.message.model, found.id) == ("No.", None, "x")
