"""What is typed as a turn ends is stored."""

from __future__ import annotations

import asyncio
import os

import pytest

import perdure
from perdure.apps.chat.conversation import Conversation
from perdure.apps.chat.line_chat import LineChat
from perdure.apps.chat.session import AnswerOptions
from perdure.apps.terminal.event_lines import QuietTeller
from perdure.apps.terminal.line_input import TypedLines
from tests.concurrency.test_message_order import said_in


@pytest.mark.parametrize("steps", range(4))
async def test_text_steered_when_its_turn_ends_is_stored(steps: int) -> None:
    """The task that passes the text on is cancelled at each of its first steps."""
    reading, writing = os.pipe()
    async with perdure.open("memory:") as store:
        answering = AnswerOptions(store, model="scripted:echo", scenario=None)
        display = LineChat(answering, TypedLines(reading), QuietTeller(), None)
        conversation = Conversation(answering, display, None)
        async with answering.runtime:
            await conversation.obey("first")
            assert conversation.chat is not None
            passing = asyncio.create_task(conversation.steer("second"))
            for _ in range(steps + 1):
                await asyncio.sleep(0)
            passing.cancel()
            await asyncio.wait((passing,))
            entries = [entry async for entry in conversation.chat.session.entries()]
    os.close(reading)
    os.close(writing)
    assert said_in(entries) == ["first", "second"]
