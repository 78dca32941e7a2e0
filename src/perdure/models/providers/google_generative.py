"""A client for Google's Gemini API (``generateContent``).

The module is imported at first use, because its SDK takes two seconds to load. The parts of an
answer contain thought signatures. If a later request of the same turn contains parts of an answer,
it must also contain the thought signatures of these parts. If the signatures are no longer in
memory, the library sends a placeholder that Google documents.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any

import httpx2
from google.genai.types import HttpRetryOptions
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider

from perdure.models.protocol import ModelRequest
from perdure.models.providers.bounded_http import REQUEST_HOOKS, RESPONSE_HOOKS
from perdure.models.providers.call import SOCKET_TIMEOUT_S, Connection, WireClient
from perdure.models.providers.rehearsal import GENERATE
from perdure.models.providers.requests import PDF

_MEDIA_TYPES = frozenset(
    {
        PDF,
        *("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"),
        *("audio/wav", "audio/mpeg", "audio/mp3", "audio/ogg", "audio/flac"),
        *("video/mp4", "video/mpeg", "video/quicktime", "video/webm"),
    }
)


class GoogleGenerative(WireClient):
    """Client for the Gemini API or for a proxy; `base_url` does not include the API version."""

    rehearsal = GENERATE
    own_provider = "google"
    media_types = _MEDIA_TYPES

    def _connect(self, connection: Connection) -> None:
        seconds = connection.connect_timeout_s
        self._http = httpx2.AsyncClient(
            transport=connection.transport,
            timeout=httpx2.Timeout(SOCKET_TIMEOUT_S, connect=seconds),
            event_hooks={
                "request": [_ConnectLimit(seconds), *REQUEST_HOOKS],
                "response": [_note, *RESPONSE_HOOKS],
            },
        )
        self._provider = GoogleProvider(
            api_key=connection.api_key,
            base_url=connection.url,
            http_client=self._http,
            retry_options=HttpRetryOptions(attempts=1),
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    def _new_model(self, name: str) -> Model[Any]:
        return GoogleModel(name, provider=self._provider)

    @asynccontextmanager
    async def _opened(self, request: ModelRequest) -> AsyncGenerator[StreamedResponse]:
        # The SDK reads through generators within generators and closes the outermost only: the
        # call would continue until garbage collection.
        responses: list[httpx2.Response] = []
        async with AsyncExitStack() as stack:
            stack.push_async_callback(_close, responses)
            token = _responses_of_call.set(responses)
            try:
                opened = await stack.enter_async_context(super()._opened(request))
            finally:
                _responses_of_call.reset(token)
            yield opened


_responses_of_call: ContextVar[list[httpx2.Response] | None] = ContextVar(
    "responses_of_call", default=None
)
"""The HTTP responses of the call that is being opened."""


async def _note(response: httpx2.Response) -> None:
    responses = _responses_of_call.get()
    if responses is not None:
        responses.append(response)


async def _close(responses: list[httpx2.Response]) -> None:
    for response in responses:
        await response.aclose()


class _ConnectLimit:
    """Sets the connect timeout of each request again, because the SDK overwrites it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def __call__(self, request: httpx2.Request) -> None:
        limits = {**request.extensions.get("timeout", {}), "connect": self._seconds}
        request.extensions = {**request.extensions, "timeout": limits}
