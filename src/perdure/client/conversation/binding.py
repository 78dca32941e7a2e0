"""The agent a session is bound to, as its log keeps it, and what of it shapes every request.

What an agent is able to do with that, `client.agents` knows; nothing here runs it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.context.build import History
from perdure.context.emission import readable_body
from perdure.session.codec import body_of, role_of
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow
from perdure.session.kinds import ModelChange
from perdure.session.messages import Message
from perdure.session.notes import AgentBound, SessionStarted

Binding = SessionStarted | AgentBound
"""What binds an agent to a session."""

BINDING_KINDS = (SessionStarted.kind, AgentBound.kind)
"""Kinds of the entries that say which agent a session has."""


class Trimming(msgspec.Struct, frozen=True):
    """How many messages an agent is sent at most; None is no limit."""

    max_messages: int | None = None


class Shaping(msgspec.Struct, frozen=True):
    """What of an agent's snapshot decides what it is sent, whatever the messages say."""

    history: History = "full"
    compaction: Trimming = Trimming()
    model: str | None = None
    thinking_level: str | None = None


def binding_in(notes: Sequence[Entry]) -> Binding | None:
    """What the newest of `notes` bound; of a fork its own counts before its origin's."""
    for note in reversed(notes):
        body = body_of(note)
        if isinstance(body, SessionStarted | AgentBound) and body.agent is not None:
            return body
    return None


def model_in(window: ContextWindow, notes: Sequence[Entry]) -> str | None:
    """The model of the branch: the one it was switched to, its agent's, or that of its last answer.

    `notes` hold the session's bindings.
    """
    switched = window.state.model_change
    body = None if switched is None else readable_body(switched)
    if isinstance(body, ModelChange):
        return body.model
    return shaping_in(notes).model or _answered_by(window)


def _answered_by(window: ContextWindow) -> str | None:
    """The model of the last answer in `window`."""
    for entry in reversed(window.entries):
        body = readable_body(entry) if role_of(entry) == "assistant" else None
        if isinstance(body, Message) and body.model:
            return body.model
    return None


def shaping_in(notes: Sequence[Entry]) -> Shaping:
    """What the agent bound in `notes` is sent; everything where none is, or nobody can read it."""
    bound = binding_in(notes)
    try:
        return msgspec.convert(bound.agent if bound is not None else {}, Shaping)
    except msgspec.ValidationError:
        return Shaping()
