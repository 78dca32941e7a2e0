"""The messages of the WebSocket: every message type of A-Society, and no others."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from perdure.apps.server.flows import socket_messages as messages

WHERE = {"workspace": "/project", "workflow": "w.yaml", "recordFolder": "record"}
WHOLE: dict[str, dict[str, object]] = {
    "open_flow": {"flowId": "f"},
    "resume_flow": {"flowId": "f"},
    "start_initialized_flow": {"flow": WHERE},
    "start_takeover_initialization": {"flow": WHERE},
    "start_greenfield_initialization": {"flow": WHERE},
    "start_update_flow": {"flow": {**WHERE, "fromVersion": "1", "toVersion": "2"}},
    "stop_active_turn": {"target": "write"},
    "compact_context": {"role": "developer", "focus": "the plan"},
    "human_input": {"text": "yes", "to": "owner"},
    "handoff_approval": {"decision": "decline", "node": "write", "note": "too long"},
    "improvement_human_input": {"role": "owner", "text": "go on"},
    "improvement_choice": {"mode": "none"},
    "feedback_consent_choice": {"isGranted": True},
    "consent_response": {"question": "f__owner/7", "answer": "allow"},
    "consent_mode": {"mode": "full-access"},
    "role_configuration": {"role": "owner", "model": "a:b", "skills": [], "tools": ["read_file"]},
}


@pytest.mark.parametrize("type_", WHOLE)
def test_message_of_every_type_is_read(type_: str) -> None:
    given = {"type": type_, "id": "m1", **WHOLE[type_]}
    message = messages.read(msgspec.json.encode(given).decode())
    assert _within(given, msgspec.to_builtins(message))


def _within(given: Any, read: Any) -> bool:
    if not (isinstance(given, dict) and isinstance(read, dict)):
        return given == read
    fields, others = cast("dict[str, Any]", given), cast("dict[str, Any]", read)
    return all(_within(value, others.get(name)) for name, value in fields.items())


def test_invalid_message_is_rejected() -> None:
    wrong: list[object] = [
        [],
        "open_flow",
        {"flowId": "f"},
        {"type": "open_flow"},
        {"type": "open_flow", "flowId": 1},
        {"type": "open_flow", "flowId": "f", "more": 1},
        {"type": "handoff_approval", "decision": "perhaps"},
        {"type": "human_input", "text": "x" * 1_000_001},
    ]
    for each in wrong:
        with pytest.raises(msgspec.DecodeError):
            messages.read(msgspec.json.encode(each).decode())


def test_message_sent_over_the_socket_contains_its_type() -> None:
    assert msgspec.json.decode(messages.written(messages.RequestSent(role="owner"))) == {
        "type": "request_sent",
        "role": "owner",
    }
