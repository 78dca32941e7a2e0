"""Questions of invoked agents."""

from __future__ import annotations

import json
from pathlib import Path

from perdure.client.agents.agent import Agent
from perdure.client.agents.delegation.questions import asked_below
from perdure.client.conversation.workspace import Workspace
from perdure.session.ids import StreamId
from tests.fakes.chats import until
from tests.fakes.players import Act, Theatre, asks, words


def invokes(agent: str) -> Act:
    return asks("invoke_agent", json=json.dumps({"agent": agent, "input": "write it down"}))


def agents() -> tuple[Agent, ...]:
    tools = ("invoke_agent", "write_file")
    return tuple(
        Agent(name, model=f"p:{name}", tools=tools) for name in ("lead", "scout", "scribe")
    )


async def test_chat_shows_the_question_of_a_nested_agent(
    tmp_path: Path,
) -> None:
    write = asks("write_file", json='{"path": "a.txt", "content": "b"}')
    theatre = Theatre(
        lead=[invokes("scout")], scout=[invokes("scribe")], scribe=[write, words("k")]
    )
    async with theatre.runtime(*agents()) as runtime:
        place = Workspace(working_dir=str(tmp_path))
        chat = await runtime.start("lead", id="s", workspace=place)
        turn = chat.send("go")

        async def is_asked() -> bool:
            return bool(await chat.questions())

        await until(is_asked)
        (below,) = await asked_below(theatre.memory, StreamId("s"), at=0)
        assert below.asker == "scribe"
        assert [asked.id for asked in await chat.questions()] == [below.question.id]
        assert below.question.id.startswith(f"{below.child.info.id}/")
        assert await chat.session.questions() == []
        await theatre.store.answer(below.question.id, "deny", by="ann")
        assert (await turn).text == "done"
        assert await chat.questions() == []
