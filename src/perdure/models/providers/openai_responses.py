"""OpenAI's responses API, used without its server-side state: the log is the only memory.

Reasoning comes back encrypted and is sent again within the same turn. Loaded by name.
"""

from __future__ import annotations

from typing import Any

import httpx2
from openai import AsyncOpenAI
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers import Provider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings

from perdure.models.catalogue import OPENAI_URL
from perdure.models.protocol import ModelRequest
from perdure.models.providers.call import CONNECT_TIMEOUT_S, WireClient
from perdure.models.providers.openai_compatible import is_openai, openai_sdk, without_sampling
from perdure.models.providers.rehearsal import RESPONSES
from perdure.models.providers.requests import IMAGES, PDF


class OpenAIResponses(WireClient):
    """A `ModelClient` for the models ``<provider>:<name>`` of a server of the responses API.

    `base_url` None is OpenAI itself, which needs `api_key`; other servers may do without one.
    Units: `connect_timeout_s` and `stream_idle_timeout_s` seconds; the latter is for requests that
    name none, None: `limits.model_silence_s`.
    Raises: ConfigError when the key is missing.
    """

    rehearsal = RESPONSES

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: str = "openai-responses",
        context_window: int | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        stream_idle_timeout_s: float | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        url = base_url or OPENAI_URL
        self._sdk = openai_sdk(url, api_key, provider, connect_timeout_s, transport)
        super().__init__(
            url,
            media_types=IMAGES | {PDF},
            secrets=(api_key,) if api_key else (),
            context_window=context_window,
            stream_idle_timeout_s=stream_idle_timeout_s,
        )
        self._provider: Provider[AsyncOpenAI] = (
            OpenAIProvider(openai_client=self._sdk)
            if is_openai(url)
            else OpenAICompatibleProvider(provider, openai_client=self._sdk)
        )

    async def aclose(self) -> None:
        await self._sdk.close()

    def _new_model(self, name: str) -> Model[Any]:
        return OpenAIResponsesModel(name, provider=self._provider)

    def _settings(self, request: ModelRequest) -> ModelSettings:
        settings = OpenAIResponsesModelSettings(openai_store=False)
        if request.thinking_level != "off" and _reasons(self._model(request.model)):
            # Without it nothing of the reasoning can be read.
            settings["openai_reasoning_summary"] = "auto"
        profile = self._model(request.model).profile
        return {**without_sampling(super()._settings(request), profile), **settings}


def _reasons(model: Model[Any]) -> bool:
    return bool(model.profile.get("supports_thinking", False))
