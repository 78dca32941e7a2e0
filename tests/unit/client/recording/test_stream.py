"""Streamed responses: chunks of any size give the same result; a cut response is incomplete."""

from __future__ import annotations

import json
from typing import cast

import pytest

from perdure.client.recording.calls import Api, read_response
from perdure.client.recording.stream import StreamedResponse


def chunk(delta: object, reason: str | None = None) -> bytes:
    event = {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
    return b"data: " + json.dumps(event).encode() + b"\r\n\r\n"


STREAM = (
    chunk({"content": "Gr"})
    + chunk({"content": "\u00fc\u00df"})
    + chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}]})
    + chunk({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}, "tool_calls")
    + b"data: [DONE]\n\n"
)


def read(data: bytes, size: int, api: Api = "chat") -> StreamedResponse:
    streamed = StreamedResponse(api)
    for at in range(0, len(data), size):
        streamed.feed(data[at : at + size])
    return streamed


def test_recorded_response_is_the_same_for_any_split_of_the_bytes() -> None:
    whole = read(STREAM, len(STREAM))
    assert whole.is_complete
    message = read_response("chat", whole.fields).message
    assert message is not None
    assert (message.text, message.stop_reason) == ("Gr\u00fc\u00df", "tool_calls")
    for size in (1, 2, 7, 100):
        assert read(STREAM, size).fields == whole.fields


def test_stream_without_its_end_is_not_complete() -> None:
    part = read(STREAM[: len(chunk({"content": "Gr"}))], 3)
    assert not part.is_complete
    message = read_response("chat", part.fields).message
    assert message is not None
    assert message.text == "Gr"


def test_items_of_unfinished_response_are_read() -> None:
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I"}],
    }
    event = {"type": "response.output_item.done", "output_index": 0, "item": said}
    part = read(b"data: " + json.dumps(event).encode() + b"\n\n", 9, "responses")
    message = read_response("responses", part.fields).message
    assert message is not None
    assert (message.text, part.is_complete) == ("I", False)


def test_stream_with_a_finish_reason_is_complete() -> None:
    end = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
    assert read(end, 9).is_complete


@pytest.mark.parametrize("reason", ["", None, 0, {}])
def test_stream_with_an_empty_finish_reason_is_not_complete(reason: object) -> None:
    event = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": reason}]}
    part = read(b"data: " + json.dumps(event).encode() + b"\n\n", 9)
    message = read_response("chat", part.fields).message
    assert message is not None
    assert (message.text, part.is_complete, part.error) == ("a", False, None)


@pytest.mark.parametrize(
    ("api", "event"),
    [
        ("chat", {"error": "overloaded"}),
        ("messages", {"type": "error", "error": "overloaded"}),
        ("chat", {"error": {"message": "overloaded"}}),
        ("responses", {"type": "error", "code": "x", "message": "overloaded"}),
        ("messages", {"type": "error", "error": {"type": "x", "message": "overloaded"}}),
    ],
)
def test_error_event_of_a_stream_is_kept(api: Api, event: object) -> None:
    part = read(b"data: " + json.dumps(event).encode() + b"\n\n", 9, api)
    assert (part.error, part.is_complete) == ("overloaded", False)


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_malformed_events_are_skipped(api: str) -> None:
    odd = [
        b"data: nonsense\n",
        b"data: [1]\n",
        b"event: x\ndata:\n",
        b'data: {"choices": [{"delta": {"tool_calls": [{"index": 1e300}, {"index": -1}]}}]}\n',
        b'data: {"type": "content_block_delta", "index": 5, "delta": {"text": 1}}\n',
        b'data: {"type": "content_block_start", "index": 1e300}\n',
        b'data: {"type": "response.output_item.done", "output_index": "x"}\n',
    ]
    streamed = read(b"".join(odd), 5, cast("Api", api))
    found = read_response(cast("Api", api), streamed.fields).message
    assert found is None or found.text == ""
