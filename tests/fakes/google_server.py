"""A `ModelServer` that speaks Google's streaming ``generateContent``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from perdure.models.scenario import ErrorCode
from perdure.session.messages import Usage
from tests.fakes.google_rules import faults_of
from tests.fakes.model_server import Chunk, Json, ModelServer, pieces, running, streaming
from tests.fakes.plans import Plan
from tests.fakes.signatures import signature_of

MODEL = "google:gemini-3-pro-preview"
"""A model that requires the signatures of its calls in later requests."""

_FINISH = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_IN_STREAM: dict[ErrorCode, tuple[int, str]] = {
    "rate_limited": (429, "You exceeded your current quota per minute."),
    "model_unavailable": (503, "The model is overloaded. Please try again later."),
    "context_overflow": (
        400,
        "The input token count (9001) exceeds the maximum number of tokens allowed (8192).",
    ),
    "model_refused": (403, "Permission denied."),
}


def events(plan: Plan) -> list[Chunk]:
    """The chunks of a stream without errors.

    Each call arrives in one chunk. Only the first call of an answer has a signature.
    """
    found = words(plan)
    for index, (call_id, name, args) in enumerate(plan.calls):
        part: dict[str, object] = {"functionCall": {"name": name, "args": args, "id": call_id}}
        if index == 0:
            part["thoughtSignature"] = signature_of(name)
        found.append(_chunk([part]))
    end = {
        "content": {"role": "model", "parts": [{"text": ""}]},
        "finishReason": _FINISH.get(plan.stop_reason or "", "STOP"),
        "index": 0,
    }
    return [*found, {**_chunk([]), "candidates": [end], "usageMetadata": _usage(plan.usage)}]


def words(plan: Plan) -> list[Chunk]:
    """The first events of a stream: the thinking and the text, but no calls and no end."""
    thoughts = [
        _chunk([{"text": piece, "thought": True}])
        for piece in pieces(plan.thinking, plan.chunk_chars)
    ]
    texts = [_chunk([{"text": piece}]) for piece in pieces(plan.text, plan.chunk_chars)]
    return [*thoughts, *texts]


def garbage() -> str:
    """An event that cannot be read."""
    return "{this is not JSON"


def error_event(code: ErrorCode) -> Chunk:
    """An error in the middle of a stream."""
    status, message = _IN_STREAM[code]
    return error_body(status, message, "")


def error_body(status: int, message: str, code: str) -> Json:
    """An error in Google's shape."""
    kind = code or _STATUS.get(status, "UNKNOWN")
    return {"error": {"code": status, "message": message, "status": kind}}


@asynccontextmanager
async def google_server() -> AsyncGenerator[ModelServer]:
    """Run a server for the duration of the block."""
    server = ModelServer(faults_of, error_body)
    server.will(streaming(events(Plan(text="Hello."))))
    async with running(server):
        yield server


def _chunk(parts: Sequence[Json]) -> dict[str, object]:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
    return {
        "candidates": [candidate],
        "modelVersion": MODEL.partition(":")[2],
        "responseId": "response-1",
    }


def _usage(usage: Usage) -> Json:
    # A quarter of the output is reported as thoughts, which Google counts apart.
    thoughts = usage.output_tokens // 4
    return {
        "promptTokenCount": usage.input_tokens + usage.cache_read_tokens,
        "cachedContentTokenCount": usage.cache_read_tokens,
        "candidatesTokenCount": usage.output_tokens - thoughts,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": usage.total_tokens,
    }
