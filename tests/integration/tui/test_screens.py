"""The tree navigator and the session picker."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.color import Color
from textual.widgets import Static

from perdure import assistant, user
from perdure.apps.tui.lines_screen import LinesScreen
from perdure.apps.tui.session_screen import SessionScreen
from perdure.apps.tui.tree_lines import TreeLines
from perdure.apps.tui.tree_screen import TreeScreen
from perdure.client.session import Session
from perdure.client.store import Store
from tests.fakes.screens import Seen, chatting


async def trip(store: Store, folder: Path) -> Session:
    """A session with two branches after its first question."""
    session = await store.create(title="The trip", cwd=str(folder))
    first = await session.append(user("Where to?"))
    answers = [assistant(f"Answer {n}") for n in range(6)]
    await session.append(assistant("To the sea."), *answers)
    await session.append(user("And by train?"), assistant("Eight hours."))
    await session.branch(first.id)
    await session.append(assistant("To the [b]hills[/b]\x1b[2J."), user("How high?"))
    return session


async def opened_tree(seen: Seen) -> TreeScreen:
    await seen.type("/tree")
    await seen.until(lambda: isinstance(seen.program.screen, TreeScreen))
    screen = seen.program.screen
    assert isinstance(screen, TreeScreen)
    await seen.until(lambda: screen.lines.line is not None)
    return screen


async def test_tree_navigator_can_move_fold_search_and_label(store: Store, tmp_path: Path) -> None:
    session = await trip(store, tmp_path)
    async with chatting(store, tmp_path, session=session.id) as seen:
        screen = await opened_tree(seen)
        await seen.shows("How high?", "◀ here", "6 more", "To the [b]hills[/b]\ufffd[2J.")
        assert screen.lines.entry is not None
        await seen.press("slash", *"train", "enter")
        await seen.until(lambda: (entry := screen.lines.entry) is not None and entry.seq == 8)
        await seen.press("left")
        await seen.shows("8 more")
        await seen.press("right")
        await seen.until(lambda: "8 more" not in seen.screen)
        await seen.press("slash", *"train", "enter")
        await seen.until(lambda: (entry := screen.lines.entry) is not None and entry.seq == 8)
        await seen.press("l", *"by rail", "enter")
        await seen.shows("[by rail]")
        assert list((await session.labels()).values()) == ["by rail"]
        await seen.press("escape")
        await seen.until(lambda: not isinstance(seen.program.screen, TreeScreen))


@pytest.mark.all_only
async def test_tree_search_shows_the_number_of_the_current_match(
    store: Store, tmp_path: Path
) -> None:
    session = await trip(store, tmp_path)
    async with chatting(store, tmp_path, session=session.id) as seen:
        screen = await opened_tree(seen)

        def title() -> str:
            return str(screen.query_one("#tree-title", Static).content)

        await seen.press("n")
        await seen.shows("nothing was searched yet; / searches")
        await seen.press("slash", *"Answer", "enter")
        await seen.until(lambda: title() == "“Answer”: match 1 of 6; n next, N previous")
        await seen.press("n", "n", "N")
        await seen.until(lambda: "match 2 of 6" in title())
        assert screen.lines.entry is not None
        assert screen.lines.entry.seq == 3
        await seen.press("slash", *"nowhere", "enter")
        await seen.shows("nothing found")
        assert title().endswith(f" entries of {session.id}")


async def test_tree_navigator_can_branch_and_edit_an_earlier_message(
    store: Store, tmp_path: Path
) -> None:
    session = await trip(store, tmp_path)
    async with chatting(store, tmp_path, session=session.id) as seen:
        screen = await opened_tree(seen)
        await seen.press("slash", *"train", "enter")
        await seen.until(lambda: (entry := screen.lines.entry) is not None and entry.seq == 8)
        await seen.press("enter")
        await seen.shows("going on from", "And by train?")
        chat = seen.program.conversation.chat
        assert chat is not None
        assert chat.session.leaf == f"{session.id}/8"
        screen = await opened_tree(seen)
        await seen.press("e")
        await seen.until(lambda: seen.program.input.composer.text == "And by train?")
        assert chat.session.leaf == f"{session.id}/7"


@pytest.mark.all_only
async def test_tree_navigator_can_compare_and_fork(store: Store, tmp_path: Path) -> None:
    session = await trip(store, tmp_path)
    async with chatting(store, tmp_path, session=session.id) as seen:
        await opened_tree(seen)
        await seen.press("c", "down", "up")
        await seen.until(lambda: "is marked: now press c" in seen.screen)
        await seen.press("slash", *"train", "enter", "c")
        await seen.until(lambda: isinstance(seen.program.screen, LinesScreen))
        await seen.shows("They share 1 entry and part after", "To the sea.")
        await seen.press("escape", "f")
        await seen.shows("a fork of")
    assert len(await store.recent()) == 2


async def test_preview_of_long_messages_ends_with_the_newest_message(
    store: Store, tmp_path: Path
) -> None:
    session = await store.create(title="Long", cwd=str(tmp_path))
    for n in range(6):
        await session.append(user(f"Message {n}: " + "many words " * 60))
    async with chatting(store, tmp_path, size=(100, 40)) as seen:
        await seen.type("/resume")
        await seen.until(lambda: isinstance(seen.program.screen, SessionScreen))
        await seen.shows("user: Message 0: many", "user: Message 5: many")
        await seen.press("escape")


async def test_session_picker_can_search_preview_and_continue_a_session(
    store: Store, tmp_path: Path
) -> None:
    await trip(store, tmp_path)
    for n, name in enumerate(("Bread", "Cake", "Soup")):
        other = await store.create(title=name, cwd="/elsewhere")
        await other.append(user(f"Step {n}"), assistant("[red]Boil[/red] it."))
    async with chatting(store, tmp_path, size=(100, 40)) as seen:
        await seen.type("/resume")
        await seen.until(lambda: isinstance(seen.program.screen, SessionScreen))
        await seen.shows("The trip", "user: How high?")
        assert "Cake" not in seen.screen
        await seen.press(*"soup")
        await seen.shows("nothing matches in this folder; Tab lists 1 session of other folders")
        await seen.press(*["backspace"] * 4)
        await seen.shows("The trip")
        await seen.press(*"zebra")
        await seen.shows("nothing matches in this folder or in other folders")
        for key in ("↑↓ Move", "⏎ Continue it"):
            assert key in seen.screen
        await seen.press(*["backspace"] * 5)
        await seen.press("tab")
        await seen.shows("Bread", "Cake", "Soup")
        await seen.press(*"cake")
        await seen.until(lambda: "Soup" not in seen.screen)
        await seen.shows("assistant: [red]Boil[/red] it.")
        await seen.press("enter")
        await seen.shows("Step 1", "going on in")


@pytest.mark.all_only
@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
async def test_selected_line_of_the_tree_is_readable(
    store: Store, tmp_path: Path, theme: str
) -> None:
    session = await store.create(cwd=str(tmp_path))
    await session.append(user("How high?"))
    async with chatting(store, tmp_path, session=session.id) as seen:
        seen.program.theme = theme
        await seen.type("/tree")
        await seen.until(lambda: "here" in seen.screen)
        lines = seen.program.screen.query_one(TreeLines)
        await seen.until(lambda: lines.has_focus)
        await seen.pause()
        row = lines.render_line(lines.highlighted or 0)
        grounds = {part.style.bgcolor for part in row if part.style is not None}
        (ground,) = [Color.from_rich_color(each) for each in grounds]
        # The names and the mark "here" have the colours of the terminal, made for its background.
        assert ground.brightness < 0.3 if theme == "textual-dark" else ground.brightness > 0.5
