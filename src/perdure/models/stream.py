"""Join the deltas of one answer into one assistant message. Pure.

The parts are in the order in which they began. Deltas of several calls can be interleaved; their
index tells them apart. Whatever a model sends, the message can be written to the log: its texts are
valid Unicode, the arguments of each call are a JSON object, and the ids of its calls are distinct.
Arguments that are not a JSON object are stored as text in the single argument `INVALID_JSON`. A
call whose arguments are not a JSON object is answered with an error for the model (see
`malformed_arguments`), and the history stays valid.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Literal

import msgspec

from perdure.errors import InvalidArguments, MalformedResponse, ModelUnavailable
from perdure.models.protocol import (
    Delta,
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageUpdate,
)
from perdure.secrets.mask import mask_part
from perdure.session.messages import (
    Message,
    Part,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    Usage,
)

_SHOWN = 200
"""Number of characters of invalid arguments that their error shows."""

INVALID_JSON = "__invalid_json__"
"""Name of the single argument that contains the text of arguments that are no JSON object.
"""

MOST_TOKENS = 2**40
"""Larger token counts for one answer are mistakes, so they are ignored."""

_object = msgspec.json.Decoder(dict[str, object])


def invalid_json(call: ToolCallPart) -> str | None:
    """Return the arguments that the model sent if they are no JSON object, else None."""
    text = call.args.get(INVALID_JSON)
    return text if isinstance(text, str) and len(call.args) == 1 else None


def malformed_arguments(call: ToolCallPart) -> InvalidArguments | None:
    """Return the error for the model if the arguments were no JSON object, else None."""
    sent = invalid_json(call)
    if sent is None:
        return None
    shown = mask_part(sent[: 2 * _SHOWN], 0, _SHOWN)  # masked before it is cut
    return InvalidArguments(call.name, f"the arguments are not a JSON object: {shown}")


def call_ids(messages: Iterable[Message]) -> frozenset[str]:
    """Return the ids of all tool calls in `messages`."""
    return frozenset(call.id for message in messages for call in message.tool_calls)


def answer_of(deltas: Iterable[Delta], model: str, taken_ids: Container[str] = ()) -> Message:
    """Return the message made of `deltas`.

    Raises: the same errors as `AnswerBuilder.build`.
    """
    builder = AnswerBuilder(model, taken_ids)
    for delta in deltas:
        builder.add(delta)
    return builder.build()


def repair_unicode(text: str) -> str:
    """Return `text` as valid Unicode: join adjacent surrogate halves, replace single halves.

    Providers can split the JSON escape of an emoji over two chunks; each half alone cannot be
    encoded.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class WholePairs:
    """Converts pieces of text to valid Unicode, for several texts at the same time.

    A key tells the texts apart. Half a surrogate pair at the end of a piece waits for the other
    half.
    """

    def __init__(self) -> None:
        self._halves: dict[object, str] = {}

    def next(self, key: object, piece: str) -> str:
        """Return the characters of the text `key` that `piece` completes; "" if there are none."""
        text = self._halves.pop(key, "") + piece
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._halves[key] = text[-1]
            text = text[:-1]
        return repair_unicode(text)


def _countable(usage: Usage | None) -> Usage | None:
    """Return `usage` if its numbers are plausible, else None; wrong numbers would falsify sums."""
    if usage is None:
        return None
    cost = usage.cost_microcents
    tokens = (getattr(usage, name) for name in Usage.__struct_fields__ if name.endswith("_tokens"))
    is_one = all(_is_count(each, MOST_TOKENS) for each in tokens)
    return usage if is_one and (cost is None or _is_count(cost, 2**63)) else None


def _is_count(value: object, below: int) -> bool:
    return isinstance(value, int) and 0 <= value < below


class _Words(msgspec.Struct):
    """Text or reasoning that is still arriving."""

    kind: Literal["text", "thinking"]
    pieces: list[str]


class _Call(msgspec.Struct):
    """A tool call that is still arriving; `pieces` are parts of its arguments."""

    pieces: list[str]
    id: str = ""
    name: str = ""


_CallMaker = Callable[[_Call], ToolCallPart | None]


def _joined(pieces: list[str]) -> str:
    """Return the text of `pieces`, and make it the only piece, so that the next call is cheap."""
    pieces[:] = ["".join(pieces)]
    return repair_unicode(pieces[0])


def _words_part(words: _Words) -> TextPart | ThinkingPart | None:
    text = _joined(words.pieces)
    if not text:
        return None
    return TextPart(text) if words.kind == "text" else ThinkingPart(text)


def _arguments(text: str) -> dict[str, object] | None:
    """Parse `text` as a JSON object; None if it is not an object. Empty text means no arguments."""
    if text.strip() in ("", "null"):
        return {}
    try:
        return _object.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


