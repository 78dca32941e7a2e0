"""Entries are printed in full as text."""

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


async def test_heading_of_a_tool_result_contains_the_tool_name() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(title="Trip")
        call = ToolCallPart("c1", "look", {"path": "a"})
        await session.append(Message("assistant", (call,)), perdure.tool_result("c1", "seen"))
        path = await session.path()
        whole = list(transcript_lines(path, session.id, Style()))
        alone = list(transcript_lines(path[1:], session.id, Style(), path[:1]))
        unknown = list(transcript_lines(path[1:], session.id, Style()))
    assert whole[-2:] == alone[-2:] == ["← result of look  c1", "seen"]
    assert unknown[-2:] == ["← result of c1", "seen"]
