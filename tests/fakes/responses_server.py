"""A `ModelServer` that speaks OpenAI's streaming responses API."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from perdure.models.scenario import ErrorCode
from perdure.session.messages import Usage
from tests.fakes.model_server import Chunk, Json, ModelServer, pieces, running, streaming
from tests.fakes.openai_server import error_body
from tests.fakes.plans import Plan
from tests.fakes.responses_rules import faults_of
from tests.fakes.signatures import signature_of

MODEL = "openai-responses:gpt-5"
"""A model that reasons."""

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_IN_STREAM: dict[ErrorCode, tuple[str, str]] = {
    "rate_limited": ("rate_limit_exceeded", "Rate limit reached for gpt-5."),
    "model_unavailable": ("server_error", "The server had an error."),
    "context_overflow": (
        "context_length_exceeded",
        "Your input exceeds the context window of this model.",
    ),
    "model_refused": ("invalid_prompt", "Invalid prompt."),
}


def events(plan: Plan) -> list[Chunk]:
    """The events of a stream without errors; the output items come one after the other."""
    found = words(plan)
    index = bool(plan.thinking) + bool(plan.text)
    for number, (call_id, name, args) in enumerate(plan.calls):
        found += _call_events(index + number, call_id, name, json.dumps(args), plan.chunk_chars)
    return [*found, _end(plan)]


def words(plan: Plan) -> list[Chunk]:
    """The first events of a stream: the reasoning and the text, but no calls and no end."""
    found: list[Chunk] = [
        {"type": "response.created", "response": _response("in_progress")},
        {"type": "response.in_progress", "response": _response("in_progress")},
    ]
    if plan.thinking:
        found += _reasoning_events(plan)
    if plan.text:
        found += _text_events(1 if plan.thinking else 0, plan)
    return found


def garbage() -> str:
    """An event that cannot be read."""
    return "event: response.output_text.delta\ndata: {this is not JSON"


def error_event(code: ErrorCode) -> Chunk:
    """An error in the middle of a stream."""
    kind, message = _IN_STREAM[code]
    return {"type": "error", "code": kind, "message": message, "param": None, "sequence_number": 9}


@asynccontextmanager
async def responses_server() -> AsyncGenerator[ModelServer]:
    """Run a server for the duration of the block."""
    server = ModelServer(faults_of, error_body, "/v1")
    server.will(streaming(events(Plan(text="Hello."))))
    async with running(server):
        yield server


def _reasoning_events(plan: Plan) -> list[Chunk]:
    item: dict[str, object] = {"type": "reasoning", "id": "rs_1", "summary": [], "status": None}
    place = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
    whole = {"type": "summary_text", "text": plan.thinking}
    done = {**item, "summary": [whole], "encrypted_content": signature_of("rs_1")}
    deltas = [
        {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
        for piece in pieces(plan.thinking, plan.chunk_chars)
    ]
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {
            "type": "response.reasoning_summary_part.added",
            **place,
            "part": {"type": "summary_text", "text": ""},
        },
        *deltas,
        {"type": "response.reasoning_summary_text.done", **place, "text": plan.thinking},
        {"type": "response.reasoning_summary_part.done", **place, "part": whole},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
    ]


def _text_events(index: int, plan: Plan) -> list[Chunk]:
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress"}
    place = {"item_id": "msg_1", "output_index": index, "content_index": 0}
    whole: Json = {"type": "output_text", "text": plan.text, "annotations": []}
    deltas: list[Chunk] = [
        {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
        for piece in pieces(plan.text, plan.chunk_chars)
    ]
    done = {**item, "status": "completed", "content": [whole]}
    return [
        {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**item, "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**whole, "text": ""}},
        *deltas,
        {"type": "response.output_text.done", **place, "text": plan.text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": whole},
        {"type": "response.output_item.done", "output_index": index, "item": done},
    ]


def _call_events(index: int, call_id: str, name: str, args: str, size: int) -> list[Chunk]:
    item_id = f"fc_{index}"
    item = {"type": "function_call", "id": item_id, "call_id": call_id, "name": name}
    place = {"item_id": item_id, "output_index": index}
    deltas = [
        {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        for piece in pieces(args, size)
    ]
    return [
        {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**item, "arguments": "", "status": "in_progress"},
        },
        *deltas,
        {"type": "response.function_call_arguments.done", **place, "name": name, "arguments": args},
        {
            "type": "response.output_item.done",
            "output_index": index,
            "item": {**item, "arguments": args, "status": "completed"},
        },
    ]


def _end(plan: Plan) -> Chunk:
    reason = _INCOMPLETE.get(plan.stop_reason or "")
    if reason is None:
        return {"type": "response.completed", "response": _response("completed", plan.usage)}
    response = {
        **_response("incomplete", plan.usage),
        "incomplete_details": {"reason": reason},
    }
    return {"type": "response.incomplete", "response": response}


def _response(status: str, usage: Usage | None = None) -> dict[str, object]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": "gpt-5",
        "status": status,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "store": False,
        "usage": None if usage is None else _usage(usage),
    }


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input_tokens + usage.cache_read_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.output_tokens // 4},
        "total_tokens": usage.total_tokens,
    }
