"""Stale approvals across real processes: question, answer and run in three processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.clock import SystemClock
from perdure.client.conversation.workspace import Workspace
from perdure.client.store import Store
from perdure.engine.hooks.registry import Hooks
from perdure.models.scenario import CallTools, Scenario, ScriptedCall
from perdure.models.scripted import ScriptedModel
from perdure.tools.permissions import Permissions
from tests.acceptance.cli.conftest import World
from tests.fakes.chats import MODEL, Stage, says, until
from tests.fakes.forked import forked, preload
from tests.fakes.mcp_servers import local

preload(__name__)

Change = Callable[[Path], object]


def retarget(folder: Path) -> None:
    (folder / "l").unlink()
    (folder / "l").symlink_to("two")


COMMANDS: dict[str, tuple[str, Change, Callable[[Path], bool]]] = {
    "file_changed": (
        'write_file {"path": "a.txt", "content": "WRITTEN"}',
        lambda folder: (folder / "a.txt").write_text("mine"),
        lambda folder: (folder / "a.txt").read_text() == "WRITTEN",
    ),
    "folder_retargeted": (
        'write_file {"path": "l/x", "content": "WRITTEN"}',
        retarget,
        lambda folder: (folder / "two" / "x").exists(),
    ),
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "l").symlink_to("one")
    return World(tmp_path)


@pytest.mark.parametrize("name", COMMANDS)
def test_call_changed_between_three_processes_requires_new_approval(
    world: World, name: str
) -> None:
    call, change, is_done = COMMANDS[name]
    assert world.run("chat", "-p", f"/tool {call}").code == 1
    (first,) = world.ok("inbox", "list", "--json").json
    change(world.folder)
    world.ok("inbox", "answer", first["id"], "allow")
    session = world.ok("sessions", "list", "--json").json[0]["id"]
    assert world.run("chat", "--session", session, "-p", "go on").code == 1
    assert not is_done(world.folder)
    (second,) = world.ok("inbox", "list", "--json").json
    assert second["id"] != first["id"]
    assert second["bound"] != first["bound"]
    world.ok("inbox", "answer", second["id"], "allow")
    world.ok("chat", "--session", session, "-p", "go on")
    assert is_done(world.folder)


def test_inbox_shows_everything_that_an_approval_covers(world: World) -> None:
    """The inbox shows every argument, the folder, the hashes, the diff and the text of "always"."""
    content = "\n".join(f"line {n} \x1b[2K\u202e" for n in range(400))
    call = json.dumps({"path": "a.txt", "content": content})
    world.run("chat", "-p", f"/tool write_file {call}")
    (asked,) = world.ok("inbox", "list", "--json").json
    assert asked["arguments"]["content"]["bytes"] == len(content.encode())
    assert asked["bound"]["file"] == str(world.folder / "a.txt")
    assert asked["bound"]["before"].startswith("3 bytes, blake2b-256 ")
    assert asked["always"] is not None
    listed = world.ok("inbox", "list").out
    assert "line 1" not in listed
    assert not re.search("[0-9a-f]{64}", listed)
    assert f"perdure inbox show {asked['id']}" in listed
    whole = world.ok("inbox", "show", asked["id"]).out
    for fact in (asked["bound"]["content"], asked["bound"]["folder"], asked["always"]):
        assert fact in whole
    assert whole.count("| +line") == 400
    assert not set("\x1b\u202e") & set(listed + whole)
    shown = world.ok("inbox", "show", asked["id"], "--json").json
    assert shown["arguments"]["content"] == content
    assert world.run("inbox", "show", "nothing").code == 3


# ---------------------------------------------------------------- kill -9


CALLS = {
    "write": ("write_file", '{"path": "a.txt", "content": "WRITTEN"}'),
    "command": ("run_command", '{"command": "sh go.sh"}'),
}
ANY = Permissions(allowed_commands=("sh go.sh",))


def changed(name: str, folder: Path) -> None:
    """Change the facts that the call `name` is bound to."""
    path, text = ("a.txt", "mine") if name == "write" else ("go.sh", "touch ran\n")
    (folder / path).write_text(text)


def is_done(name: str, folder: Path) -> bool:
    """Return True if the call took effect."""
    if name == "command":
        return (folder / "ran").exists()
    return (folder / "a.txt").exists() and (folder / "a.txt").read_text() == "WRITTEN"


def stage(name: str, *, hangs: bool = False) -> tuple[Agent, ScriptedModel]:
    tool, args = CALLS[name]
    call = ScriptedCall(tool, args, id="c")
    scenario = Scenario(name="test", sequence=(says(CallTools((call,))), says("done")))
    hooks = Hooks()
    if hangs:
        hooks.on("tool_call", _hang)
    agent = Agent("helper", model=MODEL, tools=(tool,), permissions=ANY, hooks=hooks)
    return agent, ScriptedModel(scenario, clock=SystemClock())


async def _hang(point: Any) -> None:
    os.write(1, b"hanging\n")
    await asyncio.sleep(3600)


def ask(database: str, folder: str, name: str, hangs: bool) -> None:
    """Run the turn in this process until it is killed."""
    asyncio.run(_ask(database, folder, name, hangs=hangs))


async def _ask(database: str, folder: str, name: str, *, hangs: bool) -> None:
    agent, models = stage(name, hangs=hangs)
    async with perdure.open(f"sqlite:///{database}") as store:
        runtime = Runtime(store, [agent], models=models)
        chat = await runtime.start(agent, id="s", workspace=Workspace(working_dir=folder))
        turn = chat.send("go")

        async def is_waiting() -> bool:  # and writes nothing more: it may be stopped
            return turn.is_waiting

        await until(is_waiting)
        os.write(1, f"{os.getpid()}\n".encode())
        await turn


async def kinds(store: Store) -> list[str]:
    session = await store.open("s")
    return [entry.kind async for entry in session.entries()]


async def resumed(store: Store, name: str, count: int) -> str:
    """Resume the session, wait for `count` questions, and return the id of the open question."""
    agent, models = stage(name)
    runtime = Runtime(store, [agent], models=models)
    await runtime.resume("s", agent)

    await until(lambda: _has(store, "question", count))
    (waiting,) = await (await store.open("s")).questions()
    return waiting.id


@pytest.mark.parametrize("name", CALLS)
async def test_call_changed_after_answer_and_kill_requires_new_approval(
    tmp_path: Path, name: str
) -> None:
    """The asking process is stopped, the answer arrives, the file changes, kill -9."""
    folder, database = tmp_path / "work", str(tmp_path / "s.db")
    folder.mkdir()
    (folder / "go.sh").write_text("true\n")
    with forked(ask, database, str(folder), name, False) as child:
        os.kill(int(child.line()), signal.SIGSTOP)
        async with perdure.open(f"sqlite:///{database}") as store:
            (waiting,) = await store.questions()
            await store.answer(waiting.id, "allow", by="me")
        changed(name, folder)
        child.kill()
        child.ended()
    async with perdure.open(f"sqlite:///{database}") as store:
        again = await resumed(store, name, 2)
        assert not is_done(name, folder)
        await store.answer(again, "deny", by="me")
        await until(lambda: _has(store, "turn_finished", 1))
    assert not is_done(name, folder)


@pytest.mark.parametrize("name", CALLS)
async def test_retry_after_kill_requires_new_approval_of_changed_call(
    tmp_path: Path, name: str
) -> None:
    """After the kill, the outcome is unknown; "retry" runs the approved call only if unchanged."""
    folder, database = tmp_path / "work", str(tmp_path / "s.db")
    folder.mkdir()
    (folder / "go.sh").write_text("true\n")
    with forked(ask, database, str(folder), name, True) as child:
        child.line()
        async with perdure.open(f"sqlite:///{database}") as store:
            (waiting,) = await store.questions()
            await store.answer(waiting.id, "allow", by="me")
        assert child.line() == b"hanging\n"
        child.kill()
        child.ended()
    changed(name, folder)
    async with perdure.open(f"sqlite:///{database}") as store:
        unknown = await resumed(store, name, 2)
        await store.answer(unknown, "retry", by="me")
        await until(lambda: _has(store, "question", 3))
        (waiting,) = await store.questions()
        assert waiting.question.topic == "approval"
        assert not is_done(name, folder)
        await store.answer(waiting.id, "allow", by="me")
        await until(lambda: _has(store, "turn_finished", 1))
    assert is_done(name, folder)


async def _has(store: Store, kind: str, count: int) -> bool:
    """Return True if the session has `count` entries of `kind`, or its turn is over."""
    found = await kinds(store)
    return found.count(kind) >= count or "turn_finished" in found


# ---------------------------------------------------------------- servers


@pytest.mark.all_only
async def test_mcp_server_changed_before_the_answer_requires_new_approval(
    tmp_path: Path,
) -> None:
    """The same name and tool, but another program is configured: no call reaches either program."""
    step = CallTools((ScriptedCall("mcp_fake_send", '{"to": "ann"}', id="c"),))
    world = Stage(says(step), says("done"))
    one, two = (
        Agent("helper", model=MODEL, mcp_servers=(local(tmp_path / name),)) for name in "12"
    )
    async with world.runtime(one) as runtime:
        chat = await runtime.start(one, id="s")
        chat.send("go")
        await until(lambda: _has(world.store, "question", 1))
        (waiting,) = await world.store.questions()
        assert waiting.question.arguments == {"to": "ann"}
        await chat.suspend()
    await world.store.answer(waiting.id, "allow", by="me")
    async with world.runtime(two) as runtime:
        chat = await runtime.resume("s", two)
        await until(lambda: _has(world.store, "question", 2))
        (again,) = await world.store.questions()
        assert again.id != waiting.id
        await chat.suspend()
    for name in "12":
        assert "sent" not in (tmp_path / name).read_text()
