"""A `ModelServer` that speaks OpenAI's streaming chat completions."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.models.scenario import ErrorCode
from tests.fakes.model_server import (
    Chunk,
    Handler,
    Json,
    ModelServer,
    Recorded,
    pieces,
    running,
    streaming,
)
from tests.fakes.openai_rules import faults_of
from tests.fakes.plans import Plan

_FINISH = {"tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter"}
_IN_STREAM: dict[ErrorCode, str] = {
    "rate_limited": "rate_limit_exceeded",
    "model_unavailable": "server_error",
    "context_overflow": "context_length_exceeded",
    "model_refused": "invalid_api_key",
}


@dataclass(frozen=True)
class ServerAnswer:
    """The model's answer. `calls` contains (id, name, JSON of the arguments) of each call."""

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
    )
    chunk_chars: int = 7
    thinking_field: str = "reasoning_content"

    def chunks(self) -> list[Chunk]:
        """The chunks of a stream without errors; the arguments of several calls are interleaved."""
        reason = self.finish_reason or ("tool_calls" if self.calls else "stop")
        found = [_choice({"role": "assistant", "content": ""})]
        found += [
            _choice({self.thinking_field: piece})
            for piece in pieces(self.thinking, self.chunk_chars)
        ]
        found += [_choice({"content": piece}) for piece in pieces(self.text, self.chunk_chars)]
        found += [_choice({"tool_calls": [piece]}) for piece in self._call_pieces()]
        found.append(_choice({}, reason))
        if self.usage is not None:
            found.append(_chunk([], usage=self.usage))
        return found

    def _call_pieces(self) -> list[Chunk]:
        found: list[Chunk] = [
            {"index": i, "id": id_, "type": "function", "function": {"name": name, "arguments": ""}}
            for i, (id_, name, _) in enumerate(self.calls)
        ]
        waiting = deque(
            (i, deque(pieces(args, self.chunk_chars))) for i, (_, _, args) in enumerate(self.calls)
        )
        while waiting:
            index, parts = waiting.popleft()
            if parts:
                found.append({"index": index, "function": {"arguments": parts.popleft()}})
                waiting.append((index, parts))
        return found


def answering(answer: ServerAnswer) -> Handler:
    """Send the whole answer."""
    return streaming([*answer.chunks(), "[DONE]"])


def events(plan: Plan) -> list[Chunk | str]:
    """The events of a stream without errors."""
    return [*_answer_of(plan).chunks(), "[DONE]"]


def words(plan: Plan) -> list[Chunk]:
    """The first events of a stream: the reasoning and the text, but no calls and no end."""
    chunks = _answer_of(replace(plan, calls=(), stop_reason=None)).chunks()
    return chunks[:-2]


def garbage() -> str:
    """An event that cannot be read."""
    return "{this is not JSON"


def error_event(code: ErrorCode) -> Chunk:
    """An error in the middle of a stream."""
    return {"error": {"code": _IN_STREAM[code], "message": "it happened in the middle"}}


def error_body(status: int, message: str, code: str) -> Json:
    """An error in OpenAI's shape."""
    return {"error": {"message": message, "type": "error", "code": code or None}}


@asynccontextmanager
async def openai_server() -> AsyncGenerator[ModelServer]:
    """Run a server for the duration of the block."""
    server = ModelServer(_rules, error_body, "/v1")
    server.will(answering(ServerAnswer(text="Hello.")))
    async with running(server):
        yield server


def _answer_of(plan: Plan) -> ServerAnswer:
    usage = plan.usage
    reported: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens + usage.cache_read_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    }
    return ServerAnswer(
        text=plan.text,
        thinking=plan.thinking,
        calls=tuple((id_, name, json.dumps(args)) for id_, name, args in plan.calls),
        finish_reason=_FINISH.get(plan.stop_reason or ""),
        usage=reported,
        chunk_chars=plan.chunk_chars,
    )


def _rules(request: Recorded) -> list[str]:
    if (request.method, request.path) != ("POST", "/v1/chat/completions"):
        return [f"nothing is at {request.method} {request.path}"]
    return faults_of(request.body)


def _choice(delta: Chunk, finish_reason: str | None = None) -> Chunk:
    return _chunk([{"index": 0, "delta": delta, "finish_reason": finish_reason}])


def _chunk(choices: list[Chunk], **more: object) -> Chunk:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "served-model",
        "choices": choices,
        **more,
    }
