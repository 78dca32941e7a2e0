"""Whole entries as text."""

from __future__ import annotations

import perdure
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.transcript import transcript_lines
from perdure.session.messages import Message, TextPart, ThinkingPart, ToolCallPart


async def test_entries_are_printed_in_full_with_number_and_author() -> None:
    long = "word " * 500
    async with perdure.open("memory:") as store:
        session = await store.create(title="Trip")
        said = Message("user", (TextPart(long),), author="Ann")
        parts = (ThinkingPart("hm"), TextPart("Yes."), ToolCallPart("c1", "look", {"path": "a"}))
        await session.append(said, Message("assistant", parts, model="scripted:echo"))
        lines = list(transcript_lines(await session.path(), session.id, Style()))
    assert lines[0].startswith("0 user  ")
    assert lines[0].endswith("  Ann")
    assert lines[1:3] == [long, ""]
    assert lines[3].endswith("  scripted:echo")
    assert lines[4:] == ["hm", "Yes.", '→ look {"path": "a"}  c1']


async def test_transcript_shows_control_characters_visibly() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(title="Trip")
        await session.append(perdure.user("a\x1b[2Jb"))
        lines = list(transcript_lines(await session.path(), session.id, Style()))
    assert "\x1b" not in "".join(lines)
