"""Store the part of a conversation that later messages cannot change, in the form of a request.

A new entry can still change the messages at the end of a branch. For example, a tool result is
paired with its call, a retry replaces a failed answer, and adjacent messages of one role are
merged. This module stores the settled messages, which no later message can change, and never
processes them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec

from perdure.context.emission import ContextMessage
from perdure.context.tokens import reported_tokens, unscaled_tokens
from perdure.context.tool_pairs import Calls, Paired
from perdure.context.validity import merge_neighbours
from perdure.session.messages import MediaPart, Message, ToolResultPart
from perdure.session.sequences import Joined

T = TypeVar("T")

MOST_COPIED = 2_048
"""A sequence with fewer items is copied into one tuple when it is read as a whole."""


class Layers(msgspec.Struct, Generic[T], frozen=True):
    """An immutable sequence that is often extended, and rarely read from its start.

    Each layer is at least as long as the next layer. New items are merged with the shorter layers
    before them, so an item is copied one time whenever the length of the sequence doubles.
    """

    layers: tuple[tuple[T, ...], ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.layers))

    def __iter__(self) -> Iterator[T]:
        for layer in self.layers:
            yield from layer

    def and_then(self, more: tuple[T, ...]) -> Layers[T]:
        """Return the items of this sequence, followed by `more`."""
        layers = list(self.layers)
        while layers and len(layers[-1]) <= len(more):
            more = layers.pop() + more
        return Layers((*layers, more)) if more else self

    def whole(self, more: tuple[T, ...] = ()) -> tuple[T, ...]:
        """Return all items of this sequence, followed by `more`."""
        for layer in reversed(self.layers):
            more = layer + more
        return more

    def concat(self, more: tuple[T, ...] = ()) -> Sequence[T]:
        """Return all items, followed by `more`; long sequences are not copied."""
        if len(self) < MOST_COPIED:
            return self.whole(more)
        return Joined((*self.layers, more) if more else self.layers)

    def after(self, place: int) -> tuple[T, ...]:
        """Return the items after `place`; the cost depends only on the size of the result."""
        found: tuple[T, ...] = ()
        start = len(self)
        for layer in reversed(self.layers):
            start -= len(layer)
            if start <= place:
                return layer[place + 1 - start :] + found
            found = layer + found
        return found


class Settled(msgspec.Struct, frozen=True):
    """The messages that no later message can change.

    Shape: `said` are the messages as ``emit`` returns them; `paired` are the same messages as
    ``repair_pairs`` returns them. `sizes` are the unscaled tokens of `paired`, `size` is their sum.
    `messages` are in the form of ``merge_neighbours``, except `last`, which can be merged with
    later messages. `reported_at` is the index in `paired` of the newest usage that a provider
    reported; -1 without such usage. `reported` is the newest reported usage, in tokens. `handles`
    contains the handles of all media.
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
        """Return the settled messages, followed by `said`, whose paired form is `paired`.

        `sizes` are the sizes of the messages in `paired`, if they are known.
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
        """Return `messages`, preceded by the settled message with which they might be merged."""
        return messages if self.last is None else (self.last, *messages)


def sizes_of(messages: Sequence[ContextMessage]) -> tuple[float, ...]:
    """Return the size of each of `messages`. Units: tokens, unscaled."""
    return tuple(unscaled_tokens(each.message) for each in messages)


def scaled_sum(sizes: Iterable[float], scale: float) -> int:
    """Return the sum of `sizes`, each multiplied by `scale` and rounded up."""
    return sum(math.ceil(size * scale) for size in sizes)


def newest_reported(messages: Sequence[ContextMessage]) -> tuple[int, int]:
    """Return index and value of the newest usage reported in `messages`; index -1 if none."""
    for at in range(len(messages) - 1, -1, -1):
        reported = reported_tokens(messages[at].message)
        if reported:
            return at, reported
    return -1, 0


def handles_in(messages: Iterable[Message]) -> frozenset[str]:
    """Return the handles of all media in `messages`."""
    found: set[str] = set()
    for message in messages:
        for part in message.parts:
            if isinstance(part, MediaPart):
                found.add(part.handle)
            elif isinstance(part, ToolResultPart) and part.media:
                found.update(media.handle for media in part.media)
    return frozenset(found)
