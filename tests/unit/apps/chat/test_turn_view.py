"""Questions that arrive while a turn is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure.apps.chat.questions import Asked, Given, pending_questions
from perdure.apps.chat.turn_view import remark_moved, show_turn
from perdure.apps.terminal.event_lines import QuietTeller
from perdure.testing import ScriptedModel
from tests.fakes.chats import until


@perdure.tool(effect="write", needs_approval=True)
async def strike() -> str:
    """Strike."""
    return "struck"


async def test_pending_question_is_asked_only_once() -> None:
    asked: list[str] = []

    async def ask(question: Asked) -> Given:
        asked.append(question.id)
        return Given("allow")

    call = perdure.assistant(perdure.tool_call("c1", "strike", {}))
    agent = perdure.Agent("a", model="x:y", tools=[strike])
    model = ScriptedModel([call, "Done."])
    async with (
        perdure.open("memory:") as store,
        perdure.Runtime(store, agents=[agent], models=model) as runtime,
    ):
        chat = await runtime.start(agent)
        turn = chat.send("go")

        async def is_asked() -> bool:
            return bool(await chat.session.questions())

        await until(is_asked)
        pending = await pending_questions(chat)
        reply = await show_turn(store, chat, turn, QuietTeller(), pending=pending, ask=ask)
    assert reply is not None
    assert reply.text == "Done."
    assert asked == [pending[0].id]


async def test_unreadable_session_folder_causes_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = f"/{'x' * 300}"  # the system refuses to look for so long a name
    agent = perdure.Agent("a", model="scripted:echo")
    async with perdure.open("memory:") as store, perdure.Runtime(store, [agent]) as runtime:
        chat = await runtime.start("a", workspace=perdure.Workspace(str(tmp_path)))
        remark_moved(store, chat, None, recorded, is_first=True)
    told = " ".join(capsys.readouterr().err.split())
    assert "does not exist here: its tools work in" in told
