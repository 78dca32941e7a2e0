"""OpenAI's chat completions, and every server that speaks them. Loaded by name: a second's work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import httpx2
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

from perdure.errors import ConfigError
from perdure.models.catalogue import OPENAI_URL
from perdure.models.protocol import ModelRequest
from perdure.models.providers.bounded_http import HOOKS
from perdure.models.providers.call import CONNECT_TIMEOUT_S, SOCKET_TIMEOUT_S, WireClient
from perdure.models.providers.rehearsal import CHAT
from perdure.models.providers.requests import IMAGES, PDF

_DOCUMENTS = frozenset({PDF, "audio/wav", "audio/mpeg"})
_SHOWS_DOCUMENTS = ("openai", "openrouter")
"""The providers whose chat completions take more than images."""

_KNOWN_SERVERS: Mapping[str, Callable[..., Provider[AsyncOpenAI]]] = {
    "ollama": OllamaProvider,
    "openrouter": OpenRouterProvider,
    "vllm": VLLMProvider,
}
"""Servers whose quirks the library knows."""


class OpenAICompatible(WireClient):
    """A `ModelClient` for the models ``<provider>:<name>`` of one server.

    `base_url` None is OpenAI itself, which needs `api_key`; other servers may not need one.
    Units: `connect_timeout_s` and `stream_idle_timeout_s` seconds; the latter is for requests that
    name none, None: `limits.model_silence_s`.
    Raises: ConfigError if the key is missing.
    """

    rehearsal = CHAT

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: str = "openai",
        context_window: int | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        stream_idle_timeout_s: float | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        url = base_url or OPENAI_URL
        self._sdk = openai_sdk(url, api_key, provider, connect_timeout_s, transport)
        super().__init__(
            url,
            media_types=IMAGES | _DOCUMENTS if provider in _SHOWS_DOCUMENTS else IMAGES,
            secrets=(api_key,) if api_key else (),
            context_window=context_window,
            stream_idle_timeout_s=stream_idle_timeout_s,
        )
        self._profile = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
        if is_openai(url):
            self._provider: Provider[AsyncOpenAI] = OpenAIProvider(openai_client=self._sdk)
        else:
            self._provider = _provider(provider, self._sdk)
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


def openai_sdk(
    url: str,
    api_key: str | None,
    provider: str,
    connect_timeout_s: float,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> AsyncOpenAI:
    """Return a client of OpenAI's library for `url` without retries.

    Raises: ConfigError if `url` is OpenAI's own and there is no key.
    """
    if not api_key and is_openai(url):
        raise ConfigError(
            f"{provider} needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL for another server"
        )
    return AsyncOpenAI(
        base_url=url,
        api_key=api_key or "none",
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(
            timeout=Timeout(SOCKET_TIMEOUT_S, connect=connect_timeout_s),
            event_hooks=HOOKS,
            transport=transport,
        ),
    )


def without_sampling(settings: ModelSettings, profile: ModelProfile) -> ModelSettings:
    """Return `settings` without temperature for reasoning models, which reject one."""
    can_stop = profile.get("openai_supports_reasoning_effort_none", False)
    is_reasoning = settings.get("thinking") is not False or not can_stop
    if profile.get("openai_supports_reasoning", False) and is_reasoning:
        settings.pop("temperature", None)
    return settings


def is_openai(url: str) -> bool:
    """Whether `url` is that of OpenAI itself."""
    return url.startswith(OPENAI_URL)


def _provider(name: str, sdk: AsyncOpenAI) -> Provider[AsyncOpenAI]:
    known = _KNOWN_SERVERS.get(name)
    if known is not None:
        return known(openai_client=sdk)
    return OpenAICompatibleProvider(name, openai_client=sdk)
