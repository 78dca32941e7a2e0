"""Messages of people, models and tools, and the parts of messages, in their stored form.

Every value of this module except `InFlightMessage` can be written to the log unchanged. Messages
contain no provider signatures and no inline media: a ``MediaPart`` names bytes by their hash, and
the store contains the bytes.
`decode_message` reads the body of a ``message`` entry; ``codec`` reads all other bodies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeVar, overload

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.errors.usage import WrongArgument
from perdure.session.argument_checks import takes_declared
from perdure.session.clock import ms_of
from perdure.session.media.inline import MIME_TYPE, InlineMedia
from perdure.session.upgrade import upgrade_body

MESSAGE = "message"
"""Kind of an entry whose body is a `Message`."""

MESSAGE_VERSION = 1

_T = TypeVar("_T")

Role = Literal["system", "context", "user", "assistant", "tool"]
StopReason = Literal["stop", "length", "tool_calls", "content_filter", "aborted", "error"]
"""Why an assistant message ended; only the first three are normal ends."""


class TextPart(ShortRepr, frozen=True, gc=False, tag="text"):
    """Plain text."""

    text: str


class ThinkingPart(ShortRepr, frozen=True, gc=False, omit_defaults=True, tag="thinking"):
    """Reasoning of a model.

    The log stores the reasoning for people; another provider never receives the reasoning.
    """

    text: str
    is_redacted: bool = False


class MediaPart(ShortRepr, frozen=True, gc=False, omit_defaults=True, tag="media"):
    """Bytes in the store, named by hash.

    Shape: `handle` is ``media://sha256-<64 lowercase hex digits>``.
    """

    mime_type: str
    handle: str
    byte_length: int
    name: str | None = None


class ToolCallPart(ShortRepr, frozen=True, omit_defaults=True, tag="tool_call"):
    """A model's request to run a tool; `id` comes from the provider and is unique in its branch.

    `contents` are the handles that replace base64 in `args` (`media_storage.embedded_base64`).
    """

    id: str
    name: str
    args: dict[str, object]
    contents: tuple[str, ...] = ()


class ToolResultPart(ShortRepr, frozen=True, omit_defaults=True, tag="tool_result"):
    """The result of tool call `call_id`, as the model sees it.

    `contents` are the handles that replace base64 in `text`.
    """

    call_id: str
    text: str
    is_error: bool = False
    name: str | None = None
    media: tuple[MediaPart, ...] = ()
    contents: tuple[str, ...] = ()


class UnknownPart(ShortRepr, frozen=True, tag="unknown"):
    """A part of a type that this version does not know, stored as its original JSON."""

    raw: msgspec.Raw


Part = TextPart | ThinkingPart | MediaPart | ToolCallPart | ToolResultPart | UnknownPart


MICROCENTS_PER_DOLLAR = 100_000_000


class Usage(ShortRepr, frozen=True, gc=False, omit_defaults=True):
    """Tokens of one model call, as counted by the provider.

    Units: tokens; `cost_microcents` in 1e-8 US dollars, None when the price is unknown.
    Shape: the four token classes do not overlap; their sum is the context that the call used.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_microcents: int | None = None

    @property
    def total_tokens(self) -> int:
        """Return the number of tokens in the context window when the call ended."""
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
        )

    def __add__(self, other: Usage) -> Usage:
        costs = [c for c in (self.cost_microcents, other.cost_microcents) if c is not None]
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            sum(costs) if costs else None,
        )


