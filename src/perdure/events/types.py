"""What an observer is told.

A durable `Event` is a projection of one log entry: same log, same events, for ever. A `LiveEvent`
belongs to a call that is open right now (`of`: the seq of its ``model_called`` or
``tool_started``) and is not kept; when it is missed, the `Snapshot` on reconnection, and in the end
the durable event, say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from perdure.session.ids import StreamId
from perdure.session.messages import Message


class Event(msgspec.Struct, frozen=True):
    """One durable event.

    Units: `at` is Unix milliseconds. Shape: `seq` is the entry's; `index` numbers the events of one
    entry from 0, and `has_more` says that another follows; `payload` is plain data whose names are
    listed in ``docs/log-format.md``.
    """

    stream: StreamId
    seq: int
    index: int
    type: str
    at: int
    payload: Mapping[str, object]
    has_more: bool = False


SNAPSHOT = "agent:snapshot"
"""Type of every `Snapshot`."""

LiveType = Literal["agent:token", "agent:reasoning", "agent:tool_progress"]


class LiveEvent(msgspec.Struct, frozen=True):
    """One live event of an open call. `n` counts from 1 per `of`; a jump: one was missed.

    `agent` and `model` are whose words they are.
    """

    stream: StreamId
    of: int
    n: int
    type: LiveType
    at: int
    text: str
    agent: str | None = None
    model: str | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """What an open call has produced so far; live events after it go on from `n`.

    Units: `at` is the Unix milliseconds of the newest event in it.
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
