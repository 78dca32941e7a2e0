"""The events that observers receive.

A durable `Event` is a projection of one log entry: the same log always gives the same events. A
`LiveEvent` belongs to an open call and is not stored. The field `LiveEvent.of` is the seq of the
``model_called`` or ``tool_started`` entry of the call. The `Snapshot` after a reconnection contains
the same information as the live events of its call. The durable event after a call also contains
the information of the call's live events.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal, cast

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.session.ids import StreamId
from perdure.session.messages import Message


class Event(ShortRepr, frozen=True):
    """One durable event.

    Units: `at` is Unix milliseconds. Shape: `seq` is the sequence number of the entry. `index`
    numbers the events of one entry from 0. `has_more` is True if another event of the same entry
    follows. `payload` is plain data; ``docs/events.md`` lists its fields.
    """

    stream: StreamId
    seq: int
    index: int
    type: str
    at: int
    payload: Mapping[str, object]
    has_more: bool = False


@cache
def class_of(type_: str) -> type[Event]:
    """Return the class of `perdure.event_types` for durable events with the type `type_`."""
    name = type_.replace(":", "_").title().replace("_", "")
    made = msgspec.defstruct(name, (), bases=(Event,), module="perdure.event_types", frozen=True)
    return cast("type[Event]", made)


SNAPSHOT = "agent:snapshot"
"""Type of every `Snapshot`."""

LiveType = Literal["agent:token", "agent:reasoning", "agent:tool_progress"]


class LiveEvent(ShortRepr, frozen=True):
    """One live event of an open call.

    `n` numbers the events of the call `of` from 1, and a gap means a missed event. `agent` is the
    agent, and `model` the model, that produced the event.
    """

    stream: StreamId
    of: int
    n: int
    type: LiveType
    at: int
    text: str
    agent: str | None = None
    model: str | None = None


class Snapshot(ShortRepr, frozen=True):
    """The output of an open call so far; the next live event of the call has the number `n` + 1.

    Units: `at` is the time of the call's newest event in Unix milliseconds.
    """

    stream: StreamId
    of: int
    n: int
    partial: Message
    at: int

    @property
    def type(self) -> str:
        """``agent:snapshot``."""
        return SNAPSHOT


AnyEvent = Event | LiveEvent | Snapshot
