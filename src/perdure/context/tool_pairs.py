"""Pair tool calls with their results, and remove from messages what cannot be sent.

After `repair_pairs`, each assistant message with calls is directly followed by one tool message
that answers every call once, in order. Every result has a call, and no part is empty. The ids of
calls and the names of tools have the form that all providers accept. This module does not merge or
add messages to make the roles alternate; ``validity`` does.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from perdure.context import prompts
from perdure.context.emission import ContextMessage
from perdure.context.tokens import CUT_SHORT
from perdure.context.transcript import call_text, media_note
from perdure.session.ids import EntryId
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

ID_LENGTH = 40
NAME_LENGTH = 64
UNNAMED = "unnamed_tool"

_UNSENDABLE = re.compile(r"[^A-Za-z0-9_-]")
_NAME_START = re.compile(r"[A-Za-z_]")


class _Words(msgspec.Struct, frozen=True):
    """A text of a person, or a text that the model reads as if a person wrote it."""

    parts: tuple[TextPart | MediaPart, ...]
    source: EntryId | None


class _Answer(msgspec.Struct, frozen=True):
    """A model's answer. `message` is the message from which the answer comes."""

    texts: tuple[TextPart, ...]
    calls: tuple[ToolCallPart, ...]
    message: Message
    source: EntryId | None


class _Result(msgspec.Struct, frozen=True):
    """One tool result, at any position in the messages."""

    part: ToolResultPart
    source: EntryId | None


_Piece = _Words | _Answer | _Result


class _Round(msgspec.Struct, frozen=True):
    """An answer, those of its calls that are sent, and the result of each call if there is one."""

    answer: _Answer
    calls: tuple[ToolCallPart, ...]
    results: tuple[_Result | None, ...]


class Ids(msgspec.Struct, frozen=True):
    """An immutable set of ids, in layers; each layer is at least as large as the next one.

    The cost of adding ids depends only on the number of added ids, not on the number of existing
    ids.
    """

    layers: tuple[frozenset[str], ...] = ()

    def __contains__(self, id: object) -> bool:
        return any(id in layer for layer in self.layers)

    def and_also(self, more: Ids) -> Ids:
        """Return the ids in this value together with `more`."""
        layers = list(self.layers)
        for added in more.layers:
            grown = added
            while layers and len(layers[-1]) <= len(grown):
                grown |= layers.pop()
            layers.append(grown)
        return Ids(tuple(layers))

    def but_for(self, ids: frozenset[str]) -> Ids:
        """Return the ids in this value, except `ids`."""
        if not any(id in self for id in ids):
            return self
        return Ids(tuple(layer - ids for layer in self.layers))


class Calls(msgspec.Struct, frozen=True):
    """The state of tool calls on which the pairing of later messages depends.

    `answered` are the ids of calls that accept no further result; `owed` are the ids of calls that
    can still get a result. `sent` are the ids with which calls are sent to the model; `repeats`
    counts the reuses of an id.
    """

    answered: Ids = Ids()
    owed: frozenset[str] = frozenset()
    sent: Ids = Ids()
    repeats: Mapping[str, int] = {}

    def and_then(self, later: Calls) -> Calls:
        """Return the calls of `self` together with the calls `later`, which were paired later."""
        return Calls(
            answered=self.answered.but_for(later.owed).and_also(later.answered),
            owed=frozenset(id for id in self.owed if id not in later.answered) | later.owed,
            sent=self.sent.and_also(later.sent),
            repeats={**self.repeats, **later.repeats} if later.repeats else self.repeats,
        )


_NO_IDS = Ids()
NO_CALLS = Calls()


class Paired(msgspec.Struct, frozen=True):
    """Messages as `repair_pairs` returns them, and the state of their tool calls."""

    messages: tuple[ContextMessage, ...] = ()
    calls: Calls = Calls()


class _CallIds:
    """Assigns unique ids that every provider accepts; valid ids stay unchanged."""

    def __init__(self, before: Calls) -> None:
        self._before = before.sent
        self.used: set[str] = set()
        self.repeats: dict[str, int] = dict(before.repeats)

    def sendable(self, call_id: str) -> str:
        base = _UNSENDABLE.sub("_", call_id)[:ID_LENGTH] or "call"
        candidate = base
        while candidate in self.used or candidate in self._before:
            self.repeats[base] = self.repeats.get(base, 1) + 1
            suffix = f"_{self.repeats[base]}"
            candidate = base[: ID_LENGTH - len(suffix)] + suffix
        self.used.add(candidate)
        return candidate


