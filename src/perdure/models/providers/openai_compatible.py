"""OpenAI and every server that speaks its chat completions, through pydantic-ai.

The library makes the request, reads the stream and knows the models' quirks; perdure decides what
failures mean and when to call again, so the SDK's own retries are off. Nothing outside this folder
imports the library, and this module is loaded by name only (a second's work).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing

from openai import AsyncOpenAI, Timeout
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.models import StreamedResponse
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from perdure.errors import ConfigError, ModelUnavailable
from perdure.models.protocol import Delta, Finished, ModelInfo, ModelRequest, TextDelta
from perdure.models.providers.classify import model_error
from perdure.models.providers.mapping import (
    EventMapper,
    usage_of,
    wire_messages,
    wire_parameters,
    wire_settings,
)
from perdure.models.providers.pricing import cost_microcents
from perdure.session.messages import StopReason

OPENAI_URL = "https://api.openai.com/v1"
CONNECT_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 600.0
"""How long a stream may be silent; models that reason may say nothing for minutes."""

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_call": "tool_calls",
}


class OpenAICompatible:
    """A `ModelClient` for the models ``<provider>:<name>`` of one server.

    `base_url` None is OpenAI itself, which needs `api_key`; other servers may do without one.
    `context_window` is for servers whose models the library's list does not know.
    Units: `connect_timeout_s` and `idle_timeout_s` seconds.
    Raises: ConfigError when the key is missing.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: str = "openai",
        context_window: int | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        url = base_url or OPENAI_URL
        if not api_key and url.startswith(OPENAI_URL):
            raise ConfigError(
                f"{provider} needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL for another server"
            )
        self._window = context_window
        self._secrets = (api_key,) if api_key else ()
        sdk = AsyncOpenAI(
            base_url=url,
            api_key=api_key or "none",
            max_retries=0,
            timeout=Timeout(idle_timeout_s, connect=connect_timeout_s),
        )
        self._profile = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
        if url.startswith(OPENAI_URL):
            self._provider = OpenAIProvider(openai_client=sdk)
        else:
            self._provider = OpenAICompatibleProvider(provider, openai_client=sdk)
            # The older name of the setting is the one that all of them know.
            self._profile["openai_chat_supports_max_completion_tokens"] = False
        self._sdk = sdk
        self._models: dict[str, OpenAIChatModel] = {}
        self._thinking_fields: dict[str, str] = {}

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model, self._window or self._model(model).context_window)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        mapper = EventMapper()
        try:
            async with self._opened(request) as response:
                async with aclosing(_deltas(mapper, response)) as deltas:
                    async for delta in deltas:
                        yield delta
                yield self._finished(request.model, response)
        except Exception as error:  # noqa: BLE001 - a provider may send what breaks any library
            # Without its cause: tracebacks are logged, and the cause's text may quote the key.
            raise model_error(
                error,
                request.model,
                self._secrets,
                address=self._provider.base_url,
                has_begun=mapper.has_begun,
            ) from None
        if mapper.thinking_field is not None:
            self._thinking_fields[request.model] = mapper.thinking_field

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self._sdk.close()

    def _opened(self, request: ModelRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        field = self._thinking_fields.get(request.model)
        return model_request_stream(
            self._model(request.model),
            wire_messages(request, self._provider.name, field),
            model_settings=wire_settings(request),
            model_request_parameters=wire_parameters(request),
            instrument=False,
        )

    def _finished(self, model: str, response: StreamedResponse) -> Finished:
        reason = response.finish_reason or "stop"
        if reason == "error":
            raise ModelUnavailable(model, "the provider ended the answer with an error")
        usage = response.usage
        cost = cost_microcents(usage, response.model_name, self._provider.base_url)
        return Finished(_STOP_REASONS[reason], usage_of(usage, cost))

    def _model(self, model: str) -> OpenAIChatModel:
        name = model.partition(":")[2] or model
        known = self._models.get(name)
        if known is None:
            known = OpenAIChatModel(name, provider=self._provider, profile=self._profile)
            self._models[name] = known
        return known


async def _deltas(mapper: EventMapper, response: StreamedResponse) -> AsyncGenerator[Delta, None]:
    try:
        async for event in response:
            for delta in mapper.deltas_of(event):
                yield delta
    except ModelAPIError:
        # Some servers hang up without a farewell. Once the reason for the end has come, the answer
        # is whole, and only its usage may be missing: that is not worth asking again.
        if response.finish_reason is None:
            raise
    refusal: object = (response.provider_details or {}).get("refusal")
    if isinstance(refusal, str):
        yield TextDelta(refusal)
