"""A client for OpenAI's responses API, without its server-side state: all state is in the log.

The API returns reasoning in encrypted form, and perdure sends it again within the same turn. This
module is imported lazily.
"""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers import Provider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings

from perdure.models.protocol import ModelRequest
from perdure.models.providers.call import Connection, WireClient
from perdure.models.providers.openai_compatible import is_openai, openai_sdk, without_sampling
from perdure.models.providers.rehearsal import RESPONSES


class OpenAIResponses(WireClient):
    """Client for the models of a server with the responses API."""

    rehearsal = RESPONSES
    own_provider = "openai-responses"

    def _connect(self, connection: Connection) -> None:
        self._sdk = openai_sdk(connection)
        self._provider: Provider[AsyncOpenAI] = (
            OpenAIProvider(openai_client=self._sdk)
            if is_openai(connection.url)
            else OpenAICompatibleProvider(connection.provider, openai_client=self._sdk)
        )

    async def aclose(self) -> None:
        await self._sdk.close()

    def _new_model(self, name: str) -> Model[Any]:
        return OpenAIResponsesModel(name, provider=self._provider)

    def _settings(self, request: ModelRequest) -> ModelSettings:
        settings = OpenAIResponsesModelSettings(openai_store=False)
        if request.thinking_level != "off" and _reasons(self._model(request.model)):
            # Without it no reasoning can be read.
            settings["openai_reasoning_summary"] = "auto"
        profile = self._model(request.model).profile
        return {**without_sampling(super()._settings(request), profile), **settings}


def _reasons(model: Model[Any]) -> bool:
    return bool(model.profile.get("supports_thinking", False))
