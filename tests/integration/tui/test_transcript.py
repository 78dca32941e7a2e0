"""Stored sessions, hostile text, and how few entries of a long session are read."""

from __future__ import annotations

from pathlib import Path

from perdure import assistant, thinking, tool_call, tool_result, user
from perdure.apps.tui.blocks import CallBlock, ThoughtBlock
from perdure.apps.tui.transcript import PAGE
from perdure.client.store import Store
from perdure.session.kinds import Compaction
from tests.fakes.screens import chatting

ATTACK = "\x1b]0;owned\x07\x1b[2J\x9b31m[red]not markup[/red] [@click=app.quit]x[/] \u202eevil"


async def test_chat_folds_stored_calls_and_hides_reasoning(store: Store, tmp_path: Path) -> None:
    session = await store.create(cwd=str(tmp_path))
    call = tool_call("c1", "edit_file", {"path": "a.py", "old_text": "one", "new_text": "two"})
    await session.append(
        user("Change it"),
        assistant(thinking("I should look."), call),
        tool_result("c1", "replaced 1 time"),
        assistant("Done."),
    )
    async with chatting(store, tmp_path, session=session.id, size=(100, 40)) as seen:
        await seen.shows("Change it", "▸ edit_file", "done", "Done.")
        assert "+two" not in seen.transcript
        assert "I should look." not in seen.screen
        await seen.press("ctrl+r")
        await seen.shows("I should look.")
        assert seen.program.transcript.query_one(ThoughtBlock).display
        seen.program.transcript.query_one(CallBlock).focus()
        await seen.press("enter")
        await seen.shows("path = a.py", "-one", "+two", "replaced 1 time")
        await seen.press("enter")
        await seen.until(lambda: "+two" not in seen.transcript)
        await seen.press("ctrl+o")
        await seen.shows("+two")


async def test_hostile_text_is_shown_as_text_everywhere(store: Store, tmp_path: Path) -> None:
    session = await store.create(cwd=str(tmp_path), title=ATTACK)
    await session.append(
        user(ATTACK),
        assistant(thinking(ATTACK), ATTACK, tool_call("c1", f"t{ATTACK}"[:20], {ATTACK: ATTACK})),
        tool_result("c1", ATTACK),
        assistant(f"```python\n{ATTACK}\n```\n\n| {ATTACK} |\n|---|\n| {ATTACK} |\n"),
        assistant("[a](javascript:alert(1)) ![b](file:///etc/passwd)"),
    )
    async with chatting(store, tmp_path, session=session.id, size=(120, 60)) as seen:
        await seen.press("ctrl+r", "ctrl+o")
        await seen.shows("[red]not markup[/red]")
        for told in ("/tree", "/resume"):
            shown = seen.transcript + seen.screen
            assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)
            await seen.type(told)
            await seen.until(lambda: len(seen.program.screen_stack) == 2)
            await seen.until(lambda: "[red]not markup[/red]" in seen.screen)
            await seen.pilot.pause(0.2)
            shown = seen.screen
            assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)
            assert "[red]not markup[/red]" in shown
            await seen.press("escape")


async def test_streamed_hostile_text_is_shown_as_text(store: Store, tmp_path: Path) -> None:
    scenario = 'rules:\n  - text: "\\e]0;owned\\a\\e[2J **[red]x[/red]** `[b]`"\n'
    async with chatting(store, tmp_path, scenario=scenario) as seen:
        await seen.type("hi")
        await seen.shows("[red]x[/red]", "[b]")
        await seen.idle()
        assert "\x1b" not in seen.transcript
        assert "\ufffd[2J" in seen.transcript


async def test_long_session_reads_only_the_shown_entries(store: Store, tmp_path: Path) -> None:
    session = await store.create(cwd=str(tmp_path))
    for start in range(0, 1_000, 250):
        await session.append_many([user(f"message {n}") for n in range(start, start + 250)])
    async with chatting(store, tmp_path, session=session.id) as seen:
        await seen.shows("message 999")
        transcript = seen.program.transcript
        assert len(transcript.children) == PAGE
        await transcript.action_earlier()
        await seen.until(lambda: len(transcript.children) == 2 * PAGE)
        await seen.until(lambda: "message 880\n" in seen.transcript)
        await seen.until(lambda: transcript.scroll_y > 0)
        await seen.idle()
        assert len(transcript.children) == 2 * PAGE


GROUP = 7
"""Number of entries of an answer with calls; the page size is no multiple of it."""


async def test_transcript_page_never_separates_results_from_their_calls(
    store: Store, tmp_path: Path
) -> None:
    session = await store.create(cwd=str(tmp_path))
    for group in range(20):
        ids = [f"c{group}-{n}" for n in range(GROUP - 1)]
        await session.append(
            assistant(*(tool_call(id, "list_directory", {"path": id}) for id in ids)),
            *(tool_result(id, "empty", name="list_directory") for id in ids),
        )
    async with chatting(store, tmp_path, session=session.id) as seen:
        transcript = seen.program.transcript
        calls, most = list[CallBlock](), 20 * (GROUP - 1)
        while len(calls) < most:
            before = len(calls)
            await transcript.read_earlier()
            calls = list(transcript.query(CallBlock))
            assert len(calls) > before
        assert {call.item.outcome for call in calls} == {"done"}
        assert [call.item.id for call in calls] == [
            f"c{group}-{n}" for group in range(20) for n in range(GROUP - 1)
        ]
        assert len(transcript.children) == most  # no result stands alone


async def test_transcript_page_can_begin_with_a_result_without_a_call(
    store: Store, tmp_path: Path
) -> None:
    session = await store.create(cwd=str(tmp_path))
    await session.append_many([user(f"message {n}") for n in range(6 * PAGE)])
    await session.append_many([tool_result("gone", "empty", name="list_directory")])
    await session.append_many([user(f"later {n}") for n in range(PAGE - 1)])
    async with chatting(store, tmp_path, session=session.id) as seen:
        await seen.shows("later 58")
        assert len(seen.program.transcript.children) == PAGE
        assert "list_directory: empty" in seen.transcript


async def test_summary_is_shown_until_its_compaction_is_undone(
    store: Store, tmp_path: Path
) -> None:
    session = await store.create(cwd=str(tmp_path))
    _, last = await session.append_many([user("One"), user("Two")])
    await session.append(Compaction("gist", last.id))
    async with chatting(store, tmp_path, session=session.id) as seen:
        await seen.shows("Two", "older messages are now sent as a summary")
    await session.uncompact()
    async with chatting(store, tmp_path, session=session.id) as seen:
        await seen.shows("Two")
        assert "older messages are now sent as a summary" not in seen.transcript


async def test_long_line_of_code_is_wrapped(store: Store, tmp_path: Path) -> None:
    session = await store.create(cwd=str(tmp_path))
    line = " ".join(f"word{n}" for n in range(40))
    await session.append_many([user("Show it"), assistant(f"```python\n{line}\n```")])
    async with chatting(store, tmp_path, session=session.id) as seen:
        await seen.shows("word0")
        await seen.until(lambda: "word39" in seen.screen)


async def test_first_piece_of_an_answer_is_shown_before_the_second(
    store: Store, tmp_path: Path
) -> None:
    scenario = "rules: [{steps: [{text: It begins}, hang]}]"
    async with chatting(store, tmp_path, scenario=scenario) as seen:
        await seen.type("go")
        await seen.until(lambda: "It begins" in seen.screen)
        await seen.press("escape")
        await seen.idle()
        assert seen.transcript.count("It begins") == 1
