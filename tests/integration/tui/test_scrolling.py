"""Which part of a long session the screen shows, and where keys move."""

from __future__ import annotations

from pathlib import Path

from perdure import user
from perdure.client.store import Store
from perdure.session.ids import StreamId
from tests.fakes.screens import chatting


async def long_session(store: Store, folder: Path) -> StreamId:
    """Return a session that fills several screens."""
    session = await store.create(cwd=str(folder))
    await session.append_many([user(f"message {n}") for n in range(40)])
    return session.id


async def test_end_is_followed_again_after_scrolling_to_it(store: Store, tmp_path: Path) -> None:
    session = await long_session(store, tmp_path)
    async with chatting(store, tmp_path, session=session) as seen:
        await seen.until(lambda: "message 39" in seen.screen)
        await seen.press("pageup")
        assert "message 39" not in seen.screen
        await seen.press("pagedown", "pagedown", "pagedown")
        seen.program.conversation.remark("a new line")
        await seen.until(lambda: "a new line" in seen.screen)


async def test_new_line_does_not_move_text_that_is_read(store: Store, tmp_path: Path) -> None:
    session = await long_session(store, tmp_path)
    async with chatting(store, tmp_path, session=session) as seen:
        await seen.until(lambda: "message 39" in seen.screen)
        await seen.press("pageup")
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
