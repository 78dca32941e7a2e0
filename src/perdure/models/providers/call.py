"""The common part of the clients of all wire formats: one model call, from request to end.

The library pydantic-ai makes the request, reads the stream and handles differences between models.
perdure classifies failures and decides on retries, so the retries of the SDKs are disabled. Each
wire format has its own module, which defines the SDK, the settings and the media types of this
format.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple

import httpx2
from genai_prices import calc_price
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import ModelAPIError, UserError
from pydantic_ai.messages import (
    ModelResponsePart,
    ModelResponsePartDelta,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from perdure.bounds.limits import limits
from perdure.errors import ConfigError, ModelUnavailable
from perdure.models.catalogue import PROVIDERS
from perdure.models.protocol import (
    Delta,
    ModelInfo,
    ModelRequest,
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageUpdate,
)
from perdure.models.providers.bounded_http import Patience
from perdure.models.providers.classify import model_error, unfinished_stream_error
from perdure.models.providers.rehearsal import ADDRESS, Event, rehearse
from perdure.models.providers.requests import (
    IMAGES,
    PDF,
    wire_messages,
    wire_parameters,
    wire_settings,
)
from perdure.models.providers.rounds import RoundMemory
from perdure.models.stream import WholePairs
from perdure.session.messages import MICROCENTS_PER_DOLLAR, StopReason, Usage

CONNECT_TIMEOUT_S = 10.0


SOCKET_TIMEOUT_S = 600.0
"""Time limit for sending a request. For reading, each call sets its own limit."""

FIRST_BYTE_TIMEOUT_S = 60.0
FIRST_BYTE_THINKING_TIMEOUT_S = 600.0
"""Default limit for the first byte; reasoning models may be silent for minutes at first."""


_STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_call": "tool_calls",
}


_rehearsed: set[type[WireClient]] = set()
"""The classes of clients that were warmed up (`rehearse`) in this process."""


class Connection(NamedTuple):
    """How a client reaches its server. `provider` is the prefix of the names of its models."""

    url: str
    api_key: str
    provider: str
    connect_timeout_s: float
    transport: httpx2.AsyncBaseTransport | None


class WireClient(ABC):
    """A `ModelClient` for the models ``<provider>:<name>`` at one address.

    If `base_url` is None, the client uses the provider's own address and needs `api_key`; a server
    at another address might need no key. The key is removed from all error texts. `context_window`
    is for a server whose models are not in the library's list.
    Units: `connect_timeout_s` and `stream_idle_timeout_s` are seconds. `stream_idle_timeout_s` is
    used for requests that do not set this limit; None means `limits.model_silence_s`.
    Raises: ConfigError if the key is missing.
    """

    rehearsal: ClassVar[Sequence[Event]]
    """An example of an answer in this wire format, for the warm-up."""

    own_provider: ClassVar[str]
    """The provider in the catalogue that defined this wire format."""

    media_types: Collection[str] = IMAGES | {PDF}

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: str | None = None,
        context_window: int | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        stream_idle_timeout_s: float | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        own, name = PROVIDERS[self.own_provider], provider or self.own_provider
        self._address = base_url or own.default_url
        if not api_key and self._address.startswith(own.default_url):
            elsewhere = f"{own.url_variables[0]} for another server that speaks its protocol"
            raise ConfigError(f"{name} needs a key: set {own.key_variables[0]}, or {elsewhere}")
        self._stream_idle_timeout_s = stream_idle_timeout_s
        self._secrets = (api_key,) if api_key else ()
        self._window = context_window
        self._models: dict[str, Model[Any]] = {}
        self._rounds = RoundMemory()
        key = api_key or "none"
        self._connect(Connection(self._address, key, name, connect_timeout_s, transport))

    def info(self, model: str) -> ModelInfo:
        try:
            return ModelInfo(model, self._window or self._model(model).context_window)
        except UserError:  # no model can have such a name
            return ModelInfo(model, self._window)

    def prepare(self, model: str) -> None:
        """Load and build everything that the first call of `model` needs.

        Do not call this in the thread of an event loop.
        """
        self.info(model)
        if type(self) not in _rehearsed:
            _rehearsed.add(type(self))
            rehearse(self._twin, model, self.rehearsal)

    def _twin(self, transport: httpx2.AsyncBaseTransport) -> WireClient:
        """Return a client of the same kind whose requests go to `transport`."""
        make: Any = type(self)  # all subclasses take these
        client: WireClient = make(base_url=ADDRESS, api_key="none", transport=transport)
        return client

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        mapper, patience = EventMapper(), self._patience(request)
        try:
            async with AsyncExitStack() as stack:
                with patience.in_force():
                    response = await stack.enter_async_context(self._opened(request))
                is_counted = False
                async with aclosing(_deltas(mapper, response)) as deltas:
                    async for delta in deltas:
                        if not is_counted and (usage := self._counted(response)) is not None:
                            is_counted = True  # usage of the request; the rest comes at the end
                            yield UsageUpdate(usage)
                        yield delta
                if not _is_ended(response):
                    raise unfinished_stream_error(request.model, has_begun=mapper.has_begun)
                yield self._finished(request.model, response)
        except Exception as error:  # noqa: BLE001 - bad data may break any library
            # Without its cause: tracebacks are logged, and the cause's text may quote the key.
            raise model_error(
                error,
                request.model,
                self._secrets,
                address=self._address,
                has_begun=mapper.has_begun,
                silence=patience.timeout_message(self._address),
            ) from None

    @abstractmethod
    def _connect(self, connection: Connection) -> None:
        """Create the library's provider, with an SDK that never retries a call."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections."""

    @abstractmethod
    def _new_model(self, name: str) -> Model[Any]:
        """Return the library's model with the name `name`."""

    def _settings(self, request: ModelRequest) -> ModelSettings:
        """Return the library settings for `request`, except messages and tools."""
        return wire_settings(request)

    def _opened(self, request: ModelRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        return model_request_stream(
            self._model(request.model),
            wire_messages(request, self.media_types, self._rounds),
            model_settings=self._settings(request),
            model_request_parameters=wire_parameters(
                request, takes_schema=self._takes_schema(request)
            ),
            instrument=False,
        )

    def _takes_schema(self, request: ModelRequest) -> bool:
        """Return whether to send the schema of the answer to this server.

        Only a provider's own server is known to accept a schema; other servers might reject it. For
        other servers, only the system prompt requests an answer in the form of the schema.
        """
        if not self._address.startswith(PROVIDERS[self.own_provider].default_url):
            return False
        profile = self._model(request.model).profile
        with_tools = profile.get("google_supports_tool_combination", True)
        is_taken = profile.get("supports_json_schema_output", False)
        return bool(is_taken and (with_tools or not request.tools))

    def _patience(self, request: ModelRequest) -> Patience:
        is_thinking = request.thinking_level != "off"
        first_byte_s = FIRST_BYTE_THINKING_TIMEOUT_S if is_thinking else FIRST_BYTE_TIMEOUT_S
        if request.first_byte_timeout_s is not None:
            first_byte_s = request.first_byte_timeout_s
        idle_s = request.stream_idle_timeout_s
        if idle_s is None:
            idle_s = self._stream_idle_timeout_s
        return Patience(first_byte_s, limits().model_silence_s if idle_s is None else idle_s)

    def cost_microcents(self, model: str, usage: Usage) -> int | None:
        """Return the cost of `usage` of `model` at this address; None if unknown."""
        return cost_of(usage, model.partition(":")[2] or model, self._address)

    def _counted(self, response: StreamedResponse) -> Usage | None:
        """Return the usage that the provider has reported so far; the answer can be incomplete."""
        usage = response.usage
        return usage_of(usage, cost_microcents(usage, response.model_name, self._address))

    def _finished(self, model: str, response: StreamedResponse) -> StreamEnd:
        reason = response.finish_reason or "stop"
        if reason == "error":
            raise ModelUnavailable(model, "the provider ended the answer with an error")
        self._rounds.keep(model, response.get())
        return StreamEnd(_STOP_REASONS[reason], self._counted(response))

    def _model(self, model: str) -> Model[Any]:
        name = model.partition(":")[2] or model
        known = self._models.get(name)
        if known is None:
            known = self._models[name] = self._new_model(name)
        return known


def _is_ended(response: StreamedResponse) -> bool:
    """Return whether the provider gave a reason for the end of the answer, even an unknown one."""
    return response.finish_reason is not None or "finish_reason" in (
        response.provider_details or {}
    )


async def _deltas(mapper: EventMapper, response: StreamedResponse) -> AsyncGenerator[Delta, None]:
    try:
        async for event in response:
            for delta in mapper.deltas_of(event):
                yield delta
    except ModelAPIError:
        # Some servers close the connection without an end event. After the stop reason the answer
        # is complete, and only its usage may be missing: that does not justify a retry.
        if not _is_ended(response):
            raise
    refusal: object = (response.provider_details or {}).get("refusal")
    if isinstance(refusal, str):
        yield TextDelta(refusal)


class EventMapper:
    """Converts the events of one answer to deltas.

    `has_begun` is True as soon as some output has arrived.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self._pairs = WholePairs()

    def deltas_of(self, event: ModelResponseStreamEvent) -> Iterator[Delta]:
        """Yield the deltas of `event`; most events have one delta, some have none."""
        self.has_begun = True
        if isinstance(event, PartStartEvent):
            yield from self._started(event.index, event.part)
        elif isinstance(event, PartDeltaEvent):
            yield from self._continued(event.index, event.delta)

    def _started(self, index: int, part: ModelResponsePart) -> Iterator[Delta]:
        if isinstance(part, TextPart):
            yield from self._words(index, part.content, TextDelta)
        elif isinstance(part, ThinkingPart):
            yield from self._words(index, part.content, ThinkingDelta)
        elif isinstance(part, ToolCallPart):
            yield ToolCallDelta(index, part.tool_call_id, part.tool_name, _json(part.args))

    def _continued(self, index: int, delta: ModelResponsePartDelta) -> Iterator[Delta]:
        if isinstance(delta, TextPartDelta):
            yield from self._words(index, delta.content_delta, TextDelta)
        elif isinstance(delta, ThinkingPartDelta):
            yield from self._words(index, delta.content_delta or "", ThinkingDelta)
        elif isinstance(delta, ToolCallPartDelta) and delta.args_delta:
            yield ToolCallDelta(index, json=_json(delta.args_delta))

    def _words(
        self, index: int, text: str, make: type[TextDelta] | type[ThinkingDelta]
    ) -> Iterator[Delta]:
        whole = self._pairs.next(index, text)
        if whole:
            yield make(whole)


def usage_of(usage: RequestUsage, cost_microcents: int | None) -> Usage | None:
    """Convert `usage` to counts that do not overlap; None if the provider reported none."""
    if usage.unmeasured_requests or not usage.total_tokens:
        return None
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return Usage(
        input_tokens=max(usage.input_tokens - cached, 0),
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_microcents=cost_microcents,
    )


def _json(args: str | Mapping[str, object] | None) -> str:
    return args if isinstance(args, str) else json.dumps(args) if args else ""


def cost_microcents(usage: RequestUsage, model_name: str, base_url: str) -> int | None:
    """Return the cost of `usage` at the service with the address `base_url`; None if unknown.

    Only the address determines which prices apply, because a private server might serve a model
    under the name of a paid one.
    Units: the cost is in 1e-8 US dollars.
    """
    try:
        price: Decimal = calc_price(usage, model_name, provider_api_url=base_url).total_price
    except (LookupError, ValueError):
        return None
    return round(price * MICROCENTS_PER_DOLLAR)


def cost_of(usage: Usage, model_name: str, base_url: str) -> int | None:
    """Return the cost of `usage` at the service with the address `base_url`; None if unknown.

    In the price list, cached tokens are part of the input tokens, so this function adds them.
    Units: the cost is in 1e-8 US dollars.
    """
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    counted = RequestUsage(
        input_tokens=usage.input_tokens + cached,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    return cost_microcents(counted, model_name, base_url)
