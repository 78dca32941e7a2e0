"""A resumed session has its recorded agent, with at most the agent's current permissions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.client.agents import bindings
from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.agents.runtime import Runtime
from perdure.client.conversation.authority import Authority
from perdure.client.conversation.workspace import Workspace
from perdure.errors import ConfigError
from perdure.interop.exports import export_session
from perdure.interop.imports import import_source
from perdure.session.codec import body_of
from perdure.session.ids import StreamId
from perdure.session.notes import AgentBound
from perdure.stores.session_store import SessionStore
from perdure.tools.permissions import Permissions
from tests.fakes.chats import MODEL, Stage, says
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.rivals import meanwhile

WIDE: dict[str, Any] = {
    "scope": "full",
    "approval": "auto",
    "allowed_commands": ("true",),
    "allowed_command_globs": ("echo *",),
    "command_env": {"A": "1"},
    "allowed_domains": ("example.org",),
    "credentials": {"example.org": "{{secrets.X}}"},
}
TOOLS = ("read_file", "write_file", "run_command")


def helper(*tools: str, **permissions: Any) -> Agent:
    allowed = Permissions(**permissions)
    return Agent("helper", model=MODEL, tools=tools, permissions=allowed, instructions="Mine.")


async def started(stage: Stage, agent: Agent) -> Chat:
    return await stage.runtime(agent).start(agent, id="s")


@pytest.mark.parametrize(
    "narrower",
    [
        {**WIDE, "scope": "sandboxed"},
        {**WIDE, "approval": "plan"},
        {**WIDE, "allowed_commands": (), "allowed_command_globs": ()},
        {**WIDE, "command_env": {"A": "2"}},
        {**WIDE, "credentials": {}},
        {},
    ],
)
async def test_resumed_session_has_at_most_the_permissions_of_the_current_agent(
    narrower: Any,
) -> None:
    stage = Stage(says("hi"))
    await started(stage, helper(*TOOLS, **WIDE))
    today = helper("read_file", **narrower)
    for given in (today, None):
        chat = await stage.runtime(today).resume("s", given)
        assert chat.agent.registry.names == ("read_file",)
        for field in ("scope", "approval", "allowed_commands", "allowed_command_globs"):
            assert getattr(chat.agent.permissions, field) == getattr(today.permissions, field)
        assert chat.agent.permissions.credentials == narrower.get("credentials", {})
        assert chat.workspace.scope == today.permissions.scope
    assert (await stage.runtime().resume("s", helper(*TOOLS, **WIDE))).agent.registry.names


async def test_permissions_can_be_restricted_but_not_extended_at_each_resume() -> None:
    stage = Stage(says("hi"))
    wide, narrow = helper(*TOOLS, **WIDE), helper("read_file")
    await started(stage, wide)
    runtime = stage.runtime(wide)
    chat = await runtime.resume("s", wide, tools=["read_file"], scope="sandboxed")
    assert chat.agent.registry.names == ("read_file",)
    assert chat.agent.permissions.scope == "sandboxed"
    assert (await runtime.resume("s", wide)).agent.registry.names == TOOLS
    other = Stage(says("hi"))
    await started(other, narrow)
    assert (await other.runtime().resume("s", wide)).agent.registry.names == ("read_file",)
    with pytest.raises(ConfigError, match="wider"):
        await other.runtime().resume("s", wide, scope="full")


async def test_concurrent_resumes_of_a_new_session_bind_one_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage, agent = Stage(), helper("read_file")
    runtime = stage.runtime(agent)
    await stage.store.open_or_create("s")
    read, others = bindings.authority_of, [agent]

    async def read_before_another_binds(store: SessionStore, session: StreamId) -> Authority:
        known = await read(store, session)
        if others:
            await runtime.resume(session, others.pop())
        return known

    monkeypatch.setattr(bindings, "authority_of", read_before_another_binds)
    chat = await runtime.resume("s", agent)
    assert [entry.kind async for entry in chat.session.entries()] == [AgentBound.kind]


def move_after_read(monkeypatch: pytest.MonkeyPatch, runtime: Runtime, place: Workspace) -> None:
    """Move the session to `place` once, right after its agent in force was read."""
    read, others = bindings.authority_of, [place]

    async def read_before_another_moves(store: SessionStore, session: StreamId) -> Authority:
        known = await read(store, session)
        if others:
            await runtime.resume(session, workspace=others.pop())
        return known

    monkeypatch.setattr(bindings, "authority_of", read_before_another_moves)


@pytest.mark.parametrize("change", ["grant", "move"])
async def test_workspace_change_during_another_change_of_the_session_is_kept(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    stage = Stage()
    agent = msgspec.structs.replace(helper(), instructions="{{ctx.shop}} {{ctx.size}}")
    runtime = stage.runtime(agent)
    await runtime.start(agent, workspace=Workspace(variables={"shop": "tea", "size": "big"}))
    (session,) = await stage.store.recent()
    move_after_read(monkeypatch, runtime, Workspace(variables={"shop": "coffee"}))
    if change == "grant":
        await runtime.grant(session.id, agent, by="ana")
    else:
        await runtime.resume(session.id, workspace=Workspace(variables={"size": "small"}))
    chat = await runtime.resume(session.id)
    assert chat.workspace.variables["shop"] == "coffee"
    assert chat.workspace.variables["size"] == ("big" if change == "grant" else "small")


async def test_folder_that_lists_show_follows_a_move_during_a_resume(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    stage = Stage()
    runtime = stage.runtime(helper())
    chat = await runtime.start(helper(), workspace=Workspace(working_dir=str(first)))
    move_after_read(monkeypatch, runtime, Workspace(working_dir=str(second)))
    resumed = await runtime.resume(chat.session.id, workspace=Workspace(working_dir=str(first)))
    (listed,) = await stage.store.recent()
    assert resumed.workspace.working_dir == listed.cwd == str(first)
    assert (await runtime.resume(chat.session.id)).workspace.working_dir == str(first)


async def test_grant_extends_session_permissions_permanently_and_is_recorded() -> None:
    stage = Stage(says("hi"))
    wide = helper(*TOOLS, **WIDE)
    await started(stage, helper("read_file"))
    await stage.runtime().grant("s", wide, by="ana")
    chat = await stage.runtime().resume("s", wide)
    assert chat.agent.registry.names == TOOLS
    assert chat.agent.permissions == wide.permissions
    (note,) = await stage.memory.notes(StreamId("s"), (AgentBound.kind,))
    assert chat.agent.instructions == "Mine."
    assert getattr(body_of(note), "granted_by") == "ana"  # noqa: B009 - of another kind it has none


async def imported(stage: Stage) -> Stage:
    """Return the session of `stage`, exported and imported into another store."""
    content = (await export_session(stage.memory, StreamId("s"), "perdure")).content
    other = Stage(says("hi"))
    await import_source(other.memory, content, clock=ManualClock(), random=SeededRandom(2))
    return other


async def test_imported_session_gets_no_more_permissions_than_the_local_agent() -> None:
    stage = Stage(says("hi"))
    theirs = msgspec.structs.replace(helper(*TOOLS, **WIDE), instructions="Obey the file.")
    await started(stage, theirs)
    other = await imported(stage)
    mine = helper("read_file", "write_file", "git_status", scope="sandboxed")
    with pytest.raises(ConfigError, match="imported"):
        await other.runtime(mine).resume("s")
    chat = await other.runtime(mine).resume("s", mine)
    assert chat.agent.registry.names == ("read_file", "write_file")
    assert chat.agent.permissions == mine.permissions
    assert await chat.send("hi")
    bound = body_of((await other.memory.notes(StreamId("s"), (AgentBound.kind,)))[-1])
    assert isinstance(bound, AgentBound)
    assert bound.system_prompt == "Mine."
    wide = helper(*TOOLS, **WIDE)
    again = await other.runtime(wide).resume("s")
    assert again.agent.permissions.scope == "sandboxed"


async def test_imported_session_is_exported_with_the_same_bytes() -> None:
    stage = Stage(says("hi"))
    chat = await started(stage, helper(*TOOLS, **WIDE))
    await chat.send("hello")
    other = await imported(stage)
    first = await export_session(stage.memory, StreamId("s"), "perdure")
    assert (await export_session(other.memory, StreamId("s"), "perdure")).content == first.content


async def test_agent_bound_just_before_another_binding_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage, agent = Stage(), helper("read_file")
    runtime = stage.runtime(agent)
    await stage.store.open_or_create("s")
    meanwhile(monkeypatch, stage.memory, AgentBound.kind, lambda: runtime.resume("s", agent))
    await runtime.resume("s", agent)
    assert await stage.kinds() == [AgentBound.kind]
