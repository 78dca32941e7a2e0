"""The state that the chat shows: branches, calls, waiting messages, costs, help, hints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.containers import VerticalScroll
from textual.widgets._toast import Toast

from perdure import assistant, tool_call, user
from perdure.apps.terminal.costs import rounded_dollars
from perdure.apps.tui.gauge import gauge_line
from perdure.apps.tui.lines_screen import LinesScreen
from perdure.client.store import Store
from perdure.models.prices import in_dollars
from tests.fakes.screens import Seen, chatting

LISTS = """
rules:
  - when: {after_tool: list_directory}
    text: Listed.
  - when: {user_contains: one}
    calls: [{name: list_directory, args: {path: one}}]
  - when: {user_contains: two}
    calls: [{name: list_directory, args: {path: two}}]
  - text: Hello.
"""


async def two_branches(seen: Seen, folder: Path) -> tuple[str, str]:
    """Append "one" and "two" after the same answer; return the ends of both branches."""
    for name in ("one", "two"):
        (folder / name).mkdir()
    await seen.type("hi")
    await seen.shows("Hello.")
    await seen.idle()
    chat = seen.program.conversation.chat
    assert chat is not None
    start, ends = (await chat.session.path())[-1].id, list[str]()
    for name in ("one", "two"):
        await seen.type(f"/branch {start}")
        await seen.idle()
        await seen.type(name)
        await seen.shows("Listed.")
        await seen.idle()
        ends.append((await chat.session.path())[-1].id)
    return ends[0], ends[1]


async def test_branch_shows_only_calls_made_on_that_branch(store: Store, tmp_path: Path) -> None:
    async with chatting(store, tmp_path, scenario=LISTS, size=(100, 50)) as seen:
        one, _ = await two_branches(seen, tmp_path)
        (info,) = await store.recent()
    async with chatting(store, tmp_path, session=info.id, size=(100, 50)) as seen:
        await seen.shows("Listed.")
        assert seen.transcript.count("list_directory") == 1
        assert "two" in seen.transcript
        assert "ok, " in seen.transcript  # with the duration of its own call
        await seen.type(f"/branch {one}")
        await seen.shows("going on from")
        assert seen.transcript.count("list_directory") == 1
        assert "one" in seen.transcript
        assert "two" not in seen.transcript


async def test_call_whose_result_is_on_another_branch_is_not_shown_as_running(
    store: Store, tmp_path: Path
) -> None:
    async with chatting(store, tmp_path, scenario=LISTS) as seen:
        await two_branches(seen, tmp_path)
        chat = seen.program.conversation.chat
        assert chat is not None
        path = await chat.session.path()
        called = next(e for e in path if e.message is not None and e.message.tool_calls)
        await seen.type(f"/branch {called.id}")
        await seen.shows("going on from", "no result")
        assert "running" not in seen.transcript + seen.screen


async def test_branch_before_the_first_message_shows_how_to_reach_other_branches(
    store: Store, tmp_path: Path
) -> None:
    async with chatting(store, tmp_path, size=(100, 24)) as seen:
        await seen.type("hi")
        await seen.shows("you wrote “hi”", "context ")
        await seen.idle()
        await seen.type("/branch root")
        await seen.shows("going on from before the first entry; /tree has the branch that was left")
        await seen.until(lambda: "working" not in seen.screen)
        assert "context" not in seen.screen  # nothing of it is left, and instructions do not count
        assert "you wrote" not in seen.transcript


def shown_context(seen: Seen) -> int:
    """Return the tokens of the context in the status line."""
    found = seen.program.shown.gauge.numbers.context
    assert found is not None
    return found


async def test_context_size_after_compaction_includes_instructions_and_tools(
    store: Store, tmp_path: Path
) -> None:
    async with chatting(store, tmp_path, size=(100, 30)) as seen:
        for text in ("first " + "x" * 60_000, "second " + "y" * 84_000, "third"):
            await seen.type(text)
            await seen.idle()
        chat = seen.program.conversation.chat
        assert chat is not None
        asked, answer, *_ = await chat.session.path()
        assert answer.message is not None
        usage = answer.message.usage
        assert usage is not None
        await seen.type("/compact")
        await seen.shows(" → ")
        await seen.until(lambda: "working" not in seen.screen)
        compacted = shown_context(seen)
        assert f"→ {compacted:,} tokens" in seen.transcript
        await seen.type("/context")
        await seen.shows(f"about {compacted:,} tokens")
        await seen.type("fourth")
        await seen.idle()
        assert shown_context(seen) == pytest.approx(compacted, abs=150)
        await seen.type(f"/branch {asked.id}")
        await seen.shows("going on from")
        await seen.until(lambda: "working" not in seen.screen)
        sent = usage.total_tokens - usage.output_tokens
        assert shown_context(seen) == pytest.approx(sent, abs=150)


async def test_message_sent_during_a_turn_is_shown_while_the_message_waits(
    store: Store, tmp_path: Path
) -> None:
    scenario = """
