"""The agent that a session's log names, and the agent's settings for every request."""

from __future__ import annotations

import msgspec
import pytest

from perdure.client.conversation.agent_binding import (
    ContextSettings,
    HistoryLimit,
    binding_in,
    context_settings_in,
)
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.notes import AgentBound, SessionStarted


def entry_of(seq: int, body: SessionStarted | AgentBound) -> Entry:
    return Entry(
        StreamId("s"),
        seq,
        "side",
        None,
        None,
        1,
        body.kind,
        body.version,
        msgspec.json.encode(body),
    )


def test_newest_agent_binding_is_used() -> None:
    bound = AgentBound({"id": "b"})
    notes = [
        entry_of(1, SessionStarted({"id": "a"})),
        entry_of(2, bound),
        entry_of(3, SessionStarted()),
    ]
    assert binding_in(notes) == bound
    assert binding_in([entry_of(1, SessionStarted())]) is None


@pytest.mark.parametrize(
    ("agent", "shaping"),
    [
        ({"id": "a"}, ContextSettings()),
        (
            {"history": "text_only", "compaction": {"trigger": 0.8, "max_messages": 3}},
            ContextSettings("text_only", HistoryLimit(3)),
        ),
        ({"history": "of another version"}, ContextSettings()),
    ],
)
def test_context_settings_are_read_from_snapshot(
    agent: dict[str, object], shaping: ContextSettings
) -> None:
    assert context_settings_in([entry_of(1, SessionStarted(agent))]) == shaping
    assert context_settings_in([]) == ContextSettings()