def repair_pairs(messages: Sequence[ContextMessage]) -> tuple[ContextMessage, ...]:
    """Return `messages` with calls and results paired, without content that cannot be sent.

    Reasoning is removed, because it must not be sent to another provider. Logs do not contain the
    signature of reasoning; without the signature, Anthropic rejects the reasoning, and Google
    ignores it. OpenAI's chat format has no place for reasoning. Roles ``system`` and ``context``
    become user messages.
    Shape: the roles are user, assistant and tool; adjacent messages can have the same role.
    """
    whole = pair_after(messages)
    assert whole is not None  # there is no earlier message that a result could belong to
    return whole.messages


def pair_after(
    messages: Sequence[ContextMessage],
    before: Calls = NO_CALLS,
    *,
    follower: ContextMessage | None = None,
) -> Paired | None:
    """Return `messages` in the form of `repair_pairs`; `before` are the calls before them.

    `follower` is the next message, if there is one.
    Shape: the result is None if one of the messages is a result for a call in `before`, because
    this result changes an earlier message.
    """
    pieces = [piece for each in messages for piece in _pieces(each)]
    answers = _answers_of(pieces, before)
    if answers is None:
        return None
    ids = _CallIds(before)
    behind = None if follower is None else next(_pieces(follower), None)
    sent: list[ContextMessage] = []
    for position, piece in enumerate(pieces):
        match piece:
            case _Words():
                sent.append(ContextMessage(Message("user", piece.parts), piece.source))
            case _Result():
                if position not in answers.taken:
                    sent.append(_as_words(piece))
            case _Answer():
                next_piece = pieces[position + 1] if position + 1 < len(pieces) else behind
                each_round = _round(piece, answers.results.get(position, {}))
                if not _is_superseded(each_round, next_piece):
                    sent.extend(_messages_of(each_round, ids))
    answered = Ids((answers.answered,)) if answers.answered else _NO_IDS
    used = Ids((frozenset(ids.used),)) if ids.used else _NO_IDS
    calls = Calls(answered, answers.owed, used, ids.repeats)
    return Paired(tuple(sent), calls)


def is_sendable(each: ContextMessage) -> bool:
    """Return True if `each` has content that can be sent."""
    return next(_pieces(each), None) is not None


# Taking messages apart ---------------------------------------------------------------------------


def _pieces(each: ContextMessage) -> Iterator[_Piece]:
    message, source = each.message, each.entry_id
    if message.role == "assistant":
        yield from _pieces_of_answer(message, source)
        return
    words: list[TextPart | MediaPart] = []
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            if words:
                yield _Words(tuple(words), source)
                words = []
            yield _Result(part, source)
        elif (said := _said_by_user(part, message.role)) is not None:
            words.append(said)
    if words:
        yield _Words(tuple(words), source)


def _said_by_user(part: Part, role: str) -> TextPart | MediaPart | None:
    match part:
        case TextPart() if part.text.strip():
            needs_tag = role in ("system", "context")
            return TextPart(prompts.wrap_in_tag(role, part.text)) if needs_tag else part
        case MediaPart():
            return part
        case ToolCallPart():
            return TextPart(call_text(part))
        case _:
            return None


def _pieces_of_answer(message: Message, source: EntryId | None) -> Iterator[_Piece]:
    texts: list[TextPart] = []
    for part in message.parts:
        match part:
            case TextPart() if part.text.strip():
                texts.append(part)
            case MediaPart():
                # No provider accepts media in assistant messages.
                texts.append(TextPart(media_note(part)))
            case _:
                pass
    if texts or message.tool_calls:
        yield _Answer(tuple(texts), message.tool_calls, message, source)
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            yield _Result(part, source)


# Pairing -----------------------------------------------------------------------------------------


class _Answers(msgspec.Struct, frozen=True):
    """The tool results in a list of messages, each assigned to the call that it answers.

    `results` maps the position of an answer to the results of the answer's calls, which are keyed
    by the index of the call in the answer. `taken` are the positions of results that answer a call,
    or that repeat the result of a call. For `answered` and `owed`, see `Calls`.
    """

    results: dict[int, dict[int, _Result]]
    taken: set[int]
    answered: frozenset[str]
    owed: frozenset[str]


