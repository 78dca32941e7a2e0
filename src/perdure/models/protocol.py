"""The interface between perdure and language models: a request returns a stream of deltas.

A client never accesses the log, and perdure never uses a provider's types. Every error of a client
is a `perdure.errors.ModelError`; its class alone decides the engine's next step.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from perdure.bounds.short_repr import ShortRepr
from perdure.session.messages import Message, StopReason, Usage

TimeoutS = Annotated[float, Meta(gt=0, le=86_400)]

ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]


class ToolDeclaration(msgspec.Struct, frozen=True):
    """A tool as declared to the model. `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, object]


class ModelInfo(msgspec.Struct, frozen=True):
    """Known facts about a model. Units: the sizes are tokens; None if unknown."""

    model: str
    context_window: int | None = None
    max_output_tokens: int | None = None


class ModelRequest(ShortRepr, frozen=True):
    """One call of a model (``provider:name``).

    Shape: `messages` are valid for every provider (see ``context.validity``). For example, messages
    of user and assistant alternate, and every tool call is answered. With thousands of messages,
    `messages` can be a sequence other than a tuple. `media` maps the media handles in the messages
    to the bytes of the media. `output_schema` is the JSON Schema of the answer, of type object.
    Some models do not accept a schema, so `system` also describes the form of the answer.
    Units: the timeouts are seconds. `first_byte_timeout_s` limits the wait for the first byte of
    the answer, headers included; `stream_idle_timeout_s` limits each later wait for bytes. A
    timeout of None means the client's default.
    """

    model: str
    messages: Sequence[Message]
    system: str | None = None
    tools: tuple[ToolDeclaration, ...] = ()
    thinking_level: ThinkingLevel = "off"
    max_output_tokens: int | None = None
    temperature: float | None = None
    media: Mapping[str, bytes] = {}
    first_byte_timeout_s: float | None = None
    stream_idle_timeout_s: float | None = None
    output_schema: Mapping[str, object] | None = None


class TextDelta(msgspec.Struct, frozen=True):
    """The next piece of the answer's text."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    """The next piece of the reasoning."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True):
    """The next piece of a tool call's arguments; `index` identifies the call in its answer.

    Shape: the first delta of a call has `id` and `name`. The pieces in `json`, joined, are the
    arguments of the call.
    """

    index: int
    id: str = ""
    name: str = ""
    json: str = ""


class StreamEnd(msgspec.Struct, frozen=True):
    """The end of a complete stream: always the last delta, exactly once."""

    stop_reason: StopReason
    usage: Usage | None = None


class UsageUpdate(msgspec.Struct, frozen=True):
    """The provider's token count so far; a later count replaces it. An update contains no text.

    With a `UsageUpdate`, the usage is known even if the answer is interrupted.
    """

    usage: Usage


Delta = TextDelta | ThinkingDelta | ToolCallDelta | UsageUpdate | StreamEnd


class ModelClient(Protocol):
    """A client of language models.

    A client can serve many models and many calls at the same time.
    """

    def info(self, model: str) -> ModelInfo:
        """Return the facts about `model`; never fails, never uses the network."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Call the model; nothing is sent before the first item is requested.

        Cancelling the task, or closing the iterator, ends the call at once.
        Raises: ModelError (ModelUnavailable, RateLimited, ContextOverflow, ModelRefused,
        MalformedResponse), before the first delta or between deltas.
        """
        ...


@asynccontextmanager
async def streaming(
    models: ModelClient, request: ModelRequest
) -> AsyncGenerator[AsyncIterator[Delta]]:
    """Yield the deltas of a model call.

    Leaving the ``async with`` block ends the call, even while the answer arrives.
    """
    deltas = models.stream(request)
    try:
        yield deltas
    finally:
        if isinstance(deltas, AsyncGenerator):
            await deltas.aclose()
