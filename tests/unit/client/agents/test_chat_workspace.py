"""Workspace changes of a session reach its chats, whichever handle records them."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from perdure.client.agents.agent import Agent
from perdure.client.conversation.workspace import Selection, Workspace
from perdure.errors import IdempotencyMismatch
from perdure.session.notes import WorkspaceChanged
from perdure.tools.permissions import Permissions
from tests.fakes.players import Theatre
from tests.fakes.rivals import meanwhile

AGENT = Agent("helper", model="p:main", instructions="{{ctx.shop}} {{ctx.size}} {{ctx.selection}}")
PLACE = Workspace(variables={"shop": "tea", "size": "big"}, selection=Selection("a.py", 1, 2))


async def test_workspace_changes_of_two_handles_are_combined() -> None:
    theatre = Theatre()
    runtime = theatre.runtime(AGENT)
    older = await runtime.start(AGENT, workspace=PLACE, id="s")
    newer = await runtime.resume("s")
    await newer.send("one", variables={"shop": "coffee"})
    await older.send("two", variables={"size": "small"})
    await newer.send("three", active_file="b.py")
    await older.send("four")
    assert [request.system for request in theatre.players.requests] == [
        "coffee big a.py:1-2",
        "coffee small a.py:1-2",
        "coffee small ",
        "coffee small ",
    ]
    assert older.workspace == newer.workspace
    assert len(await theatre.bodies(WorkspaceChanged)) == 3


async def test_message_without_workspace_change_records_no_change() -> None:
    theatre = Theatre()
    chat = await theatre.runtime(AGENT).start(AGENT, workspace=PLACE, id="s")
    lines = Selection("a.py", 1, 2)
    await chat.send("one", variables={"shop": "tea"}, active_file="a.py", selection=lines)
    assert await theatre.bodies(WorkspaceChanged) == []
    assert theatre.players.requests[-1].system == "tea big a.py:1-2"


async def test_repeated_message_does_not_change_the_workspace() -> None:
    theatre = Theatre()
    chat = await theatre.runtime(AGENT).start(AGENT, workspace=PLACE, id="s")
    await chat.send("one", idempotency_key="k", variables={"shop": "coffee"})
    assert chat.workspace.variables["shop"] == "coffee"
    await chat.send("two", variables={"shop": "juice"})
    await chat.send("one", idempotency_key="k", variables={"shop": "coffee"})
    await chat.send("three")
    with pytest.raises(IdempotencyMismatch):
        await chat.send("another", idempotency_key="k", variables={"shop": "milk"})
    await chat.send("four")
    systems = [request.system for request in theatre.players.requests]
    assert [text and text.split()[0] for text in systems] == ["coffee", "juice", "juice", "juice"]
    assert chat.workspace.variables["shop"] == "juice"
    assert len(await theatre.bodies(WorkspaceChanged)) == 2


async def test_scope_restricted_at_resume_is_not_recorded_in_the_session() -> None:
    theatre = Theatre()
    runtime = theatre.runtime(AGENT)
    agent = msgspec.structs.replace(AGENT, permissions=Permissions(scope="project"))
    await runtime.start(agent, workspace=PLACE, id="s")
    narrowed = await runtime.resume("s", agent, scope="sandboxed")
    await narrowed.send("one", variables={"shop": "coffee"})
    (change,) = await theatre.bodies(WorkspaceChanged)
    assert change.workspace["scope"] == "project"
    assert narrowed.workspace.scope == "sandboxed"


async def test_workspace_changes_at_the_same_moment_are_combined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theatre = Theatre()
    runtime = theatre.runtime(AGENT)
    older = await runtime.start(AGENT, workspace=PLACE, id="s")
    newer = await runtime.resume("s")
    moving = partial(runtime.resume, "s", workspace=Workspace(variables={"shop": "coffee"}))
    meanwhile(monkeypatch, theatre.memory, WorkspaceChanged.kind, moving)
    await older.send("one", variables={"size": "small"})
    await newer.send("two")
    systems = [request.system for request in theatre.players.requests]
    assert systems == ["coffee small a.py:1-2"] * 2