def _answers_of(pieces: Sequence[_Piece], before: Calls) -> _Answers | None:
    """Match each result with its call, at any distance.

    A result belongs to the newest answer before it that has a call with its id, because some models
    restart their ids in every answer. The first result of a call counts; later results are dropped.
    """
    waiting: dict[str, deque[tuple[int, int]]] = {}
    results: dict[int, dict[int, _Result]] = {}
    taken: set[int] = set()
    for position, piece in enumerate(pieces):
        if isinstance(piece, _Answer):
            asked: dict[str, deque[tuple[int, int]]] = {}
            for number, call in enumerate(piece.calls):
                asked.setdefault(call.id, deque()).append((position, number))
            waiting.update(asked)
        elif isinstance(piece, _Result):
            calls = waiting.get(piece.part.call_id)
            if calls is None and piece.part.call_id in before.owed:
                return None
            if calls is not None or piece.part.call_id in before.answered:
                taken.add(position)
            if calls:
                asker, number = calls.popleft()
                results.setdefault(asker, {})[number] = piece
    owed = frozenset(id for id, calls in waiting.items() if calls)
    return _Answers(results, taken, frozenset(waiting) - owed, owed)


def _round(answer: _Answer, results: dict[int, _Result]) -> _Round:
    """Return `answer` with only those calls that are sent.

    Calls of an interrupted answer are dropped unless they have a result, because calls without a
    result never ran. Calls of a complete answer are always sent; a call without a result gets a
    generated result.
    """
    is_whole = answer.message.stop_reason not in CUT_SHORT
    numbers = [n for n in range(len(answer.calls)) if is_whole or n in results]
    return _Round(
        answer,
        tuple(answer.calls[n] for n in numbers),
        tuple(results.get(n) for n in numbers),
    )


def _is_superseded(each: _Round, follower: _Piece | None) -> bool:
    """Return True if a failed answer was retried immediately: the next answer replaces it."""
    has_failed = each.answer.message.stop_reason == "error"
    return has_failed and not each.calls and isinstance(follower, _Answer)


# Putting messages together -----------------------------------------------------------------------


def _messages_of(each: _Round, ids: _CallIds) -> Iterator[ContextMessage]:
    """Yield the answer and its results; texts precede calls, because Anthropic requires this."""
    calls = tuple(
        ToolCallPart(ids.sendable(call.id), sendable_name(call.name), call.args)
        for call in each.calls
    )
    if not each.answer.texts and not calls:
        return
    said = msgspec.structs.replace(each.answer.message, parts=(*each.answer.texts, *calls))
    yield ContextMessage(said, each.answer.source)
    if calls:
        yield _tool_message(calls, each.results)


def _tool_message(
    calls: Sequence[ToolCallPart], results: Sequence[_Result | None]
) -> ContextMessage:
    parts = tuple(
        _sendable_result(call, result.part if result else None)
        for call, result in zip(calls, results, strict=True)
    )
    sources = [result.source for result in results if result and result.source]
    entry_ids = tuple(dict.fromkeys(sources))
    first, rest = (entry_ids[0], entry_ids[1:]) if entry_ids else (None, ())
    return ContextMessage(Message("tool", parts), first, rest)


def _sendable_result(call: ToolCallPart, result: ToolResultPart | None) -> ToolResultPart:
    """Return `result` as the answer to `call`; None becomes a result with an unknown outcome."""
    if result is None:
        return ToolResultPart(call.id, prompts.CALL_INTERRUPTED, is_error=True, name=call.name)
    text = result.text if result.text.strip() else prompts.NO_OUTPUT
    return msgspec.structs.replace(result, call_id=call.id, name=call.name, text=text)


def _as_words(result: _Result) -> ContextMessage:
    """Return a user message with the text of a result whose call is not in the window."""
    text = result.part.text if result.part.text.strip() else prompts.NO_OUTPUT
    words = TextPart(f"{prompts.RESULT_WITHOUT_CALL}\n\n{text}")
    return ContextMessage(Message("user", (words, *result.part.media)), result.source)


def sendable_name(name: str) -> str:
    """Return `name` with only ASCII letters, digits, ``_`` and ``-``, and no digit at the start."""
    cleaned = _UNSENDABLE.sub("_", name)
    if cleaned and not _NAME_START.match(cleaned):
        cleaned = f"_{cleaned}"
    return cleaned[:NAME_LENGTH] or UNNAMED
