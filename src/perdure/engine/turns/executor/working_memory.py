"""Divide the token budget of a request between fixed texts, recalled texts and history.

Instructions, tools and the new message are always sent whole. Recalled texts get at most a quarter
of the budget. The history gets the remaining tokens, in whole exchanges.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.context.build import leading
from perdure.context.incremental.conversation import Conversation
from perdure.context.incremental.prompt import Prompt
from perdure.context.tokens import estimate_tokens, unscaled_tokens
from perdure.errors import ContextOverflow
from perdure.memory.injection import MOST_TOKENS, SHARE, context_block
from perdure.session.messages import Message, Part, TextPart, user


def room_for(
    conversation: Conversation, model: str, max_tokens: int | None, around: int, scale: float
) -> int | None:
    """Return how many tokens recalled texts are allowed to use; None if no limit is known.

    Units: `around` is the number of tokens of instructions and tools.
    Raises: ContextOverflow if instructions, tools and the user's newest message alone exceed
    `max_tokens`.
    """
    if max_tokens is None:
        return None
    new = newest_message(conversation)
    fixed = around + (0 if new is None else estimate_tokens(new, scale))
    if fixed > max_tokens:
        reason = (
            f"instructions, tools and the message need about {fixed} tokens, and "
            f"max_working_tokens allows {max_tokens}: shorten the message, or raise it"
        )
        raise ContextOverflow(model, reason, fixed, max_tokens, can_compact=False)
    return min(max_tokens // SHARE, max_tokens - fixed)


def newest_message(conversation: Conversation) -> Message | None:
    """Return the newest message of the user."""
    said = [each.message for each in conversation.tail.messages if each.message.role == "user"]
    return said[-1] if said else None


def recalled_block(
    texts: Sequence[str], boundary: str, scale: float, room: int | None, budget: int | None
) -> str | None:
    """Return the recalled texts that fit into the token limits, as one text; None if none fits."""
    if room is None:
        room = MOST_TOKENS if budget is None else min(MOST_TOKENS, budget // SHARE)
    most = room
    return context_block(texts, boundary, lambda block: tokens_of(block, scale) <= most)


def tokens_of(block: str | None, scale: float) -> int:
    """Return the estimated tokens of a text."""
    return 0 if block is None else estimate_tokens(user(block), scale)


def smaller_block(
    block: str | None,
    texts: Sequence[str],
    boundary: str,
    prompt: Prompt,
    *,
    scale: float,
    most: int | None,
) -> str | None:
    """Return the part of `block` (made of `texts`) that fits into `most` tokens beside `prompt`.

    The prompt can leave less room for `block` than planned, for two reasons. Pinned messages, a
    summary, and the tool calls of the newest turn are in the prompt even if they exceed the budget.
    If the limit is the model's window, the history can fill the whole window until the history is
    compacted, so the recalled texts are shortened and not the history.
    """
    if block is None or most is None or prompt.tokens + tokens_of(block, scale) <= most:
        return block
    left = most - sum(estimate_tokens(message, scale) for message in prompt.messages)
    if tokens_of(block, scale) <= left:
        return block
    return recalled_block(texts, boundary, scale, left, None)


def without_unanswered(
    prompt: Prompt, conversation: Conversation, scale: float, most: int
) -> Prompt:
    """Return `prompt`; if it is too long, drop earlier user messages that were never answered.

    The unanswered messages and the newest user message form one message. The older parts of the
    combined message are dropped, oldest first, until all messages have at most `most` tokens. A
    summary and pinned messages are never dropped.
    """
    new = newest_message(conversation)
    if new is None or not prompt.messages or prompt.messages[-1].role != "user":
        return prompt
    *before, last = prompt.messages
    size = sum(estimate_tokens(message, scale) for message in before)
    parts, place, dropped = last.parts, 0, 0
    is_long = size + _tokens_of_parts(parts, scale) > most
    spared = _spared_parts(conversation) if is_long else frozenset[int]()
    while len(parts) - place > len(new.parts) and size + _tokens_of_parts(parts, scale) > most:
        if id(parts[place]) in spared:
            place += 1
        else:
            parts, dropped = (*parts[:place], *parts[place + 1 :]), dropped + 1
    if not dropped:
        return prompt
    kept = (*before, msgspec.structs.replace(last, parts=parts))
    return msgspec.structs.replace(
        prompt,
        messages=kept,
        dropped=prompt.dropped + dropped,
        tokens=sum(estimate_tokens(message, scale) for message in kept),
        size=sum(map(unscaled_tokens, kept)),
    )


def _spared_parts(conversation: Conversation) -> frozenset[int]:
    """Return the ``id()`` of each part of a summary and of pinned messages."""
    messages = conversation.settled.paired.whole(conversation.tail.messages)
    pins = conversation.pins
    first = leading(messages, conversation.pinned, has_summary=conversation.has_summary)
    spared = (each for each in messages if not pins.isdisjoint(each.entry_ids))
    return frozenset(
        id(part) for each in (*messages[:first], *spared) for part in each.message.parts
    )


def _tokens_of_parts(parts: tuple[Part, ...], scale: float) -> int:
    return estimate_tokens(Message("user", parts), scale)


def with_block(prompt: Prompt, block: str, scale: float) -> Prompt:
    """Return `prompt` with the text `block` inserted before its history."""
    first, *rest = prompt.messages or (Message("user", ()),)
    opened = msgspec.structs.replace(first, parts=(TextPart(block), *first.parts))
    return msgspec.structs.replace(
        prompt,
        messages=(opened, *rest),
        tokens=prompt.tokens + tokens_of(block, scale),
        size=prompt.size + unscaled_tokens(user(block)),
    )
