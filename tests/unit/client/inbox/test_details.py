"""All details of an approval."""

from __future__ import annotations

import json
from pathlib import Path

from perdure.client.agents.agent import Agent
from perdure.client.conversation.workspace import Workspace
from perdure.client.inbox.details import CHANGED, in_full
from perdure.client.reads import OpenQuestion
from perdure.engine.turns.rules.questions import args_hash
from perdure.models.scenario import CallTools, ScriptedCall
from perdure.session.codec import new_side, new_tree
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import StreamHeader
from perdure.session.ledger import ToolStarted, TurnStarted
from perdure.session.messages import user
from perdure.session.notes import Question
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.chats import MODEL, Stage, says, until
from tests.fakes.clock import ManualClock, SeededRandom


async def test_full_details_of_a_question_contain_the_whole_arguments(
    tmp_path: Path,
) -> None:
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


async def test_cut_arguments_of_a_question_are_completed_from_the_call() -> None:
    stream, args = StreamId("s"), {"text": "long " * 2_000}
    store = MemoryStore(clock=ManualClock(), random=SeededRandom(1))
    started = new_side(ToolStarted("c1", "post", dict(args), 1, "external", "ask", "k"))
    turn = (new_side(TurnStarted(1, "helper")), new_tree(user("go")), started)
    await store.commit(Commit(writes=(Write(stream=stream, create=StreamHeader(stream, 1)),), at=1))
    lease = await store.acquire_lease(stream, "me", 1000)
    led = Write(stream=stream, entries=turn, expected_head=-1, lease=lease)
    await store.commit(Commit(writes=(led,), at=1))
    for hashed, expected in ((args_hash(dict(args)), args), ("0" * 64, {"text": "cut"})):
        question = Question(
            "unknown_outcome",
            "post was cut off",
            ("retry",),
            call_id="c1",
            args_hash=hashed,
            arguments={"text": "cut"},
        )
        asked = OpenQuestion(EntryId("s/9"), 1, EntryId("s/2"), question)
        assert (await in_full(store, asked)).arguments == expected