class Message(ShortRepr, frozen=True, omit_defaults=True):
    """One message of a conversation; the body of ``message`` entries.

    `model` (``provider:name``), `stop_reason`, `usage` and `error` belong to assistant messages.
    `author` names the speaker if there are several, and `said_at` is set if it differs from the
    entry's time. `foreign` is the original message of another program, a JSON object. `author`,
    `said_at` and `foreign` are never sent to a model.
    Units: `said_at` is Unix milliseconds.
    """

    role: Role
    parts: tuple[Part, ...]
    model: str | None = None
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    error: str | None = None
    author: str | None = None
    said_at: int | None = None
    foreign: dict[str, object] | None = None

    @property
    def text(self) -> str:
        """Return the texts of the text parts and of the tool results, joined by blank lines."""
        texts = [part.text for part in self.parts if isinstance(part, TextPart | ToolResultPart)]
        return "\n\n".join(text for text in texts if text)

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """Return the requested tool calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))


class InFlightMessage(ShortRepr, frozen=True):
    """A message with media as bytes; appending or sending it replaces the bytes with handles."""

    role: Role
    parts: tuple[Part | InlineMedia, ...]
    author: str | None = None
    said_at: int | None = None
    foreign: dict[str, object] | None = None


@overload
def user(
    content: str | MediaPart,
    *more: str | MediaPart,
    author: str | None = None,
    said_at: datetime | int | None = None,
    foreign: dict[str, object] | None = None,
) -> Message: ...
@overload
def user(
    content: str | MediaPart | InlineMedia,
    *more: str | MediaPart | InlineMedia,
    author: str | None = None,
    said_at: datetime | int | None = None,
    foreign: dict[str, object] | None = None,
) -> Message | InFlightMessage: ...
@partial(takes_declared, leaving=("content", "more"))
def user(
    content: str | MediaPart | InlineMedia,
    *more: str | MediaPart | InlineMedia,
    author: str | None = None,
    said_at: datetime | int | None = None,
    foreign: dict[str, object] | None = None,
) -> Message | InFlightMessage:
    """Return a user message: texts and media in the given order.

    Media as bytes (from `perdure.media`) make the message an `InFlightMessage`. For `author`,
    `said_at` and `foreign`, see `Message`; a `said_at` without a zone is local time.
    """
    given = (content, *more)
    at = ms_of(said_at) if isinstance(said_at, datetime) else said_at
    if not any(isinstance(each, InlineMedia) for each in given):
        parts = tuple(_make_part(each, MediaPart) for each in given)
        return Message("user", parts, author=author, said_at=at, foreign=foreign)
    parts = tuple(
        _check_inline(e) if isinstance(e, InlineMedia) else _make_part(e, MediaPart) for e in given
    )
    return InFlightMessage("user", parts, author, at, foreign)


@partial(takes_declared, leaving=("content",))
def assistant(
    *content: str | ThinkingPart | ToolCallPart,
    model: str | None = None,
    usage: Usage | None = None,
    stop_reason: StopReason | None = None,
    author: str | None = None,
    said_at: datetime | int | None = None,
    foreign: dict[str, object] | None = None,
) -> Message:
    """Return an assistant message, with the fields of `Message`.

    `stop_reason` is by default ``tool_calls`` if the message has tool calls, and else ``stop``.
    """
    parts = tuple(_make_part(c, ThinkingPart, ToolCallPart) for c in content)
    has_calls = any(isinstance(part, ToolCallPart) for part in parts)
    reason = stop_reason or ("tool_calls" if has_calls else "stop")
    at = ms_of(said_at) if isinstance(said_at, datetime) else said_at
    return Message(
        "assistant",
        parts,
        model=model,
        stop_reason=reason,
        usage=usage,
        author=author,
        said_at=at,
        foreign=foreign,
    )


def _check_inline(inline: InlineMedia) -> InlineMedia:
    """Return `inline` if a message can contain its media type. Raises: WrongArgument."""
    if MIME_TYPE.fullmatch(inline.mime_type):
        return inline
    raise WrongArgument(
        f"a message holds images, audio, video, PDF or plain text, not "
        f"{inline.mime_type!r:.40}: give it as perdure.media(...), or keep it in a perdure.Custom"
    )


def _make_part(content: object, *others: type[Part]) -> Part:
    """Return `content` as a part of a message.

    Raises: WrongArgument if `content` is neither text nor one of `others`.
    """
    if isinstance(content, str):
        return TextPart(content)
    if isinstance(content, others):
        return content
    allowed = ", ".join(["text", *(other.__name__ for other in others)])
    raise WrongArgument(f"a message is made of {allowed}, not of {type(content).__name__}")


def system(text: str) -> Message:
    """Return a system message: instructions to the model."""
    return Message("system", (_make_part(text),))


def thinking(text: str) -> ThinkingPart:
    """Return reasoning as a part of an assistant message."""
    return ThinkingPart(_check_value(text, str, "the text of a thought"))


def tool_call(call_id: str, name: str, args: Mapping[str, object] | None = None) -> ToolCallPart:
    """Return a request to run a tool, as a part of an assistant message."""
    return ToolCallPart(
        _check_value(call_id, str, "the id of a tool call"),
        _check_value(name, str, "the name of a tool"),
        {} if args is None else dict(_check_value(args, Mapping, "the arguments of a tool call")),
    )


def tool_result(
    call_id: str, text: str, *, is_error: bool = False, name: str | None = None
) -> Message:
    """Return the message that answers the tool call `call_id`."""
    part = ToolResultPart(
        _check_value(call_id, str, "the id of a tool call"),
        _check_value(text, str, "the result of a tool"),
        is_error=_check_value(is_error, bool, "is_error"),
        name=None if name is None else _check_value(name, str, "the name of a tool"),
    )
    return Message("tool", (part,))


def _check_value(value: _T, kind: type, what: str) -> _T:
    """Return `value` if its type is `kind`.

    Values of other types are rejected, because they could be stored but not read again or sent to a
    model.
    Raises: WrongArgument.
    """
    if isinstance(value, kind):
        return value
    raise WrongArgument(f"{what} is a {kind.__name__}, not {type(value).__name__}")


_encoder = msgspec.json.Encoder()
_message = msgspec.json.Decoder(Message)
_part = msgspec.json.Decoder(Part)
_object = msgspec.json.Decoder(dict[str, Any])
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


def decode_message(body: bytes, version: int = MESSAGE_VERSION) -> Message:
    """Return the message in the body of a ``message`` entry; unknown parts become `UnknownPart`.

    Raises: UnsupportedVersion for a newer `version`. Raises ValueError if the body is not a
    message.
    """
    if version != MESSAGE_VERSION:
        body = _encoder.encode(
            upgrade_body(MESSAGE, version, MESSAGE_VERSION, _object.decode(body))
        )
    try:
        return _message.decode(body)
    except msgspec.ValidationError:
        return _message.decode(with_unknown_parts(body))


def with_unknown_parts(body: bytes | msgspec.Raw) -> bytes:
    """Return the JSON object `body`; each part of an unknown type becomes an `UnknownPart`.

    The function looks for parts in the field ``parts``, and in the ``parts`` of the messages in
    ``partial`` and ``retained``.
    Raises: ValueError if `body` is not an object, or if ``parts``, ``partial`` or ``retained`` has
    another shape.
    """
    fields = _raw_object.decode(body)
    if "parts" in fields:
        parts = [_part_or_unknown(part) for part in _raw_list.decode(fields["parts"])]
        fields["parts"] = msgspec.Raw(_encoder.encode(parts))
    if "partial" in fields:
        fields["partial"] = msgspec.Raw(with_unknown_parts(fields["partial"]))
    if "retained" in fields:
        messages = [with_unknown_parts(raw) for raw in _raw_list.decode(fields["retained"])]
        fields["retained"] = msgspec.Raw(b"[" + b",".join(messages) + b"]")
    return _encoder.encode(fields)


def _part_or_unknown(raw: msgspec.Raw) -> msgspec.Raw | UnknownPart:
    try:
        _part.decode(raw)
    except msgspec.ValidationError:
        return UnknownPart(raw)
    return raw


LONG_PASTE = 20_000
"""A pasted text that has more characters is attached to the message instead of inserted."""

_ATTACHMENT = re.compile(r"([^\n]{1,400}):\n(`{3,})\n(.*)\n\2", re.DOTALL)


def attachment_in(text: str) -> tuple[str, str] | None:
    """Return name and content if the message part `text` is an attached text; otherwise None.

    Pure.
    """
    if (found := _ATTACHMENT.fullmatch(text)) is not None:
        return found[1], found[3]
    return ("pasted text", text) if len(text) > LONG_PASTE else None


def typed_text(message: Message) -> str:
    """Return the text of `message` without the text files that were sent with it. Pure."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart) and part.text]
    return "\n\n".join(text for n, text in enumerate(texts) if not n or not attachment_in(text))