class AnswerBuilder:
    """Collects the deltas of one answer of `model`.

    `taken_ids` are the ids of the calls in the request. Some servers reuse the same call ids in
    every answer. A call whose id is taken gets a suffix (``call_0-2``), because ids must be unique
    within a branch. `counted` is the usage that the provider has reported so far. `has_begun` is
    True as soon as part of the answer has arrived, even if only the start of a tool call.
    """

    def __init__(self, model: str, taken_ids: Container[str] = ()) -> None:
        self._model = model
        self._taken = taken_ids
        self._own: set[str] = set()
        self._parts: list[_Words | _Call] = []
        self._calls: dict[int, _Call] = {}
        self._end: StreamEnd | None = None
        self.counted: Usage | None = None
        self.has_begun = False

    def add(self, delta: Delta) -> None:
        """Add the next delta.

        Raises: ValueError if the stream has already ended.
        """
        if self._end is not None:
            raise ValueError("a delta came after the end of the stream")
        if isinstance(delta, StreamEnd):
            self._end = delta
            self.counted = _countable(delta.usage) or self.counted
            return
        if isinstance(delta, UsageUpdate):
            self.counted = _countable(delta.usage) or self.counted
            return
        self.has_begun = True
        if isinstance(delta, ToolCallDelta):
            self._add_to_call(delta)
        else:
            self._add_words(delta)

    def partial(self) -> Message:
        """Return the part of the answer that has arrived, as a message without stop reason.

        Shape: the message contains only calls with complete arguments.
        """
        return Message("assistant", self._made(self._complete_call), model=self._model)

    def build(self) -> Message:
        """Return the whole answer.

        Shape: a truncated answer (any stop reason except ``stop`` and ``tool_calls``) contains only
        calls with complete arguments. The stop reason of a complete answer with calls is
        ``tool_calls``, whatever the provider reported. If the stop reason announces calls but the
        answer contains none, the stop reason stays unchanged.
        Raises: ModelUnavailable if the stream broke off before its end; MalformedResponse if a call
        has no name.
        """
        if self._end is None:
            raise ModelUnavailable(self._model, "the answer broke off before its end")
        is_clean = self._end.stop_reason in ("stop", "tool_calls")
        parts = self._made(self._any_call if is_clean else self._complete_call)
        return Message(
            "assistant",
            parts,
            model=self._model,
            stop_reason=self._stop_reason(self._end.stop_reason, parts),
            usage=self.counted,
        )

    @staticmethod
    def _stop_reason(said: StopReason, parts: tuple[Part, ...]) -> StopReason:
        has_calls = any(isinstance(part, ToolCallPart) for part in parts)
        return "tool_calls" if said == "stop" and has_calls else said

    def _add_words(self, delta: TextDelta | ThinkingDelta) -> None:
        kind: Literal["text", "thinking"] = "text" if isinstance(delta, TextDelta) else "thinking"
        last = self._parts[-1] if self._parts else None
        if isinstance(last, _Words) and last.kind == kind:
            last.pieces.append(delta.text)
        else:
            self._parts.append(_Words(kind, [delta.text]))

    def _add_to_call(self, delta: ToolCallDelta) -> None:
        call = self._calls.get(delta.index)
        if call is None:
            call = self._calls[delta.index] = _Call([])
            self._parts.append(call)
        if delta.id and not call.id:
            call.id = self._distinct(repair_unicode(delta.id))
        call.name = call.name or repair_unicode(delta.name)
        call.pieces.append(delta.json)

    def _distinct(self, call_id: str) -> str:
        free, number = call_id, 1
        while free in self._own or free in self._taken:
            number += 1
            free = f"{call_id}-{number}"
        self._own.add(free)
        return free

    def _made(self, call_part: _CallMaker) -> tuple[Part, ...]:
        made = (
            call_part(part) if isinstance(part, _Call) else _words_part(part)
            for part in self._parts
        )
        return tuple(part for part in made if part is not None)

    def _complete_call(self, call: _Call) -> ToolCallPart | None:
        text = _joined(call.pieces)
        # First the cheap check of the end: a partial is requested often while a call grows.
        if not (call.id and call.name and text.rstrip().endswith("}")):
            return None
        args = _arguments(text)
        return None if args is None else ToolCallPart(call.id, call.name, args)

    def _any_call(self, call: _Call) -> ToolCallPart:
        if not call.name:
            raise MalformedResponse(self._model, "it asked for a tool without naming it")
        if not call.id:
            call.id = self._distinct("call_0")
        text = _joined(call.pieces)
        args = _arguments(text)
        return ToolCallPart(call.id, call.name, {INVALID_JSON: text} if args is None else args)
