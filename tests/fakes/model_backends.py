"""One harness for every `ModelClient`: a test plans the model's behaviour, a backend follows it."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import pytest
from httpcore2._backends.anyio import AnyIOStream

from perdure.models.protocol import ModelClient
from perdure.models.providers.anthropic_messages import AnthropicMessages
from perdure.models.providers.call import WireClient
from perdure.models.providers.google_generative import GoogleGenerative
from perdure.models.providers.openai_compatible import OpenAICompatible
from perdure.models.providers.openai_responses import OpenAIResponses
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
from tests.fakes import anthropic_server as anthropic
from tests.fakes import google_server as google
from tests.fakes import openai_server as chat
from tests.fakes import responses_server as responses
from tests.fakes.clock import ManualClock, pass_loop_time
from tests.fakes.model_server import (
    Chunk,
    Handler,
    ModelServer,
    failing,
    hanging,
    sending,
    streaming,
)
from tests.fakes.plans import Plan

SECRET = "sk-test-0123456789abcdef"


class Backend(Protocol):
    """A kind of client whose model's behaviour a test can plan."""

    model: str

    def client(self, plan: Plan) -> ModelClient:
        """Return a client whose model follows `plan` from now on."""
        ...

    @property
    def calls(self) -> int:
        """Return how many calls have reached the model."""
        ...

    async def all_ended(self) -> None:
        """Wait until the model knows that no call is open."""
        ...


BackendMaker = Callable[[], AbstractAsyncContextManager[Backend]]


class ScriptedBackend:
    """The scripted model.

    The `calls` of the model cannot be observed directly, so the backend counts uses of the clock.
    """

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


class Format(Protocol):
    """A wire format, as a module of the fakes: it translates a plan into the format."""

    def events(self, plan: Plan) -> Sequence[Chunk | str]:
        """The events of a stream without errors."""
        ...

    def words(self, plan: Plan) -> Sequence[Chunk | str]:
        """The first events of a stream: the reasoning and the text, but no calls and no end."""
        ...

    def garbage(self) -> str:
        """An event that cannot be read."""
        ...

    def error_event(self, code: ErrorCode) -> Chunk:
        """An error in the middle of a stream."""
        ...


class HttpBackend:
    """A provider's HTTP client, `asking`, connected to a server on this machine."""

    def __init__(self, model: str, form: Format, server: ModelServer, client: ModelClient) -> None:
        self.model = model
        self.server = server
        self.asking = client
        self._form = form

    @property
    def calls(self) -> int:
        return len(self.server.requests)

    def client(self, plan: Plan) -> ModelClient:
        self.server.will(self.handler(plan))
        return self.asking

    async def all_ended(self) -> None:
        async with asyncio.timeout(60):
            await self.server.is_idle.wait()

    def events(self, plan: Plan) -> Sequence[Chunk | str]:
        """The events of a stream without errors."""
        return self._form.events(plan)

    def handler(self, plan: Plan) -> Handler:
        """Return the server's handler for `plan`."""
        words = self._form.words(plan)
        if plan.error == "malformed_response":
            return sending(*(words if plan.after_words else ()), self._form.garbage())
        if plan.error is not None and plan.after_words:
            return sending(*words, self._form.error_event(plan.error))
        if plan.error is not None:
            return _failing(plan)
        if plan.ends == "cut":
            return sending(*words, is_ended=False)
        if plan.ends == "hang":
            return hanging(words)
        return streaming(self.events(plan))


_STATUS: dict[ErrorCode, tuple[int, str]] = {
    "rate_limited": (429, "slow down"),
    "model_unavailable": (529, "overloaded"),
    "context_overflow": (400, "this is more than the maximum context length of 8192 tokens"),
    "model_refused": (401, f"incorrect API key provided: {SECRET}"),
}


def _failing(plan: Plan) -> Handler:
    assert plan.error is not None
    status, message = _STATUS[plan.error]
    if plan.retry_after_s is None:
        return failing(status, message)
    return failing(status, message, retry_after=f"{plan.retry_after_s:g}")


@asynccontextmanager
async def scripted_backend() -> AsyncGenerator[Backend]:
    """The scripted model."""
    yield ScriptedBackend()


PATIENT_S = 600.0
"""Seconds that a server of the suite may be silent, except in tests of timeouts."""


class Waits:
    """The waits of HTTP clients for bytes with the time limit `limit_s`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit_s: float) -> None:
        read, self._more, self._seen = AnyIOStream.read, asyncio.Event(), 0
        self._count = 0

        async def counted(
            stream: AnyIOStream,
            max_bytes: int,
            timeout: float | None = None,  # noqa: ASYNC109 - the signature of httpcore's
        ) -> bytes:
            if timeout == limit_s:
                self._count += 1
                self._more.set()
            return await read(stream, max_bytes, timeout)

        monkeypatch.setattr(AnyIOStream, "read", counted)

    async def last(self, seconds: float) -> None:
        """Let the next wait of a client last for `seconds`, on the clock of the event loop."""
        async with asyncio.timeout(60):
            while self._count <= self._seen:
                self._more.clear()
                await self._more.wait()
        self._seen = self._count
        pass_loop_time(seconds)


class HttpMaker(Protocol):
    """A function that makes a client of the server at `url`."""

    def __call__(self, *, base_url: str, api_key: str, stream_idle_timeout_s: float) -> WireClient:
        """Return the client."""
        ...


class HttpBackendMaker(Protocol):
    """A function that starts a server and creates its client."""

    def __call__(
        self, stream_idle_timeout_s: float = PATIENT_S
    ) -> AbstractAsyncContextManager[HttpBackend]:
        """Run the backend for the duration of the block."""
        ...


def _http(
    model: str,
    form: Format,
    serve: Callable[[], AbstractAsyncContextManager[ModelServer]],
    make: HttpMaker,
) -> HttpBackendMaker:
    @asynccontextmanager
    async def backend(stream_idle_timeout_s: float = PATIENT_S) -> AsyncGenerator[HttpBackend]:
        async with serve() as server:
            client = make(
                base_url=server.url, api_key=SECRET, stream_idle_timeout_s=stream_idle_timeout_s
            )
            try:
                yield HttpBackend(model, form, server, client)
            finally:
                await client.aclose()

    return backend


HTTP_BACKENDS: dict[str, HttpBackendMaker] = {
    "openai-compatible": _http("openai:m", chat, chat.openai_server, OpenAICompatible),
    "openrouter": _http(
        "openrouter:a/m",
        chat,
        chat.openai_server,
        functools.partial(OpenAICompatible, provider="openrouter"),
    ),
    "openai-responses": _http(
        responses.MODEL, responses, responses.responses_server, OpenAIResponses
    ),
    "anthropic": _http(anthropic.MODEL, anthropic, anthropic.anthropic_server, AnthropicMessages),
    "google": _http(google.MODEL, google, google.google_server, GoogleGenerative),
}
"""The clients of all wire formats, and the client of a service that extends one of the formats."""

BACKENDS: dict[str, BackendMaker] = {"scripted": scripted_backend, **HTTP_BACKENDS}
