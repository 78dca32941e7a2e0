"""The agent a session is bound to, as its log keeps it, and what of it shapes every request.

What an agent is able to do with that, `client.agents` knows; nothing here runs it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.context.build import History
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.notes import AgentBound, SessionStarted

Binding = SessionStarted | AgentBound
"""What binds an agent to a session."""

BINDING_KINDS = (SessionStarted.kind, AgentBound.kind)
"""Kinds of the entries that say which agent a session has."""


class Trimming(msgspec.Struct, frozen=True):
    """How many messages an agent is sent at most; None is no limit."""

    max_messages: int | None = None


class Shaping(msgspec.Struct, frozen=True):
    """What of an agent's snapshot decides which messages it is sent, whatever they say."""

    history: History = "full"
    compaction: Trimming = Trimming()


def binding_in(notes: Sequence[Entry]) -> Binding | None:
    """What the newest of `notes` bound; of a fork its own counts before its origin's."""
    for note in reversed(notes):
        body = body_of(note)
        if isinstance(body, SessionStarted | AgentBound) and body.agent is not None:
            return body
    return None


def shaping_in(notes: Sequence[Entry]) -> Shaping:
    """What the agent bound in `notes` is sent; everything where none is, or nobody can read it."""
    bound = binding_in(notes)
    try:
        return msgspec.convert(bound.agent if bound is not None else {}, Shaping)
    except msgspec.ValidationError:
        return Shaping()
