"""The interface to telemetry, when no telemetry is used."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from perdure.client.agents import runtime_services
from perdure.engine.turns.observer import SILENCE
from tests.fakes.chats import Stage, calls, says
from tests.fakes.telemetry import always


async def look() -> str:
    """Look."""
    return "seen"


async def test_turn_without_telemetry_calls_few_observer_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime_services, "chosen_observer", always(SILENCE))
    chat = await Stage(says(calls("look")), says("done")).chat([look])
    counted: Counter[str] = Counter()

    def count(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.endswith("turns/observer.py"):
            counted[frame.f_code.co_name] += 1

    turn = chat.send("go")
    sys.setprofile(count)
    try:
        await turn
    finally:
        sys.setprofile(None)
    # Two model calls and a tool run: each has a begin and an end, and so has the turn.
    assert counted == {"turn": 1, "effect": 3, "_ignore": 4}
