"""Every `ModelClient` behind one harness: a test plans what the model does, a backend does it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.models.protocol import ModelClient
from perdure.models.providers.openai_compatible import OpenAICompatible
from perdure.models.scenario import (
    CallTools,
    Cut,
    ErrorCode,
    Fail,
    Hang,
    Reply,
    Say,
    Scenario,
    ScriptedCall,
    Step,
    Think,
)
from perdure.models.scripted import ScriptedModel
from perdure.session.messages import StopReason, Usage
from tests.fakes.clock import ManualClock
from tests.fakes.openai_server import (
    Chunk,
    Handler,
    OpenAIServer,
    ServerAnswer,
    answering,
    breaking_off,
    failing,
    hanging,
    openai_server,
    sending,
)

SECRET = "sk-test-0123456789abcdef"


USAGE = Usage(100, 20, cache_read_tokens=30)


@dataclass(frozen=True)
class Plan:
    """What the model does with every request. Without more it answers, cleanly.

    `error` ends the call before anything came, with `after_words` when the text has come. `calls`
    are (id, name, arguments). `ends` says how the answer ends when there is no error.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str, Mapping[str, object]], ...] = ()
    usage: Usage = USAGE
    stop_reason: StopReason | None = None
    error: ErrorCode | None = None
    retry_after_s: float | None = None
    after_words: bool = False
    ends: str = "cleanly"
    chunk_chars: int = 8


class Backend(Protocol):
    """A kind of client, to be told what its model does."""

    model: str

    def client(self, plan: Plan) -> ModelClient:
        """A client whose model follows `plan` from now on."""
        ...

    @property
    def calls(self) -> int:
        """How many calls have reached the model."""
        ...

    async def all_ended(self) -> None:
        """Wait until the model knows that no call is open."""
        ...


BackendMaker = Callable[[], AbstractAsyncContextManager[Backend]]


class ScriptedBackend:
    """The scripted model. `calls` cannot be seen from outside: it counts the clock's first use."""

    model = "scripted:plan"

    def __init__(self) -> None:
        self._clock = _CountingClock()

    @property
    def calls(self) -> int:
        return self._clock.uses

    def client(self, plan: Plan) -> ModelClient:
        reply = Reply(
            steps=tuple(_steps(plan)),
            stop_reason=plan.stop_reason,
            usage=plan.usage,
            chunk_chars=plan.chunk_chars,
        )
        return ScriptedModel(Scenario(name="plan", rules=(reply,)), clock=self._clock)

    async def all_ended(self) -> None:
        await asyncio.sleep(0)


class _CountingClock(ManualClock):
    def __init__(self) -> None:
        super().__init__()
        self.uses = 0

    async def sleep(self, seconds: float) -> None:
        self.uses += 1
        await super().sleep(seconds)


def _steps(plan: Plan) -> list[Step]:
    fail: list[Step] = []
    if plan.error is not None:
        fail = [Fail(plan.error, retry_after_s=plan.retry_after_s)]
        if not plan.after_words:
            return fail
    steps: list[Step] = [Think(plan.thinking)] if plan.thinking else []
    steps += [Say(plan.text)] if plan.text else []
    if plan.calls:
        calls = [ScriptedCall(name, json.dumps(args), id_) for id_, name, args in plan.calls]
        steps.append(CallTools(tuple(calls)))
    endings: dict[str, list[Step]] = {"cleanly": [], "cut": [Cut()], "hang": [Hang()]}
    return [*steps, *(fail or endings[plan.ends])]


class OpenAIBackend:
    """The OpenAI-compatible client, over HTTP, against a server on this machine."""

    model = "openai:served-model"

    def __init__(self, server: OpenAIServer, client: OpenAICompatible) -> None:
        self._server = server
        self._client = client

    @property
    def calls(self) -> int:
        return len(self._server.requests)

    def client(self, plan: Plan) -> ModelClient:
        self._server.will(_handler(plan))
        return self._client

    async def all_ended(self) -> None:
        async with asyncio.timeout(10):
            await self._server.is_idle.wait()


_STATUS: dict[ErrorCode, tuple[int, str]] = {
    "rate_limited": (429, "slow down"),
    "model_unavailable": (529, "overloaded"),
    "context_overflow": (400, "this is more than the maximum context length of 8192 tokens"),
    "model_refused": (401, f"incorrect API key provided: {SECRET}"),
}
_IN_STREAM: dict[ErrorCode, str] = {
    "rate_limited": "rate_limit_exceeded",
    "model_unavailable": "server_error",
    "context_overflow": "context_length_exceeded",
    "model_refused": "invalid_api_key",
}
_FINISH = {"tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter"}


def _handler(plan: Plan) -> Handler:
    answer = _server_answer(plan)
    words = answer.chunks()[: -(2 + _call_chunks(plan))]
    if plan.error == "malformed_response":
        return sending(*(words if plan.after_words else ()), "{this is not JSON")
    if plan.error is not None and plan.after_words:
        error = {"code": _IN_STREAM[plan.error], "message": "it happened in the middle"}
        return sending(*words, {"error": error})
    if plan.error is not None:
        status, message = _STATUS[plan.error]
        if plan.retry_after_s is None:
            return failing(status, message)
        return failing(status, message, retry_after=f"{plan.retry_after_s:g}")
    endings: dict[str, Callable[[list[Chunk]], Handler]] = {"cut": breaking_off, "hang": hanging}
    return endings[plan.ends](words) if plan.ends in endings else answering(answer)


def _call_chunks(plan: Plan) -> int:
    return len(_server_answer(Plan(calls=plan.calls)).chunks()) - 3 if plan.calls else 0


def _server_answer(plan: Plan) -> ServerAnswer:
    usage = plan.usage
    cached = usage.cache_read_tokens
    reported: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens + cached,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return ServerAnswer(
        text=plan.text,
        thinking=plan.thinking,
        calls=tuple((id_, name, json.dumps(args)) for id_, name, args in plan.calls),
        finish_reason=_FINISH.get(plan.stop_reason or ""),
        usage=reported,
        chunk_chars=plan.chunk_chars,
    )


@asynccontextmanager
async def scripted_backend() -> AsyncGenerator[Backend]:
    """The scripted model."""
    yield ScriptedBackend()


@asynccontextmanager
async def openai_backend() -> AsyncGenerator[Backend]:
    """The OpenAI-compatible client."""
    async with openai_server() as server:
        client = OpenAICompatible(base_url=server.url, api_key=SECRET)
        try:
            yield OpenAIBackend(server, client)
        finally:
            await client.aclose()


BACKENDS: dict[str, BackendMaker] = {
    "scripted": scripted_backend,
    "openai-compatible": openai_backend,
}