rules:
  - when: {user_contains: second}
    text: Both.
  - steps: [{text: First.}, hang]
"""
    async with chatting(store, tmp_path, scenario=scenario) as seen:
        await seen.type("first")
        await seen.until(lambda: "running" in seen.screen)
        await seen.type("second\nline")
        await seen.shows("waits: second line")
        await seen.press("escape")
        await seen.idle()
        await seen.type("third, and second")
        await seen.shows("Both.")
        await seen.idle()
        await seen.until(lambda: "waits:" not in seen.screen)
        assert seen.transcript.count("second") == 2


@pytest.mark.parametrize("command", ["!echo a-$((1))-secret", "!!echo a-$((1))-secret"])
async def test_shell_command_typed_during_a_turn_runs_after_the_turn(
    store: Store, tmp_path: Path, command: str
) -> None:
    scenario = "rules:\n  - steps: [{text: First.}, hang]\n"
    async with chatting(store, tmp_path, scenario=scenario) as seen:
        await seen.type("first")
        await seen.until(lambda: "running" in seen.screen)
        await seen.type(command)
        await seen.shows("waits: !")
        assert "a-1-secret" not in seen.transcript
        await seen.press("escape")
        await seen.shows("a-1-secret")
        await seen.idle()
        chat = seen.program.conversation.chat
        assert chat is not None
        messages = await chat.session.messages()
        assert [each.text for each in messages if each.role == "user"] == ["first"]


async def test_message_typed_during_a_command_is_shown_while_the_message_waits(
    store: Store, tmp_path: Path
) -> None:
    async with chatting(store, tmp_path) as seen:
        typed = tmp_path / "typed"
        await seen.type(f"!until [ -e {typed} ]; do sleep 0.05; done")
        await seen.type("after it")
        await seen.shows("waits: after it")
        typed.touch()
        await seen.shows("you wrote “after it”")
        await seen.idle()
        await seen.until(lambda: "waits:" not in seen.screen)


async def test_session_cannot_be_changed_while_its_turn_runs(store: Store, tmp_path: Path) -> None:
    scenario = "rules:\n  - steps: [{text: Working.}, hang]\n"
    async with chatting(store, tmp_path, scenario=scenario) as seen:
        await seen.type("go")
        await seen.until(lambda: "running" in seen.screen)
        chat = seen.program.conversation.chat
        for typed in ("/new", "/fork", "/resume nowhere", "/approve plan"):
            await seen.type(typed)
            await seen.until(lambda: not seen.program.input.composer.text)
        await seen.until(lambda: seen.transcript.count("a turn is running: stop it first") == 4)
        assert seen.program.conversation.chat is chat
        await seen.press("escape")
        await seen.idle()


async def imported(store: Store, folder: Path, cost: object, model: str = "claude") -> str:
    """Return a session recorded by pi whose call has this cost."""
    usage = {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 15}
    lines: list[dict[str, object]] = [
        {"type": "session", "version": 3, "id": "s1", "timestamp": AT, "cwd": str(folder)},
        _line("a", None, {"role": "user", "content": "Hi", "timestamp": 1}),
        _line(
            "b",
            "a",
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "Ahoy"}],
                "api": "x",
                "provider": "anthropic",
                "model": model,
                "usage": usage if cost is None else {**usage, "cost": cost},
                "stopReason": "stop",
                "timestamp": 2,
            },
        ),
    ]
    file = folder / "session.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    await store.import_files([file])
    (info,) = await store.recent()
    return info.id


AT = "2026-01-01T00:00:00.000Z"


def _line(id: str, parent: str | None, message: dict[str, object]) -> dict[str, object]:
    return {"type": "message", "id": id, "parentId": parent, "timestamp": AT, "message": message}


async def test_cost_of_an_imported_session_is_read_from_its_log(
    store: Store, tmp_path: Path
) -> None:
    costs = {"input": 0.25, "output": 0.5, "cacheRead": 0, "cacheWrite": 0, "total": 0.75}
    session = await imported(store, tmp_path, costs)
    async with chatting(store, tmp_path, session=session) as seen:
        await seen.shows("Ahoy", "$0.75")
        await seen.type("/cost")
        await seen.shows("this session cost $0.75")
        await seen.shows("1 call of anthropic:claude: 10 tokens sent, 5 received")


async def test_missing_cost_of_a_call_without_a_price_is_shown_as_unknown(
    store: Store, tmp_path: Path
) -> None:
    session = await imported(store, tmp_path, None)
    async with chatting(store, tmp_path, session=session) as seen:
        await seen.shows("Ahoy", "$?")
        assert "$0.00" not in seen.screen
        await seen.type("/cost")
        await seen.shows("the cost of this session is unknown: 1 call without a price")
        await seen.shows("prices go into [models.prices] of your settings")


async def test_missing_cost_of_a_call_is_computed_from_the_price_list(
    store: Store, tmp_path: Path
) -> None:
    session = await imported(store, tmp_path, None, "claude-sonnet-4-5")
    async with chatting(store, tmp_path, session=session) as seen:
        await seen.type("/cost")
        await seen.shows("this session cost $0.000105")  # 10 in at $3, 5 out at $15 a million


@pytest.mark.all_only
async def test_status_line_computes_cost_of_imported_calls_from_price_settings(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "perdure").mkdir()
    (tmp_path / "perdure" / "config.toml").write_text(
        '[models.prices]\n"anthropic:claude" = {input = 50000, output = 100000}\n'
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    session = await imported(store, tmp_path, None)
    async with chatting(store, tmp_path, session=session) as seen:
        await seen.shows("Ahoy", "$1.00")  # 10 in at 5 cents, 5 out at 10


async def test_status_line_applies_price_settings_to_earlier_calls(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "perdure").mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    async with chatting(store, tmp_path) as seen:
        await seen.type("hi")
        await seen.shows("you wrote “hi”", "$?")
        await seen.idle()
        (info,) = await store.recent()
    (tmp_path / "perdure" / "config.toml").write_text(
        '[models.prices]\n"scripted:*" = {input = 2, output = 10}\n'
    )
    (total,) = await store.usage()
    used = total.usage
    microcents = 200 * used.input_tokens + 1000 * used.output_tokens
    cost, rounded = in_dollars(microcents), rounded_dollars(microcents)
    async with chatting(store, tmp_path, session=info.id) as seen:
        await seen.until(lambda: f" {rounded} " in seen.screen)
        assert "?" not in gauge_line(seen.program.shown.gauge.numbers, 200)
        await seen.type("/cost")
        await seen.shows(f"this session cost {cost}")


async def test_help_opens_once_and_scrolls_in_24_rows(store: Store, tmp_path: Path) -> None:
    async with chatting(store, tmp_path, size=(80, 24)) as seen:
        await seen.press("f1", "ctrl+o", "ctrl+r")
        await seen.until(lambda: isinstance(seen.program.screen, LinesScreen))
        assert len(seen.program.screen_stack) == 2
        await seen.until(lambda: "PgUp PgDn" in seen.screen)
        assert "Ctrl-C twice" not in seen.screen
        await seen.press("down", "down")
        lines = seen.program.screen.query_one(VerticalScroll)
        await seen.until(lambda: lines.scroll_y == 2)
        await seen.press("pagedown", "pagedown")
        await seen.until(lambda: "Ctrl-C twice" in seen.screen)
        await seen.press("f1")
        await seen.until(lambda: len(seen.program.screen_stack) == 1)


async def test_hint_line_leaves_all_messages_visible(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.apps.tui.program._LEAVE_S", 60.0)  # long enough on a busy machine
    session = await store.create(cwd=str(tmp_path))
    await session.append(user("Hi"), *(assistant(f"Line {n} {'x' * 60}") for n in range(30)))
    async with chatting(store, tmp_path, session=session.id) as seen:
        await seen.until(lambda: "Line 29" in seen.screen)
        before = seen.screen.splitlines()[:18]
        await seen.press("ctrl+c")
        await seen.shows("Ctrl-C again exits")
        assert seen.screen.splitlines()[:18] == before
        await seen.type("/tree")
        await seen.until(lambda: len(seen.program.screen_stack) == 2)
        await seen.press("n")
        await seen.shows("nothing was searched yet")
        assert not seen.program.screen.query(Toast)


async def test_imported_call_without_a_result_shows_no_result(store: Store, tmp_path: Path) -> None:
    session = await store.create(cwd=str(tmp_path))
    await session.append(user("Hi"), assistant(tool_call("c1", "grep", {"pattern": "x"})))
    async with chatting(store, tmp_path, session=session.id) as seen:
        await seen.shows("grep", "no result")
