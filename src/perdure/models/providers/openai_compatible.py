"""A client for OpenAI's chat completions, and for every compatible server.

The module is imported at first use, because its import takes a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.openrouter import OpenRouterModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers import Provider
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.providers.openrouter import OpenRouterProvider
from pydantic_ai.providers.vllm import VLLMProvider
from pydantic_ai.settings import ModelSettings

from perdure.models.catalogue import OPENAI_URL
from perdure.models.protocol import ModelRequest
from perdure.models.providers.bounded_http import HOOKS
from perdure.models.providers.call import SOCKET_TIMEOUT_S, Connection, WireClient
from perdure.models.providers.rehearsal import CHAT
from perdure.models.providers.requests import IMAGES, PDF

_DOCUMENTS = frozenset({PDF, "audio/wav", "audio/mpeg"})
_SHOWS_DOCUMENTS = ("openai", "openrouter")
"""The providers whose chat completions accept documents, not only images."""

_KNOWN_SERVERS: Mapping[str, Callable[..., Provider[AsyncOpenAI]]] = {
    "ollama": OllamaProvider,
    "openrouter": OpenRouterProvider,
    "vllm": VLLMProvider,
}
"""Servers whose quirks the library knows."""


class OpenAICompatible(WireClient):
    """Client for the models of a server with chat completions."""

    rehearsal = CHAT
    own_provider = "openai"

    def _connect(self, connection: Connection) -> None:
        name = connection.provider
        self.media_types = IMAGES | _DOCUMENTS if name in _SHOWS_DOCUMENTS else IMAGES
        self._sdk = openai_sdk(connection)
        self._profile = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
        if is_openai(connection.url):
            self._provider: Provider[AsyncOpenAI] = OpenAIProvider(openai_client=self._sdk)
        else:
            make = _KNOWN_SERVERS.get(name, partial(OpenAICompatibleProvider, name))
            self._provider = make(openai_client=self._sdk)
            # All servers know the older name of the setting.
            self._profile["openai_chat_supports_max_completion_tokens"] = False

    async def aclose(self) -> None:
        await self._sdk.close()

    def _new_model(self, name: str) -> Model[Any]:
        if isinstance(self._provider, OpenRouterProvider):
            return OpenRouterModel(name, provider=self._provider, profile=self._profile)
        return OpenAIChatModel(name, provider=self._provider, profile=self._profile)

    def _settings(self, request: ModelRequest) -> ModelSettings:
        settings = super()._settings(request)
        return without_sampling(settings, self._model(request.model).profile)


def openai_sdk(connection: Connection) -> AsyncOpenAI:
    """Return a client of OpenAI's library that never retries a call."""
    return AsyncOpenAI(
        base_url=connection.url,
        api_key=connection.api_key,
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(
            timeout=Timeout(SOCKET_TIMEOUT_S, connect=connection.connect_timeout_s),
            event_hooks=HOOKS,
            transport=connection.transport,
        ),
    )


def without_sampling(settings: ModelSettings, profile: ModelProfile) -> ModelSettings:
    """Return `settings`, without the temperature if the model is a reasoning model.

    Reasoning models reject a temperature.
    """
    can_stop = profile.get("openai_supports_reasoning_effort_none", False)
    is_reasoning = settings.get("thinking") is not False or not can_stop
    if profile.get("openai_supports_reasoning", False) and is_reasoning:
        settings.pop("temperature", None)
    return settings


def is_openai(url: str) -> bool:
    """Return whether `url` belongs to OpenAI itself."""
    return url.startswith(OPENAI_URL)
