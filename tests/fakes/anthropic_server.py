"""A `ModelServer` that speaks Anthropic's streaming messages API."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from perdure.models.scenario import ErrorCode
from perdure.session.messages import Usage
from tests.fakes.anthropic_rules import faults_of
from tests.fakes.model_server import Chunk, Json, ModelServer, pieces, running, streaming
from tests.fakes.plans import Plan
from tests.fakes.signatures import signature_of

MODEL = "anthropic:claude-haiku-4-5"
"""A model with a thinking budget; the API has stricter rules for such models."""

_STOP = {"length": "max_tokens", "content_filter": "refusal"}
_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_IN_STREAM: dict[ErrorCode, tuple[str, str]] = {
    "rate_limited": ("rate_limit_error", "slow down"),
    "model_unavailable": ("overloaded_error", "Overloaded"),
    "context_overflow": ("invalid_request_error", "prompt is too long: 9001 tokens > 8192 maximum"),
    "model_refused": ("authentication_error", "invalid x-api-key"),
}


def events(plan: Plan) -> list[Chunk]:
    """The events of a stream without errors."""
    blocks = _block_count(plan)
    found = words(plan)
    for index, (call_id, name, args) in enumerate(plan.calls, start=blocks):
        block: Json = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        found.append(_start(index, block))
        found += [
            _delta(index, {"type": "input_json_delta", "partial_json": piece})
            for piece in pieces(json.dumps(args), plan.chunk_chars)
        ]
        found.append({"type": "content_block_stop", "index": index})
    reason = _STOP.get(plan.stop_reason or "") or ("tool_use" if plan.calls else "end_turn")
    found.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": plan.usage.output_tokens},
        }
    )
    return [*found, {"type": "message_stop"}]


def words(plan: Plan) -> list[Chunk]:
    """The first events of a stream: the thinking and the text, but no calls and no end."""
    found: list[Chunk] = [_message_start(plan.usage), {"type": "ping"}]
    if plan.thinking:
        found.append(_start(0, {"type": "thinking", "thinking": "", "signature": ""}))
        found += [
            _delta(0, {"type": "thinking_delta", "thinking": piece})
            for piece in pieces(plan.thinking, plan.chunk_chars)
        ]
        signature = signature_of(plan.thinking)
        found.append(_delta(0, {"type": "signature_delta", "signature": signature}))
        found.append({"type": "content_block_stop", "index": 0})
    if plan.text:
        index = 1 if plan.thinking else 0
        found.append(_start(index, {"type": "text", "text": ""}))
        found += [
            _delta(index, {"type": "text_delta", "text": piece})
            for piece in pieces(plan.text, plan.chunk_chars)
        ]
        found.append({"type": "content_block_stop", "index": index})
    return found


def garbage() -> str:
    """An event that cannot be read."""
    return "event: content_block_delta\ndata: {this is not JSON"


def error_event(code: ErrorCode) -> Chunk:
    """An error in the middle of a stream."""
    kind, message = _IN_STREAM[code]
    return {"type": "error", "error": {"type": kind, "message": message}}


def error_body(status: int, message: str, code: str) -> Json:
    """An error in Anthropic's shape."""
    kind = code or _KINDS.get(status) or ("api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


@asynccontextmanager
async def anthropic_server() -> AsyncGenerator[ModelServer]:
    """Run a server for the duration of the block."""
    server = ModelServer(faults_of, error_body)
    server.will(streaming(events(Plan(text="Hello."))))
    async with running(server):
        yield server


def _block_count(plan: Plan) -> int:
    return bool(plan.thinking) + bool(plan.text)


def _message_start(usage: Usage) -> Chunk:
    reported = {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": 1,
    }
    message: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL.partition(":")[2],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": reported,
    }
    return {"type": "message_start", "message": message}


def _start(index: int, block: Json) -> Chunk:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _delta(index: int, delta: Json) -> Chunk:
    return {"type": "content_block_delta", "index": index, "delta": delta}
