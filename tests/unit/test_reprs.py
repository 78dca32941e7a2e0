"""Each handle has a short repr: what it is, ids and counts, no text of a session and no secret."""

from __future__ import annotations

from pathlib import Path

import perdure
from perdure.session.ids import StreamId
from perdure.testing import ScriptedModel


async def test_handles_show_ids_and_counts_but_no_content(tmp_path: Path) -> None:
    agent = perdure.Agent("helper", model="x:y", instructions="private words")
    opening = perdure.open(f"sqlite:///{tmp_path / 'a.db'}", key=b"k" * 32)
    assert "not opened" in repr(opening)
    async with (
        opening as store,
        perdure.Runtime(store, agents=[agent], models=ScriptedModel(["private"])) as runtime,
    ):
        assert repr(store) == "<Store sqlite 'a.db'>"
        assert repr(runtime) == "<Runtime agents=['helper'] running=0>"
        chat = await runtime.start("helper", id="s")
        assert repr(chat) == "<Chat 's' agent='helper' idle>"
        turn = chat.send("private")
        assert repr(turn) == "<Turn session='s' running>"
        await turn
        assert repr(turn) == "<Turn session='s' ended>"
        session = await store.open("s")
        assert repr(session) == "<Session 's' entries=7 leaf='s/5'>"
        draft = await store.create(id="d", lazy=True)
        assert repr(draft) == "<Session 'd' entries=0 leaf=None draft>"
        assert repr(session.watch(after=3)) == "<Watch after=3>"
        flows = perdure.Flows(runtime)
        assert repr(flows) == "<Flows agents=['helper']>"
        assert repr(flows.look(StreamId("f"))) == "<Flow 'f'>"
        assert repr(flows.look(StreamId("f")).feed("owner")) == "<RoleFeed flow='f' role='owner'>"
        assert repr(perdure.Hooks()) == "<Hooks {}>"
        assert repr(perdure.Follower(4)) == "<Follower resume_after=4>"


def test_handle_without_async_says_so() -> None:
    with perdure.blocking.open("memory:") as store:
        assert repr(store) == "<blocking Store memory>"
        assert repr(store.create(id="s")) == "<blocking Session 's' entries=0 leaf=None>"
