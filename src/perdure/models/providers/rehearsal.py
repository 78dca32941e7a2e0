"""Warm up a provider's library in a thread, with a call that reaches no server.

Libraries import modules at the first request and build validators at the first answer. Without a
rehearsal, the first call would block the event loop for some tenths of a second. A rehearsal makes
one request, which is answered from memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import anyio
import httpx2

from perdure.errors import ModelError
from perdure.models.protocol import ModelClient, ModelRequest
from perdure.session.messages import user

Event = Mapping[str, Any]

ADDRESS = "http://rehearsal.invalid"

CHAT: tuple[Event, ...] = tuple(
    {
        "id": "r",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": reason}],
    }
    for reason in (None, "stop")
)

_PART: Event = {"type": "output_text", "text": "", "annotations": []}
_PLACE: Event = {"item_id": "i", "output_index": 0, "content_index": 0}
_ITEM: Event = {"type": "message", "id": "i", "role": "assistant", "content": []}
_USAGE: Event = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 1,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 2,
}
_RESPONSE: Event = {
    "id": "r",
    "object": "response",
    "created_at": 0,
    "model": "m",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}

RESPONSES: tuple[Event, ...] = (
    {"type": "response.created", "response": {**_RESPONSE, "status": "in_progress"}},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {**_ITEM, "status": "in_progress"},
    },
    {"type": "response.content_part.added", **_PLACE, "part": _PART},
    {"type": "response.output_text.delta", **_PLACE, "delta": "a", "logprobs": []},
    {
        "type": "response.completed",
        "response": {**_RESPONSE, "status": "completed", "usage": _USAGE},
    },
)

MESSAGES: tuple[Event, ...] = (
    {
        "type": "message_start",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 1},
    },
    {"type": "message_stop"},
)

GENERATE: tuple[Event, ...] = (
    {
        "candidates": [
            {
                "content": {"role": "model", "parts": [{"text": "a"}]},
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "modelVersion": "m",
        "responseId": "r",
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    },
)

_log = logging.getLogger(__name__)


class ClosableClient(ModelClient, Protocol):
    """A client that can be closed."""

    async def aclose(self) -> None:
        """Close the connections."""
        ...


def rehearse(
    make: Callable[[httpx2.AsyncBaseTransport], ClosableClient], model: str, events: Sequence[Event]
) -> None:
    """Warm up the library with a call of `model` that is answered from memory.

    `make` creates the client of the call, and `events` are the answer. Do not call this in the
    thread of an event loop. If the rehearsal fails, later calls are not affected.
    """
    content = "".join(map(_written, events))
    headers = {"content-type": "text/event-stream"}
    answer = httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers=headers, content=content.encode())
    )
    try:
        asyncio.run(_call(make(answer), model))
    except ModelError as error:
        _log.debug("the rehearsal of %s failed: %s", model, error)


def _written(event: Event) -> str:
    head = f"event: {event['type']}\n" if "type" in event else ""
    return f"{head}data: {json.dumps(event)}\n\n"


async def _call(client: ClosableClient, model: str) -> None:
    anyio.Event()  # loads the asyncio backend, which an in-memory transport does not need
    try:
        request = ModelRequest(model, (user("hello"),))
        async for _ in client.stream(request):
            pass
    finally:
        await client.aclose()
