"""Which part of a long session the screen shows, and where keys move."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events
from textual.screen import ModalScreen
from textual.strip import Strip

from perdure import assistant, tool_call, tool_result, user
from perdure.apps.tui.blocks import CallBlock
from perdure.apps.tui.program import ChatProgram
from perdure.client.store import Store
from perdure.session.ids import StreamId
from tests.fakes.samples import sampled
from tests.fakes.screens import chatting


async def long_session(store: Store, folder: Path) -> StreamId:
    """Return a session that fills several screens."""
    session = await store.create(cwd=str(folder))
    await session.append_many([user(f"message {n}") for n in range(40)])
    return session.id


async def test_view_follows_new_lines_again_after_scrolling_to_the_end(
    store: Store, tmp_path: Path
) -> None:
    session = await long_session(store, tmp_path)
    async with chatting(store, tmp_path, session=session) as seen:
        await seen.until(lambda: "message 39" in seen.screen)
        await seen.press("pageup")
        await seen.until(lambda: "message 39" not in seen.screen)
        await seen.press("pagedown", "pagedown", "pagedown")
        seen.program.conversation.remark("a new line")
        await seen.until(lambda: "a new line" in seen.screen)


async def test_new_line_does_not_move_the_view_after_scrolling_up(
    store: Store, tmp_path: Path
) -> None:
    session = await long_session(store, tmp_path)
    async with chatting(store, tmp_path, session=session) as seen:
        await seen.until(lambda: "message 39" in seen.screen)
        await seen.press("pageup")
        await seen.until(lambda: "message 39" not in seen.screen)
        seen.program.conversation.remark("a new line")
        await seen.until(lambda: "a new line" in seen.transcript)
        assert "a new line" not in seen.screen


async def test_sent_message_and_its_answer_are_visible_after_scrolling_up(
    store: Store, tmp_path: Path
) -> None:
    session = await long_session(store, tmp_path)
    async with chatting(store, tmp_path, session=session) as seen:
        await seen.until(lambda: "message 39" in seen.screen)
        await seen.press("pageup", "pageup")
        await seen.type("what is new?")
        await seen.until(lambda: "you wrote “what is new?" in seen.screen)


CALLS = [
    assistant(
        tool_call("c1", "read_file", {"path": "a.py"}),
        tool_call("c2", "read_file", {"path": "b.py"}),
    ),
    tool_result("c1", "first\n" * 30),
    tool_result("c2", "\n".join(f"line {n}" for n in range(30))),
    assistant("Both are read."),
]


async def test_first_line_of_a_focused_call_is_marked(store: Store, tmp_path: Path) -> None:
    session = await store.create(cwd=str(tmp_path))
    await session.append_many([user("Read them"), *CALLS])
    async with chatting(store, tmp_path, session=session.id) as seen:
        await seen.shows("Both are read.")
        seen.program.transcript.query(CallBlock).last().focus()
        await seen.press("enter")
        await seen.until(lambda: "▾ read_file b.py" in seen.screen)
        assert "Tools" in seen.screen  # every key is still listed
        block = seen.program.transcript.query(CallBlock).last()
        marked = [line for line in (block.render_line(y) for y in range(5)) if is_reversed(line)]
        assert [line.text.split()[:3] for line in marked] == [["▾", "read_file", "b.py"]]


def is_reversed(line: Strip) -> bool:
    """Whether a part of `line` has swapped colours."""
    return any(part.style is not None and part.style.reverse for part in line)


async def test_tab_moves_to_the_newest_call_and_typing_returns_to_the_text(
    store: Store, tmp_path: Path
) -> None:
    session = await store.create(cwd=str(tmp_path))
    await session.append_many([user("Read them"), *CALLS])
    async with chatting(store, tmp_path, session=session.id) as seen:
        await seen.shows("Both are read.")
        composer = seen.program.input.composer
        await seen.until(lambda: composer.has_focus)
        newest, earlier = list(seen.program.transcript.query(CallBlock))[::-1]
        await seen.press("tab")
        await seen.until(lambda: newest.has_focus)
        await seen.press("shift+tab")
        await seen.until(lambda: earlier.has_focus)
        await seen.until(lambda: is_reversed(earlier.render_line(0)))
        seen.program.post_message(events.Paste("pasted, "))
        for key in ("t", "o", "space", "d", "o"):  # without pause
            seen.program.post_message(events.Key(key, " " if key == "space" else key))
        await seen.until(lambda: composer.text == "pasted, to do")
        assert composer.has_focus
        await seen.until(lambda: not is_reversed(earlier.render_line(0)))


async def test_tab_key_in_a_chat_without_calls_does_not_move_the_focus(
    store: Store, tmp_path: Path
) -> None:
    async with chatting(store, tmp_path) as seen:
        composer = seen.program.input.composer
        await seen.until(lambda: composer.has_focus)
        await seen.press("tab", "a")
        await seen.until(lambda: composer.text == "a")


async def test_long_transcript_uses_the_rows_below_the_prompt(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChatProgram, "is_inline", property(lambda _: True))
    async with chatting(store, tmp_path) as seen:
        transcript = seen.program.transcript
        await seen.shows("A new session")
        assert transcript.size.height < 3
        await seen.type("hello")
        await seen.shows("> hello", "you wrote “hello”")
        for n in range(40):
            seen.program.conversation.remark(f"line {n}")
        await seen.until(lambda: transcript.size.height > 18)
        await seen.until(lambda: "line 39" in seen.screen and "line 25" in seen.screen)


@sampled("command", ["/resume", "/help", "/tree"], kind=type, each=1)
async def test_help_resume_and_tree_screens_use_all_rows(
    command: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChatProgram, "is_inline", property(lambda _: True))
    async with chatting(store, tmp_path) as seen:
        await seen.type("hello")
        await seen.shows("you wrote “hello”")
        await seen.type(command)
        await seen.until(lambda: isinstance(seen.program.screen, ModalScreen))

        def has_all_rows() -> bool:
            """Whether textual reserves all rows below the prompt for the screen."""
            size = seen.program.size
            rows = seen.program.screen._get_inline_height(size)  # pyright: ignore[reportPrivateUsage] - there is no other way to ask
            return rows == size.height

        await seen.until(has_all_rows)
        await seen.until(lambda: "esc Close" in seen.screen)
