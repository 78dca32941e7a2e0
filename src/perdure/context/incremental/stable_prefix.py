"""The part of a conversation that nothing which follows can change, in the form requests take.

What is appended to a branch may still change the messages at its end: a result completes the round
it belongs to, a second attempt replaces a failed one, neighbours of one role become one message.
What stands before that is settled here, and never looked at again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from perdure.context.emission import ContextMessage
from perdure.context.incremental.layers import Layers
from perdure.context.tokens import reported_tokens, unscaled_tokens
from perdure.context.tool_pairs import Calls, Paired
from perdure.context.validity import merge_neighbours
from perdure.session.messages import MediaPart, Message, ToolResultPart


class Settled(msgspec.Struct, frozen=True):
    """The messages that are settled.

    Shape: `said` are they as ``emitted``, `paired` as ``repaired`` has them, with `sizes` in
    tokens, unscaled, in the same order and `size` their sum; `messages` are they as ``joined``, but
    for `last`, which what follows may be joined to. `reported_at` is the place in `paired` of the
    newest usage a provider reported, -1 without one, `reported` that usage in tokens. `handles` are
    those of all media.
    """

    said: Layers[ContextMessage] = Layers()
    calls: Calls = Calls()
    paired: Layers[ContextMessage] = Layers()
    sizes: Layers[float] = Layers()
    size: float = 0.0
    messages: Layers[Message] = Layers()
    last: ContextMessage | None = None
    reported_at: int = -1
    reported: int = 0
    handles: frozenset[str] = frozenset()

    def with_more(
        self,
        said: tuple[ContextMessage, ...],
        paired: Paired,
        sizes: tuple[float, ...] | None = None,
    ) -> Settled:
        """These, and `said` after them, which are `paired` when they stand there.

        `sizes` are those of the messages that are `paired`, where they are known.
        """
        sizes = sizes_of(paired.messages) if sizes is None else sizes
        together = merge_neighbours(self.before(paired.messages))
        at, reported = newest_reported(paired.messages)
        handles = handles_in(each.message for each in paired.messages)
        return Settled(
            said=self.said.and_then(said),
            calls=self.calls.and_then(paired.calls),
            paired=self.paired.and_then(paired.messages),
            sizes=self.sizes.and_then(sizes),
            size=self.size + sum(sizes),
            messages=self.messages.and_then(tuple(each.message for each in together[:-1])),
            last=together[-1] if together else None,
            reported_at=self.reported_at if at < 0 else len(self.paired) + at,
            reported=self.reported if at < 0 else reported,
            handles=handles | self.handles if handles else self.handles,
        )

    def before(self, messages: Sequence[ContextMessage]) -> Sequence[ContextMessage]:
        """`messages` behind the settled one they may be joined to."""
        return messages if self.last is None else (self.last, *messages)


def sizes_of(messages: Sequence[ContextMessage]) -> tuple[float, ...]:
    """What each of `messages` takes. Units: tokens, unscaled."""
    return tuple(unscaled_tokens(each.message) for each in messages)


def scaled_sum(sizes: Iterable[float], scale: float) -> int:
    """The estimates of messages of these `sizes`, added up."""
    return sum(math.ceil(size * scale) for size in sizes)


def newest_reported(messages: Sequence[ContextMessage]) -> tuple[int, int]:
    """Place of the newest of `messages` with a reported usage, -1 without one, and that usage."""
    for at in range(len(messages) - 1, -1, -1):
        reported = reported_tokens(messages[at].message)
        if reported:
            return at, reported
    return -1, 0


def handles_in(messages: Iterable[Message]) -> frozenset[str]:
    """The handles of all media in `messages`."""
    found: set[str] = set()
    for message in messages:
        for part in message.parts:
            if isinstance(part, MediaPart):
                found.add(part.handle)
            elif isinstance(part, ToolResultPart) and part.media:
                found.update(media.handle for media in part.media)
    return frozenset(found)
