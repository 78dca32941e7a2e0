"""Rules of providers for a list of messages: three validators that use no code of perdure.

Each validator converts messages to the provider's format like perdure's clients, then returns every
broken rule. The rules come from the documentation and from the errors that the services return:

- OpenAI chat completions: "An assistant message with 'tool_calls' must be followed by tool messages
  responding to each 'tool_call_id'"; "messages with role 'tool' must be a response to a preceding
  message with 'tool_calls'"; ids of at most 40 characters; function names
  ``^[a-zA-Z0-9_-]{1,64}$``, in the history too.
- Anthropic messages: the first message is the user's, roles alternate once neighbours are merged;
  "text content blocks must contain non-whitespace text"; "`tool_use` ids were found without
  `tool_result` blocks immediately after" (also when text follows the calls in their message);
  results come first in the message after the calls, one per call; "`tool_use` ids must be unique",
  pattern ``^[a-zA-Z0-9_-]+$``; thinking needs a signature; "final assistant content cannot end
  with trailing whitespace".
- Google generateContent: "contents.parts must not be empty"; "the number of function response parts
  is equal to the number of function call parts"; "function call turn comes immediately after a
  user turn or after a function response turn"; names begin with a letter or an underscore.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

BlockKind = Literal["text", "media", "thinking", "call", "result", "unsendable"]

_ID = re.compile(r"[A-Za-z0-9_-]+")
_OPENAI_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_GOOGLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")


class Block(msgspec.Struct, frozen=True):
    """One block of a provider's message. For calls and results, `id` is the id of the call."""

    kind: BlockKind
    text: str = ""
    id: str = ""
    name: str = ""


class Turn(msgspec.Struct, frozen=True):
    """One message in a provider's shape."""

    role: str
    blocks: tuple[Block, ...]

    def of(self, kind: BlockKind) -> list[Block]:
        """Return the turn's blocks of one kind, in order."""
        return [block for block in self.blocks if block.kind == kind]


def all_problems(messages: Sequence[Message]) -> list[str]:
    """Return every rule of any provider that `messages` break."""
    return [
        *(f"openai: {problem}" for problem in openai_problems(messages)),
        *(f"anthropic: {problem}" for problem in anthropic_problems(messages)),
        *(f"google: {problem}" for problem in google_problems(messages)),
    ]


def sending_problems(messages: Sequence[Message]) -> list[str]:
    """Return why `messages` cannot be sent: `all_problems`, and a missing request for an answer."""
    problems = all_problems(messages)
    if not messages:
        problems.append("there is nothing to answer")
    elif messages[-1].role == "assistant":
        problems.append("the assistant has spoken last")
    return problems


def _block(part: Part) -> Block:
    match part:
        case TextPart():
            return Block("text", part.text)
        case ThinkingPart():
            return Block("thinking", part.text)
        case MediaPart():
            return Block("media")
        case ToolCallPart():
            return Block("call", id=part.id, name=part.name)
        case ToolResultPart():
            return Block("result", part.text, part.call_id, part.name or "")
        case _:
            return Block("unsendable")


# OpenAI ------------------------------------------------------------------------------------------


def openai_problems(messages: Sequence[Message]) -> list[str]:
    """Return the rules of chat completions that `messages` break."""
    return list(_openai(list(_openai_turns(messages))))


def _openai_turns(messages: Sequence[Message]) -> Iterator[Turn]:
    """Convert each message to one turn; a tool message becomes one turn per result."""
    for message in messages:
        blocks = tuple(_block(part) for part in message.parts)
        if message.role == "tool":
            yield from (Turn("tool", (block,)) for block in blocks)
        else:
            yield Turn(message.role, blocks)


def _openai(turns: list[Turn]) -> Iterator[str]:
    waiting: list[str] = []
    for at, turn in enumerate(turns):
        if turn.role != "tool" and waiting:
            yield f"{at}: calls {waiting} have no tool message"
            waiting = []
        for block in turn.of("result"):
            if block.id in waiting:
                waiting.remove(block.id)
            else:
                yield f"{at}: a tool message that answers no call right before it"
        yield from _openai_shape(at, turn)
        yield from _openai_calls(at, turn)
        waiting += [block.id for block in turn.of("call")]
    if waiting:
        yield f"end: calls {waiting} have no tool message"


def _openai_shape(at: int, turn: Turn) -> Iterator[str]:
    allowed: dict[str, set[BlockKind]] = {
        "user": {"text", "media"},
        "assistant": {"text", "call"},
        "tool": {"result"},
    }
    if turn.role not in allowed:
        yield f"{at}: role {turn.role!r} in the middle of a conversation"
    if not turn.blocks:
        yield f"{at}: no content"
    for block in turn.blocks:
        if block.kind not in allowed.get(turn.role, set()):
            yield f"{at}: {block.kind} in a message of role {turn.role}"
        if block.kind == "text" and not block.text:
            yield f"{at}: empty text"


def _openai_calls(at: int, turn: Turn) -> Iterator[str]:
    calls = turn.of("call")
    for call in calls:
        if not 1 <= len(call.id) <= 40:
            yield f"{at}: an id of {len(call.id)} characters"
        if not _OPENAI_NAME.fullmatch(call.name):
            yield f"{at}: name {call.name!r} does not match the pattern"
    if len({call.id for call in calls}) != len(calls):
        yield f"{at}: two calls of one id"


