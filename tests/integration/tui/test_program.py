"""Every command and key of the terminal chat, pressed in a running program."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.client.store import Store
from tests.fakes.samples import with_larger
from tests.fakes.screens import chatting


@pytest.mark.all_only
async def test_fork_command_explains_how_to_fork_only_one_branch(
    store: Store, tmp_path: Path
) -> None:
    async with chatting(store, tmp_path, size=(120, 40)) as seen:
        await seen.type("first")
        await seen.shows("you wrote “first”")
        await seen.idle()
        origin = seen.program.conversation.chat
        assert origin is not None
        await seen.type("/fork")
        await seen.shows(", a fork of ")
        assert "with all its branches" not in seen.transcript
        await seen.type("second")
        await seen.shows("you wrote “second”")
        await seen.idle()
        leaf = f"{origin.id}/2"
        await seen.type(f"/branch {leaf}")
        await seen.shows("/tree has the branch that was left")
        await seen.type("/fork")
        await seen.shows(f"with all its branches; /fork {leaf} shares only this branch")
        await seen.type(f"/fork {leaf}")
        await seen.until(lambda: "with all its branches" not in seen.transcript)
        await seen.shows(", a fork of ")
    whole, only = sorted((await store.recent(2)), key=lambda info: -info.messages)
    assert (whole.messages, only.messages) == (4, 1)


async def test_message_is_answered_and_rendered_as_markdown(store: Store, tmp_path: Path) -> None:
    scenario = 'sequence:\n  - text: "# Land\\n\\n**ahoy** and `code`\\n"\n'
    async with chatting(store, tmp_path, scenario=scenario) as seen:
        await seen.type("hi")
        await seen.shows("hi", "Land", "ahoy and code")
        assert "**" not in seen.transcript
        await seen.idle()
        assert "tokens" in seen.screen


COMMANDS = (
    ("/cost", "no messages yet"),
    ("/model", "the model is scripted:echo"),
    ("/model ", "/model NAME switches: openai:NAME"),
    ("first", "you wrote “first”"),
    ("/model scripted:nope", "unknown scenario; available: echo"),
    ("/model nope", "'nope' names no provider and model"),
    ("/model openai:nope", "/model NAME chooses another"),
    ("/model scripted:echo", "from the next message on the model is scripted:echo"),
    ("/thinking", "the thinking level is off"),
    ("/thinking high", "from the next message on the thinking level is high"),
    ("/model", "used lately: scripted:echo"),
    ("/context", "scripted:echo: 2 messages, about "),
    ("/context", "instructions"),
    ("/context", "history"),
    ("/compact", "Nothing to compact: the newest 20,000 tokens"),
    ("/cost", "the cost of this session is unknown: 1 call without a price"),
    ("/label 2 start", "is called start now"),
    ("/inbox", "nothing waits for you"),
    ("/memory first", "/2 first"),
    ("/agent", "approval ask; tools: "),
    ("/export {folder}/talk.html", "talk.html"),
    ("/nonsense", "unknown command /nonsense"),
    ("/fork", ", a fork of "),
    ("/new", "the next message begins a new session"),
    ("second", "you wrote “second”"),
)
"""What is typed, and what the chat shows then."""

TYPED = {
    *("first", "/model ", "/compact", "/label 2 start", "/memory first", "/nonsense"),
    *("/export {folder}/talk.html", "/fork", "/new", "second"),
}
"""What `make test` types; `tests/acceptance/cli/test_chat.py` types the others too."""


@pytest.mark.parametrize(
    "commands",
    with_larger(tuple(each for each in COMMANDS if each[0] in TYPED), COMMANDS),
    ids=["few", "all"],
)
async def test_every_chat_command_prints_the_expected_output(
    store: Store, tmp_path: Path, commands: tuple[tuple[str, str], ...]
) -> None:
    async with chatting(store, tmp_path, size=(120, 40)) as seen:
        for typed, told in commands:
            await seen.type(typed.format(folder=tmp_path))
            await seen.shows(told)
            await seen.idle()
        assert (tmp_path / "talk.html").read_text().startswith("<!doctype html>")
        assert len(await store.recent()) == 3
        await seen.type("/help")
        await seen.shows("Commands and keys", "/thinking [LEVEL]", "Ctrl-R")
        await seen.press("escape")
        await seen.type("/quit")
    assert seen.program.return_value == 0
