"""Turn any messages into a history that OpenAI, Anthropic and Google all accept.

In a valid history, the first message is the user's. The user side and the assistant alternate. Tool
results belong to the user side, directly after the calls that they answer; user text can follow
them. Every tool call is answered exactly once, in order. No message and no text is empty. In a
message of the assistant, no text follows a tool call. The history does not end in white space.
Messages are repaired when they are read; the log is never changed.
Source: `tests/fakes/provider_rules.py` states each provider's rules and their sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec

from perdure.context import prompts
from perdure.context.emission import ContextMessage
from perdure.session.messages import Message, TextPart, user

_OPENING = user(prompts.CONVERSATION_BEGINS)


def alternating(messages: Sequence[ContextMessage]) -> tuple[ContextMessage, ...]:
    """Return the paired `messages` with adjacent messages of one role merged.

    If the first message is not the user's, an opening message of the user is inserted before it.
    """
    merged = merge_neighbours(messages)
    if merged and merged[0].message.role != "user":
        merged.insert(0, ContextMessage(_OPENING, None))
    if merged and merged[-1].message.role == "assistant":
        end = merged[-1]
        merged[-1] = msgspec.structs.replace(end, message=_without_blank_end(end.message))
    return tuple(merged)


def merge_neighbours(messages: Sequence[ContextMessage]) -> list[ContextMessage]:
    """Return `messages` with adjacent messages of one role merged.

    Shape: `messages` can begin with the last message of an earlier merge.
    """
    runs = groupby(messages, key=lambda each: each.message.role)
    return [_merge(list(run)) for _, run in runs]


def with_valid_ends(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the merged `messages` without white space at the end.

    If the first message is not the user's, an opening message of the user is inserted before it.
    """
    if messages and messages[0].role != "user":
        messages = (_OPENING, *messages)
    if messages and messages[-1].role == "assistant":
        last = _without_blank_end(messages[-1])
        messages = messages if last is messages[-1] else (*messages[:-1], last)
    return messages


def _merge(run: Sequence[ContextMessage]) -> ContextMessage:
    """Join the messages `run` into one; its model, usage and stop reason come from the last one."""
    if len(run) == 1:
        return run[0]
    parts = tuple(part for each in run for part in each.message.parts)
    message = msgspec.structs.replace(run[-1].message, parts=parts)
    entry_ids = tuple(dict.fromkeys(id_ for each in run for id_ in each.entry_ids))
    if not entry_ids:
        return ContextMessage(message, None)
    return ContextMessage(message, entry_ids[0], entry_ids[1:])


def _without_blank_end(last: Message) -> Message:
    *before, end = last.parts
    if not isinstance(end, TextPart) or not end.text[-1:].isspace():
        return last
    return msgspec.structs.replace(last, parts=(*before, TextPart(end.text.rstrip())))
