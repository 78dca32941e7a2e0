"""Choose the messages of a conversation to send: all, or as many as fit a budget."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

import msgspec

from perdure.context.build import leading, trim_history
from perdure.context.emission import ContextMessage
from perdure.context.incremental.conversation import Conversation
from perdure.context.incremental.stable_prefix import (
    Settled,
    handles_in,
    newest_reported,
    scaled_sum,
    sizes_of,
)
from perdure.context.tool_pairs import Ids
from perdure.context.validity import alternating, merge_neighbours, with_valid_ends
from perdure.session.messages import Message

_MARGIN = 1 + 1e-9
"""Tolerance for rounding errors when estimates are added up in another order."""


class Prompt(msgspec.Struct, frozen=True):
    """The messages of a request.

    Shape: for `messages` and `tokens`, see `Context`; `dropped` counts the entries of the omitted
    messages. `call_ids` contains the ids of all tool calls in the messages; `handles` contains the
    handles of all media. `is_counted` is True if `tokens` includes usage that a provider reported
    for the whole request.
    Units: `size` is the messages' size in tokens, unscaled.
    """

    messages: Sequence[Message]
    tokens: int
    dropped: int
    size: float
    call_ids: Container[str]
    handles: frozenset[str]
    is_counted: bool


def prompt_of(
    conversation: Conversation,
    *,
    budget_tokens: int | None = None,
    scale: float = 1.0,
    max_messages: int | None = None,
) -> Prompt:
    """Return the part of `conversation` to send; the cost depends mostly on its open messages.

    If the conversation exceeds the budget or `max_messages`, it is trimmed by the rules of
    `build_context`. `max_messages` does not count the summary and pinned messages.
    Units: `budget_tokens` is in tokens, as estimated with `scale`.
    """
    settled, tail, sizes = conversation.settled, conversation.tail.messages, conversation.sizes
    at, reported = newest_reported(tail)
    tokens = _tokens(settled, sizes, at, reported, scale)
    size = settled.size + sum(sizes)
    # Each message's estimate is rounded up, by less than one token.
    most = max(size * scale + len(settled.sizes) + len(sizes), tokens) * _MARGIN
    is_counted = bool(reported or settled.reported)
    if _is_long(conversation, max_messages) or (budget_tokens is not None and most > budget_tokens):
        budget = math.inf if budget_tokens is None else budget_tokens
        whole = settled.sizes.whole(sizes)
        return _trimmed_prompt(
            conversation, whole, tokens, budget, scale, max_messages=max_messages
        )
    together = merge_neighbours(settled.before(tail))
    return Prompt(
        messages=with_valid_ends(settled.messages.concat(tuple(each.message for each in together))),
        tokens=tokens,
        dropped=0,
        size=size,
        call_ids=_ids(conversation),
        handles=settled.handles | handles_in(each.message for each in tail),
        is_counted=is_counted,
    )


def _is_long(conversation: Conversation, max_messages: int | None) -> bool:
    settled, tail = conversation.settled.paired, conversation.tail.messages
    if max_messages is None or len(settled) + len(tail) <= max_messages:
        return False
    both = settled.whole(tail)
    first = leading(both, conversation.pinned, has_summary=conversation.has_summary)
    return len(both) - first > max_messages


def _tokens(settled: Settled, sizes: Sequence[float], at: int, reported: int, scale: float) -> int:
    """Return the newest reported usage, plus estimates for the messages after it."""
    if at >= 0:
        return reported + scaled_sum(sizes[at + 1 :], scale)
    unreported = settled.sizes.after(settled.reported_at)
    return settled.reported + scaled_sum(unreported, scale) + scaled_sum(sizes, scale)


def _trimmed_prompt(
    conversation: Conversation,
    sizes: Sequence[float],
    tokens: int,
    budget: float,
    scale: float,
    *,
    max_messages: int | None,
) -> Prompt:
    messages = conversation.settled.paired.whole(conversation.tail.messages)
    estimates = [math.ceil(size * scale) for size in sizes]
    first = leading(messages, conversation.pinned, has_summary=conversation.has_summary)
    trim = trim_history(
        messages,
        estimates,
        tokens,
        budget,
        pinned=first,
        pins=conversation.pins,
        max_messages=max_messages,
    )
    kept: tuple[ContextMessage, ...] = alternating(trim.messages)
    return Prompt(
        messages=tuple(each.message for each in kept),
        tokens=trim.tokens,
        dropped=trim.dropped,
        size=sum(sizes_of(kept)),
        call_ids=_ids(conversation),
        handles=handles_in(each.message for each in kept),
        is_counted=True,
    )


def _ids(conversation: Conversation) -> Container[str]:
    settled, tail = conversation.settled.calls.sent, conversation.tail.calls.sent
    return Ids((*tail.layers, *settled.layers))  # only for `in`: larger layers may come later
