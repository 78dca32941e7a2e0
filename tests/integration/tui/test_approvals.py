"""Approvals: the whole call is shown; keys answer, pasted text does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input

from perdure.apps.tui.approval import Approval
from perdure.apps.tui.program import ChatProgram
from perdure.client.store import Store
from perdure.session.notes import AgentBound
from perdure.tools.permissions import Permissions
from tests.fakes.screens import Seen, chatting

WRITES = """
rules:
  - when: {after_tool: edit_file, last_tool_result_is_error: true}
    text: You refused it.
  - when: {after_tool: edit_file}
    text: It is changed.
  - when: {after: user}
    calls: [{name: edit_file, args: {path: notes.txt, old_text: sea, new_text: "[red]land[/red]"}}]
"""
CREATES = """
rules:
  - when: {after_tool: write_file}
    text: It is there.
  - when: {after: user}
    calls: [{name: write_file, args: {path: notes.txt, content: "one line\\nanother\\n"}}]
"""
RUNS = """
rules:
  - when: {after_tool: run_command}
    text: It ran.
  - when: {after: user}
    calls: [{name: run_command, args: {command: "git status"}}]
"""


async def asked(seen: Seen) -> Approval:
    """Wait for a question that accepts answers."""
    await seen.until(lambda: bool(seen.program.screen.query(Approval)))
    panel = seen.program.screen.query_one(Approval)
    await seen.until(lambda: panel.has_focus)
    await seen.pilot.pause(0.5)
    return panel


async def answered(
    store: Store, folder: Path, act: Callable[[Seen], Awaitable[None]], told: str
) -> str:
    """Return the content of the file after the user answered and `told` was shown."""
    (folder / "notes.txt").write_text("the sea\n")
    async with chatting(store, folder, scenario=WRITES) as seen:
        await seen.type("change it")
        await asked(seen)
        await seen.shows(
            "May edit_file run?", "-the sea", "+the [red]land[/red]", "[y] allow once", "[n] deny"
        )
        assert (folder / "notes.txt").read_text() == "the sea\n"
        await seen.until(lambda: "waits for your answer" in seen.screen)
        await act(seen)
        await seen.shows(told)
        await seen.idle()
        await seen.until(lambda: "waits for" not in seen.screen)
    return (folder / "notes.txt").read_text()


async def test_key_y_allows_the_shown_call(store: Store, tmp_path: Path) -> None:
    async def act(seen: Seen) -> None:
        await seen.press("y")

    assert await answered(store, tmp_path, act, "It is changed.") == "the [red]land[/red]\n"


async def test_denial_with_a_note_reaches_the_model(store: Store, tmp_path: Path) -> None:
    async def act(seen: Seen) -> None:
        await seen.press("d", *"not now", "enter")

    assert await answered(store, tmp_path, act, "You refused it.") == "the sea\n"
    (info,) = await store.recent()
    messages = await (await store.open(info.id)).messages()
    assert any("not now" in str(part) for message in messages for part in message.parts)


@pytest.mark.all_only
async def test_edit_question_suggests_an_approval_mode_but_no_always_answer(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("the sea\n")
    async with chatting(store, tmp_path, scenario=WRITES) as seen:
        await seen.type("change it")
        panel = await asked(seen)
        await seen.shows("/approve accept-edits, after this turn, allows edits without a question")
        assert "[a]" not in seen.screen
        await seen.press("a")
        await seen.shows("always is not offered: edits, commits, the clipboard,", "[y] allow once")
        assert panel.is_attached
        await seen.press("n")
        await seen.shows("You refused it.")
        await seen.idle()
        await seen.type("/approve accept-edits")
        await seen.type("again")
        await seen.shows("It is changed.")


@pytest.mark.all_only
@pytest.mark.parametrize(
    ("is_inline", "size"),
    [(False, (40, 10)), (True, (40, 12)), (True, (40, 10)), (False, (60, 12))],
)
async def test_answer_keys_of_an_edit_are_visible_in_a_small_terminal(
    *,
    is_inline: bool,
    size: tuple[int, int],
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ChatProgram, "is_inline", property(lambda _: is_inline))
    name = f"{'long-' * 12}name.txt"
    (tmp_path / name).write_text("the sea\n")
    scenario = WRITES.replace("notes.txt", name)
    async with chatting(store, tmp_path, scenario=scenario, size=size) as seen:
        await seen.type("change it")
        await asked(seen)
        for key in ("a", "s"):
            assert "[y] allow once" in seen.screen
            assert "[n] deny" in seen.screen
            await seen.press(key)
            await seen.pause()
        assert "[y] allow once" in seen.screen
        await seen.press("n")
        await seen.idle()


@pytest.mark.all_only
async def test_edit_of_a_hidden_file_suggests_no_other_approval_mode(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / ".notes.txt").write_text("the sea\n")
    scenario = WRITES.replace("notes.txt", ".notes.txt")
    async with chatting(store, tmp_path, scenario=scenario) as seen:
        await seen.type("change it")
        await asked(seen)
        await seen.shows("+the [red]land")
        assert "accept-edits" not in seen.screen
        await seen.press("n")
        await seen.idle()


async def test_escape_in_a_note_returns_to_the_question(store: Store, tmp_path: Path) -> None:
    async def act(seen: Seen) -> None:
        await seen.press("d", *"not", "escape")
        panel = seen.program.screen.query_one(Approval)
        await seen.until(lambda: panel.has_focus)
        await seen.press("y")

    assert await answered(store, tmp_path, act, "It is changed.") == "the [red]land[/red]\n"


async def test_pasted_text_and_burst_of_keys_do_not_answer_a_question(
    store: Store, tmp_path: Path
) -> None:
    async def act(seen: Seen) -> None:
        panel = seen.program.screen.query_one(Approval)
        seen.program.post_message(events.Paste("y\n"))
        for key in ("y", "e", "s"):  # a terminal without bracketed paste
            seen.program.post_message(events.Key(key, key))
        await seen.pilot.pause(0.5)
        assert panel.is_attached
        await seen.press("n")

    assert await answered(store, tmp_path, act, "You refused it.") == "the sea\n"


async def test_key_typed_before_the_question_does_not_answer_it(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("the sea\n")
    async with chatting(store, tmp_path, scenario=WRITES) as seen:
        await seen.type("change it")
        await seen.until(lambda: bool(seen.program.screen.query(Approval)))
        panel = seen.program.screen.query_one(Approval)
        await seen.until(lambda: panel.has_focus)  # before that, it sets the time itself
        panel.ready_at = float("inf")
        await seen.press("y")
        await seen.pilot.pause(0.3)
        assert panel.is_attached
        panel.ready_at = 0
        await seen.press("n")
        await seen.shows("You refused it.")


async def test_always_choice_shows_its_scope_and_prevents_the_next_question(
    store: Store, tmp_path: Path
) -> None:
    may_run = Permissions(allowed_commands=("git status",))
    async with chatting(
        store, tmp_path, scenario=RUNS, size=(100, 40), permissions=may_run
    ) as seen:
        await seen.type("look")
        await asked(seen)
        await seen.shows("command = git status", str(tmp_path)[:40], "[a] always")
        await seen.shows("always: allow in this session without asking: run_command git status")
        await seen.press("a")
        await seen.shows("It ran.")
        await seen.idle()
        await seen.type("again")
        await seen.until(lambda: seen.transcript.count("It ran.") == 2)


@pytest.mark.all_only
async def test_question_about_a_new_file_is_short_and_lists_every_key(
    store: Store, tmp_path: Path
) -> None:
    async with chatting(store, tmp_path, scenario=CREATES, size=(120, 40)) as seen:
        await seen.type("write it")
        panel = await asked(seen)
        await seen.shows("+one line", "path = notes.txt", "before: nothing is there")
        for label in ("[y] allow once", "[a] always", "[n] deny", "[d] deny, why", "[s] show all"):
            assert label in seen.screen
        assert seen.screen.count("one line") == 1
        assert "inode" not in seen.screen
        assert panel.size.height <= 15
        await seen.pilot.click("#key-show_all")
        await seen.until(lambda: "(inode " in seen.screen)
        assert "| one line" in seen.screen
        await seen.pilot.click("#key-note")
        await seen.until(lambda: panel.query_one("#note", Input).has_focus)
        await seen.press(*"later", "enter")
        await seen.idle()
    assert not (tmp_path / "notes.txt").exists()


async def test_question_answered_by_another_process_is_closed_in_the_chat(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("the sea\n")
    async with chatting(store, tmp_path, scenario=WRITES) as seen:
        await seen.type("change it")
        await asked(seen)
        (question,) = await store.questions()
        await store.answer(question.id, "deny", by="ana")
        await seen.shows("it was answered elsewhere", "You refused it.")
        assert seen.program.input.composer.display


async def test_turn_stopped_at_a_question_is_not_shown_as_answered(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("the sea\n")
    async with chatting(store, tmp_path, scenario=WRITES) as seen:
        await seen.type("change it")
        await asked(seen)
        await seen.press("escape")
        await seen.idle()
        assert "answered elsewhere" not in seen.transcript


@pytest.mark.all_only
async def test_always_choice_and_scrolling_keys_are_visible_in_24_rows(
    store: Store, tmp_path: Path
) -> None:
    line = f"git status {' '.join(f'--option-{n}' for n in range(3))}"
    may_run = Permissions(
        allowed_commands=(line,), command_env={f"VALUE_{n}": "1" for n in range(12)}
    )
    scenario = RUNS.replace("git status", line)
    async with chatting(store, tmp_path, scenario=scenario, permissions=may_run) as seen:
        await seen.type("look")
        panel = await asked(seen)
        await seen.until(lambda: "↑↓ Scroll" in seen.screen)
        for text in (
            "command = git",
            "always: allow in this session",
            "; program file",
            "[a] always",
        ):
            assert text in seen.screen
        facts = panel.query_one("#facts")
        await seen.press("down")
        await seen.until(lambda: facts.scroll_y == 1)
        await seen.press("up", "pagedown")
        await seen.until(lambda: facts.scroll_y == facts.max_scroll_y > 0)
        await seen.pilot.resize_terminal(100, 50)
        await seen.until(lambda: "↑↓" not in seen.screen)  # all of it is visible
        await seen.press("n")
        await seen.idle()


@pytest.mark.parametrize(("is_inline", "last"), [(True, "path = notes.txt"), (False, "+line 6")])
@pytest.mark.all_only
async def test_long_question_shows_the_number_of_hidden_lines(
    *, is_inline: bool, last: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChatProgram, "is_inline", property(lambda _: is_inline))
    lines = "".join(f"line {n}\\n" for n in range(1, 10))
    scenario = CREATES.replace("one line\\nanother\\n", lines)
    async with chatting(store, tmp_path, scenario=scenario) as seen:
        await seen.type("write it")
        await asked(seen)
        await seen.until(lambda: "more lines, ↓" in seen.screen)
        for text in ("May write_file run?", "+line 1", last, "[y] allow once"):
            assert text in seen.screen
        facts = seen.program.screen.query_one("#facts")
        await seen.until(lambda: f"… {facts.max_scroll_y} more lines, ↓" in seen.screen)
        hidden = facts.max_scroll_y
        await seen.press("down")
        await seen.until(lambda: f"… {hidden - 1} more line" in seen.screen)
        await seen.press("pagedown", "pagedown")
        await seen.until(lambda: "… the end; more above, ↑" in seen.screen)
        for text in ("Your answer is valid only while", "before: nothing is there"):
            assert text in seen.screen
        await seen.press("d")
        await seen.until(lambda: "why not (Enter sends" in seen.screen)
        await seen.until(lambda: "[y] allow once" in seen.screen)
        assert "waits for your answer" in seen.screen
        await seen.press("enter")
        await seen.idle()


async def test_chat_shows_how_to_allow_a_forbidden_command(store: Store, tmp_path: Path) -> None:
    async with chatting(store, tmp_path, scenario=RUNS) as seen:
        await seen.type("look")
        await seen.shows("run_command is not offered: /allow COMMAND or --allow-command", "It ran.")


@pytest.mark.all_only
async def test_chat_shows_how_to_allow_a_command_without_a_matching_rule(
    store: Store, tmp_path: Path
) -> None:
    may_run = Permissions(allowed_commands=("pwd",), allowed_command_globs=("git **",))
    scenario = RUNS.replace("git status", "git status -s")
    async with chatting(
        store, tmp_path, scenario=scenario, size=(120, 40), permissions=may_run
    ) as seen:
        await seen.type("look")
        await seen.shows(
            "not allowed: git status -s; /allow git status -s or --allow-command 'git status -s'",
            "commands that may be asked for: pwd; git **",
            "neither matches an option",
            "It ran.",
        )
        await seen.idle()
        await seen.type("/allow git status -s")
        await seen.type("again")
        await asked(seen)
        await seen.press("n")
        await seen.idle()


async def test_chat_suggests_no_permission_for_a_command_with_a_pattern(
    store: Store, tmp_path: Path
) -> None:
    may_run = Permissions(allowed_commands=("pwd",))
    scenario = RUNS.replace('"git status"', "\"git '**'\"")
    async with chatting(store, tmp_path, scenario=scenario, permissions=may_run) as seen:
        await seen.type("look")
        await seen.shows("the command is not allowed: /allow COMMAND or --allow-command", "It ran.")
        assert "/allow git" not in seen.transcript


async def test_command_allowed_in_chat_runs_and_is_recorded(store: Store, tmp_path: Path) -> None:
    async with chatting(store, tmp_path, scenario=RUNS, size=(120, 40)) as seen:
        await seen.type("/agent")
        await seen.shows("run_command is not offered: /allow COMMAND or --allow-command")
        await seen.type("/allow git **")
        await seen.shows(
            "commands that may be asked for: git **", "** at the end is any further arguments"
        )
        await seen.type("look")
        await asked(seen)
        await seen.press("y")
        await seen.shows("It ran.")
        await seen.idle()
        await seen.type("/allow ls -l")
        await seen.shows("commands that may be asked for: ls -l; git **")
        await seen.type("/approve auto")
        await seen.shows("approval: auto", "commands that run without asking: ls -l; git **")
        await seen.type("again")
        await seen.until(lambda: seen.transcript.count("It ran.") == 2)
        await seen.idle()
        await seen.type("/approve")
        await seen.shows("approval: auto (/approve MODE changes it)")
        await seen.type("/approve never")
        await seen.shows("is no approval mode: write one of ask, plan, accept-edits, auto")
        await seen.type("/approve plan")
        await seen.shows("approval: plan")
        await seen.type("/allow ls |")
        await seen.shows("is no rule for commands")
        await seen.type("/allow")
        await seen.shows("/allow needs a command", "* is any text within one argument")
    (info,) = await store.recent()
    session = await store.open(info.id)
    granted = [entry async for entry in session.entries(kind=AgentBound.kind)]
    assert len(granted) == 2
