"""What of a conversation is sent: all of it, or what fits a budget."""

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
from perdure.context.tool_pairs import CallIds
from perdure.context.validity import alternating, merge_neighbours, with_valid_ends
from perdure.session.messages import Message

_MARGIN = 1 + 1e-9
"""What is left of a budget where estimates are added up in another order."""


class Prompt(msgspec.Struct, frozen=True):
    """The messages of a request.

    Shape: `messages` and `tokens` are as those of a `Context`; `dropped` counts the entries of the
    messages that were left out. `call_ids` holds the ids of all calls in them, `handles` are those
    of all media. `is_counted`: some of `tokens` was reported by a provider, who counted what is
    around the messages too.
    Units: `size` is what the messages take, in tokens, unscaled.
    """

    messages: Sequence[Message]
    tokens: int
    dropped: int
    size: float
    call_ids: Container[str]
    handles: frozenset[str]
    is_counted: bool


class _Room(msgspec.Struct, frozen=True):
    """What messages may take, and how many there may be."""

    tokens: float
    messages: int | None


def prompt_of(
    conversation: Conversation,
    *,
    budget_tokens: int | None = None,
    scale: float = 1.0,
    max_messages: int | None = None,
) -> Prompt:
    """What of `conversation` is sent; costs little more than what is still open of it.

    Where it does not fit it is trimmed, as by `build_context`; with `max_messages` also where it is
    of more messages, the summary and what is pinned not counted.
    Units: `budget_tokens` tokens, as `scale` estimates them.
    """
    settled, tail, sizes = conversation.settled, conversation.tail.messages, conversation.sizes
    at, reported = newest_reported(tail)
    tokens = _tokens(settled, sizes, at, reported, scale)
    size = settled.size + sum(sizes)
    # Each message's estimate is rounded up.
    most = max(size * scale + len(settled.sizes) + len(sizes), tokens) * _MARGIN
    is_counted = bool(reported or settled.reported)
    if _is_long(conversation, max_messages) or (budget_tokens is not None and most > budget_tokens):
        budget = math.inf if budget_tokens is None else budget_tokens
        room = _Room(budget, max_messages)
        return _trimmed_prompt(conversation, settled.sizes.whole(sizes), tokens, room, scale)
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
    """The newest reported usage, and estimates for what stands behind it."""
    if at >= 0:
        return reported + scaled_sum(sizes[at + 1 :], scale)
    unreported = settled.sizes.after(settled.reported_at)
    return settled.reported + scaled_sum(unreported, scale) + scaled_sum(sizes, scale)


def _trimmed_prompt(
    conversation: Conversation,
    sizes: Sequence[float],
    tokens: int,
    room: _Room,
    scale: float,
) -> Prompt:
    messages = conversation.settled.paired.whole(conversation.tail.messages)
    estimates = [math.ceil(size * scale) for size in sizes]
    first = leading(messages, conversation.pinned, has_summary=conversation.has_summary)
    trim = trim_history(
        messages,
        estimates,
        tokens,
        room.tokens,
        pinned=first,
        pins=conversation.pins,
        max_messages=room.messages,
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
    return CallIds(conversation.settled.calls.sent, conversation.tail.calls.sent)
