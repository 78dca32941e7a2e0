"""Approvals against races and odd input: content swapped at the last moment never runs."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.agents.turn import Turn
from perdure.client.conversation.workspace import Workspace
from perdure.engine.turns.config import Limits
from perdure.models.scenario import CallTools, ScriptedCall
from perdure.tools.builtin import edits
from perdure.tools.spec import ToolCall, ToolOutput, ToolSpec
from tests.attacks.test_stale_approvals import (
    ANY,
    TOOLS,
    A,
    Case,
    Change,
    Form,
    all_of,
    edit,
    exists,
    holds,
    link,
    nothing,
    put,
    unchanged_times,
    write,
)
from tests.fakes.chats import MODEL, Stage, says, until


async def test_folder_that_is_swapped_all_the_time_is_never_written_to(tmp_path: Path) -> None:
    """Another thread retargets the folder as fast as it can while approved writes run."""
    rounds, asked_again = 25, 0
    folder = tmp_path / "work"
    for name in ("good", "evil"):
        (folder / name).mkdir(parents=True)
    spare, place = folder / "spare", folder / "l"
    is_over = threading.Event()

    def flip(target: str) -> None:
        spare.symlink_to(target)
        spare.replace(place)

    def swap() -> None:
        while not is_over.is_set():
            flip("evil")
            flip("good")

    steps = [
        CallTools((ScriptedCall("write_file", json.dumps(write(f"l/{n}")), id=f"c{n}"),))
        for n in range(rounds)
    ]
    stage = Stage(*(says(step) for step in steps), says("done"))
    limits = Limits(max_tool_rounds=rounds + 1)
    agent = Agent("helper", model=MODEL, tools=TOOLS, permissions=ANY, limits=limits)
    flip("good")
    chat = await stage.runtime(agent).start(
        agent, id="s", workspace=Workspace(working_dir=str(folder))
    )
    turn = chat.send("go")
    for n in range(rounds):
        await _asked_for(chat, n)
        (waiting,) = await chat.session.questions()
        is_good = _names_good(waiting.question, folder)
        thread = threading.Thread(target=swap)
        is_over.clear()
        thread.start()
        await chat.session.answer(waiting.id, "allow" if is_good else "deny", by="me")
        await asyncio.sleep(0.02)
        is_over.set()
        thread.join()
        while (again := await _asked_again(chat, turn, n)) is not None:
            asked_again += 1
            await chat.session.answer(again, "deny", by="me")
    await turn
    escapes = len(list((folder / "evil").iterdir()))
    assert escapes == 0, f"{escapes} of {rounds} approved writes went elsewhere"
    assert asked_again > 0, "the race was never lost: it proves nothing"


def _names_good(question: Any, folder: Path) -> bool:
    bound = getattr(question, "bound", None) or {"file": f"{folder}/good/"}
    return f"{folder}/good/" in bound["file"]


async def _asked_for(chat: Chat, n: int) -> None:
    async def is_asked() -> bool:
        return await _waiting_for(chat, n) is not None

    await until(is_asked)


async def _asked_again(chat: Chat, turn: Turn, n: int) -> str | None:
    """Return the question about the same call after the answer; None if the turn has continued."""

    async def is_past() -> bool:
        return bool(await chat.session.questions()) or not turn.is_running

    await until(is_past)
    return await _waiting_for(chat, n)


async def _waiting_for(chat: Chat, n: int) -> str | None:
    found = await chat.session.questions()
    return next((each.id for each in found if each.question.call_id == f"c{n}"), None)


@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
async def test_file_change_during_the_write_requires_new_approval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """The file changes after the last check, when the new content is already on disk."""
    args = write(A) if tool == "write_file" else edit(A)
    form = Form(tool, args, put(A, "old 1"), put(A, "old 2"), holds(A, "WRITTEN"))
    case = Case(form, tmp_path)
    chat = await case.asked()
    (waiting,) = await chat.session.questions()
    sync = os.fsync

    def change_then_sync(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        unchanged_times(A, "old 2")(case.folder)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", change_then_sync)
    await chat.session.answer(waiting.id, "allow", by="me")
    await case.does_not_run(chat)
    assert (case.folder / A).read_text() == "old 2"
    assert sorted(each.name for each in case.folder.iterdir()) == [A]


async def test_file_swapped_before_append_requires_new_approval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = Form("write_file", write(A, append=True), put(A, "1"), nothing, holds(A, "WRITTEN"))
    case = Case(form, tmp_path)
    chat = await case.asked()
    (waiting,) = await chat.session.questions()
    opened = edits.open_regular

    def swap_then_open(parent: int, name: str, **options: Any) -> int:
        if options.get("flags", 0) & os.O_APPEND:
            put("other", "2")(case.folder)
            (case.folder / "other").replace(case.folder / A)
        return opened(parent, name, **options)

    monkeypatch.setattr(edits, "open_regular", swap_then_open)
    await chat.session.answer(waiting.id, "allow", by="me")
    await case.does_not_run(chat)
    assert (case.folder / A).read_text() == "2"


async def test_allow_answer_applies_to_only_one_of_two_equal_calls(tmp_path: Path) -> None:
    call = ScriptedCall("write_file", json.dumps(write(A, append=True)), id="c")
    stage = Stage(says(CallTools((call, call))), says("done"))
    agent = Agent("helper", model=MODEL, tools=TOOLS)
    place = Workspace(working_dir=str(tmp_path))
    chat = await stage.runtime(agent).start(agent, id="s", workspace=place)
    turn = chat.send("go")
    await _next_question(chat, None)
    (first,) = await chat.session.questions()
    await chat.session.answer(first.id, "allow", by="me")
    second = await _next_question(chat, first.id)
    assert (tmp_path / A).read_text() == "WRITTEN"
    await chat.session.answer(second, "deny", by="me")
    await turn
    assert (tmp_path / A).read_text() == "WRITTEN"


async def _next_question(chat: Chat, but: str | None) -> str:
    async def is_asked() -> bool:
        return any(each.id != but for each in await chat.session.questions())

    await until(is_asked)
    return next(each.id for each in await chat.session.questions() if each.id != but)


async def test_approval_shows_a_folder_name_that_is_not_utf8(
    tmp_path: Path,
) -> None:
    """A link leads to a folder whose name JSON cannot represent."""

    def odd(name: bytes) -> Change:
        def make(folder: Path) -> None:
            (folder / os.fsdecode(name)).mkdir()
            (folder / "l").unlink(missing_ok=True)
            (folder / "l").symlink_to(os.fsdecode(name))

        return make

    form = Form("write_file", write("l/x"), odd(b"a\xff"), odd(b"b\xfe"), exists("l/x"))
    case = Case(form, tmp_path)
    chat = await case.asked()
    (waiting,) = await chat.session.questions()
    assert "a\\udcff/x" in (waiting.question.bound or {})["file"]
    form.change(case.folder)
    await chat.session.answer(waiting.id, "allow", by="me")
    asked = await case.questions(chat, 2)
    assert len(asked) == 2
    await chat.session.answer(asked[1], "allow", by="me")
    await until(case.is_over)
    assert form.effect(case.folder)


async def test_deeply_nested_arguments_are_shown_and_need_approval(tmp_path: Path) -> None:
    async def run(call: ToolCall) -> ToolOutput:
        return ToolOutput("sent")

    spec = ToolSpec("send", "Send it.", {"type": "object"}, run, action="egress")
    depth = 200
    while depth < 1600:
        call = ScriptedCall("send", f'{{"data": {"[" * depth}{"]" * depth}}}', id="c")
        stage = Stage(says(CallTools((call,))), says("done"))
        chat = await stage.chat([spec])
        turn = chat.send("go")

        async def is_asked(session: Any = chat.session, turn: Any = turn) -> bool:
            return bool(await session.questions()) or not turn.is_running

        await until(is_asked)
        for waiting in await chat.session.questions():
            await chat.session.answer(waiting.id, "deny", by="me")
        await turn
        depth *= 2


async def test_approval_with_a_masked_credential_is_valid_only_for_that_credential(
    tmp_path: Path,
) -> None:
    """Credentials in a name, in the content and in the file are shown and compared as hashes."""
    key, other = "ghp_" + "a1B2c3D4" * 5, "ghp_" + "z9Y8x7W6" * 5
    args = {"path": "l", "content": f"token={key}\n"}
    before = all_of(put(key, f"old {key}\n"), put(other, f"old {key}\n"), link("l", key))
    form = Form("write_file", args, before, link("l", other), holds(other, "token"))
    case = Case(form, tmp_path)
    chat = await case.asked()
    (waiting,) = await chat.session.questions()
    body = msgspec.json.encode(waiting.question).decode()
    assert key not in body
    assert "always" not in waiting.question.choices
    case.form.change(case.folder)
    await chat.session.answer(waiting.id, "allow", by="me")
    asked = await case.questions(chat, 2)
    assert len(asked) == 2
    await chat.session.answer(asked[1], "allow", by="me")
    await until(case.is_over)
    assert form.effect(case.folder)
    assert "token" not in (case.folder / key).read_text()
