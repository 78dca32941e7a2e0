"""An approval in full."""

from __future__ import annotations

import json
from pathlib import Path

from perdure.client.agents.agent import Agent
from perdure.client.conversation.workspace import Workspace
from perdure.client.inbox.details import CHANGED, in_full
from perdure.models.scenario import CallTools, ScriptedCall
from tests.fakes.chats import MODEL, Stage, says, until


async def test_whole_arguments_and_diff_come_from_log_and_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    content = "new line\n" * 2000
    args = json.dumps({"path": "a.txt", "content": content})
    stage = Stage(says(CallTools((ScriptedCall("write_file", args, id="w"),))))
    agent = Agent("helper", model=MODEL, tools=("write_file",))
    place = Workspace(working_dir=str(tmp_path))
    chat = await stage.runtime(agent).start(agent, id="s", workspace=place)
    chat.send("go")

    async def is_asked() -> bool:
        return bool(await stage.store.questions())

    await until(is_asked)
    (asked,) = await stage.store.questions()
    assert "cut here" in (asked.question.diff or "")
    whole = await in_full(stage.memory, asked)
    assert whole.arguments == {"path": "a.txt", "content": content}
    assert (whole.diff or "").count("\n+new line") == 2000
    (tmp_path / "a.txt").write_text("other\n")
    changed = await in_full(stage.memory, asked)
    assert (changed.diff or "").startswith(CHANGED)
    await chat.suspend()