# Anthropic ---------------------------------------------------------------------------------------


def anthropic_problems(messages: Sequence[Message]) -> list[str]:
    """Return the rules of the messages API that `messages` break."""
    turns = _anthropic_turns(messages)
    return [*_anthropic_shape(turns), *_anthropic_calls(turns), *_anthropic_end(turns)]


def _anthropic_turns(messages: Sequence[Message]) -> list[Turn]:
    """Convert tool messages to user turns and merge them with the following user text."""
    turns: list[Turn] = []
    before = ""
    for message in messages:
        blocks = tuple(_block(part) for part in message.parts)
        if before == "tool" and message.role == "user":
            turns[-1] = Turn("user", (*turns[-1].blocks, *blocks))
        else:
            turns.append(Turn("user" if message.role == "tool" else message.role, blocks))
        before = message.role
    return turns


def _anthropic_shape(turns: list[Turn]) -> Iterator[str]:
    allowed: dict[str, set[BlockKind]] = {
        "user": {"text", "media", "result"},
        "assistant": {"text", "call"},
    }
    for at, turn in enumerate(turns):
        expected = "user" if at % 2 == 0 else "assistant"
        if turn.role != expected:
            yield f"{at}: role {turn.role}, where {expected} must speak"
        if not turn.blocks:
            yield f"{at}: no content"
        for block in turn.blocks:
            if block.kind == "thinking":
                yield f"{at}: thinking without a signature"
            elif block.kind not in allowed.get(turn.role, set()):
                yield f"{at}: {block.kind} in a message of role {turn.role}"
            if block.kind in ("text", "result") and not block.text.strip():
                yield f"{at}: {block.kind} without anything but blanks"


def _anthropic_calls(turns: list[Turn]) -> Iterator[str]:
    ids = Counter(call.id for turn in turns for call in turn.of("call"))
    yield from (f"call id {id_!r} is used {count} times" for id_, count in ids.items() if count > 1)
    asked: list[str] = []
    for at, turn in enumerate(turns):
        kinds = [block.kind for block in turn.blocks]
        if kinds != sorted(kinds, key=lambda kind: kind != "result"):
            yield f"{at}: tool results do not come first"
        if "call" in kinds and "text" in kinds[kinds.index("call") :]:
            yield f"{at}: text behind a call"
        answered = [block.id for block in turn.of("result")]
        if Counter(asked) != Counter(answered):
            yield f"{at}: results {answered} for calls {asked}"
        asked = [block.id for block in turn.of("call")]
        for call in turn.of("call"):
            if not _ID.fullmatch(call.id):
                yield f"{at}: id {call.id!r} does not match the pattern"
            if not _OPENAI_NAME.fullmatch(call.name):
                yield f"{at}: name {call.name!r} does not match the pattern"
    if asked:
        yield f"end: calls {asked} have no results"


def _anthropic_end(turns: list[Turn]) -> Iterator[str]:
    if turns and turns[-1].role == "assistant" and turns[-1].blocks:
        text = turns[-1].blocks[-1].text
        if text != text.rstrip():
            yield "end: the assistant's last text ends with blanks"


# Google ------------------------------------------------------------------------------------------


def google_problems(messages: Sequence[Message]) -> list[str]:
    """Return the rules of generateContent that `messages` break."""
    roles = {"user": "user", "tool": "function", "assistant": "model"}
    turns = [
        Turn(roles.get(message.role, message.role), tuple(_block(part) for part in message.parts))
        for message in messages
    ]
    return [*_google_shape(turns), *_google_calls(turns)]


def _google_shape(turns: list[Turn]) -> Iterator[str]:
    allowed: dict[str, set[BlockKind]] = {
        "user": {"text", "media"},
        "function": {"result"},
        "model": {"text", "call"},
    }
    after: dict[str, set[str]] = {
        "": {"user"},
        "user": {"model"},
        "model": {"user", "function"},
        "function": {"user", "model"},
    }
    before = ""
    for at, turn in enumerate(turns):
        if turn.role not in after.get(before, set()):
            yield f"{at}: a {turn.role} turn after {before or 'nothing'}"
        before = turn.role
        if not turn.blocks:
            yield f"{at}: no parts"
        for block in turn.blocks:
            if block.kind not in allowed.get(turn.role, set()):
                yield f"{at}: {block.kind} in a {turn.role} turn"
            if block.kind == "text" and not block.text:
                yield f"{at}: a part without data"


def _google_calls(turns: list[Turn]) -> Iterator[str]:
    asked: list[str] = []
    for at, turn in enumerate(turns):
        answered = [block.name for block in turn.of("result")]
        if asked != answered:
            yield f"{at}: function responses {answered} for function calls {asked}"
        asked = [block.name for block in turn.of("call")]
        for name in asked:
            if not _GOOGLE_NAME.fullmatch(name):
                yield f"{at}: name {name!r} does not match the pattern"
    if asked:
        yield f"end: function calls {asked} have no responses"
