"""Resuming every interrupted turn of a store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure import assistant, tool_call
from perdure.models.scenario import Hang
from perdure.testing import ScriptedModel
from perdure.tools.spec import ToolCall, ToolOutput, ToolSpec
from tests.fakes.chats import MODEL, Stage, says

CHILD = """
import asyncio, sys, perdure
from perdure import assistant, tool_call

@perdure.tool(effect="read")
async def look(where: str) -> str:
    "Look somewhere."
    print("running", flush=True)
    await asyncio.Event().wait()
    return ""

async def main():
    model = perdure.testing.ScriptedModel([assistant(tool_call("c", "look", {"where": "here"}))])
    agent = perdure.Agent("helper", model="x:y", tools=[look])
    async with (
        perdure.open(sys.argv[1]) as store,
        perdure.Runtime(store, agents=[agent], models=model) as runtime,
    ):
        await (await runtime.start("helper", id="killed")).send("go")

asyncio.run(main())
"""


@perdure.tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing {where}"


async def run(call: ToolCall) -> ToolOutput:
    """Do something that needs an approval."""
    return ToolOutput("done")


STRIKE = ToolSpec("strike", "Strike.", {"type": "object"}, run, action="os", is_gated=True)
STRUCK = assistant(tool_call("c", "strike", {}))


async def test_resuming_all_sessions_continues_the_turns_of_a_killed_process(
    tmp_path: Path,
) -> None:
    address = f"sqlite:///{tmp_path / 'a.db'}"
    words = (sys.executable, "-c", CHILD, address)
    child = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert await child.stdout.readline() == b"running\n"
    finally:
        child.kill()
        await child.wait()
    asked = assistant(tool_call("c", "look", {"where": "here"}))
    model = ScriptedModel([asked, "Nothing is here."])
    agent = perdure.Agent("helper", model="x:y", tools=[look])
    async with (
        perdure.open(address) as store,
        perdure.Runtime(store, agents=[agent], models=model) as runtime,
    ):
        await store.create(id="idle")
        (info,) = await store.recent(status="interrupted")
        assert info.open_turn is not None
        assert str(info).startswith("killed  active, turn open, ")
        assert await store.recent(status="interrupted", after=info) == []
        (chat,) = await runtime.resume_all()
        assert chat.id == "killed"
        assert chat.turn is not None
        assert (await chat.turn).text == "Nothing is here."
        assert await store.recent(status="interrupted") == []
        assert await runtime.resume_all() == []
        assert [call.output for call in await store.tool_calls()][-1] == "nothing here"


async def test_resuming_all_sessions_skips_running_turns() -> None:
    stage = Stage(says(Hang(times=1), "hello"))
    agent = perdure.Agent("a", model=MODEL)
    other = perdure.Agent("b", model=MODEL, tools=[look])
    first = stage.runtime(agent, other, owner="first")
    running = await first.start("a", id="running")
    await running.send("go").started()
    suspended = stage.runtime(agent, owner="second")
    for id in ("one", "two"):
        await (await suspended.start("a", id=id)).send(id).started()
    await suspended.suspend()
    names = [info.id for info in await stage.store.recent(status="interrupted")]
    assert sorted(names) == ["one", "two"]
    assert await stage.store.recent(0, status="interrupted") == []
    assert len(await stage.store.recent(1, status="interrupted", id_prefix="t")) == 1
    third = stage.runtime(agent, owner="third")
    errors: list[str] = []
    chats = await third.resume_all(on_error=lambda id, _: errors.append(id))
    assert {chat.id for chat in chats} == {"one", "two"}
    assert errors == []
    assert await third.resume_all() == []
    assert await first.resume_all() == []
    await third.suspend()
    await first.suspend()


async def test_resuming_all_sessions_reports_a_session_of_an_unknown_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"sqlite:///{tmp_path / 'a.db'}"
    agent = perdure.Agent("a", model="x:y", tools=[STRIKE])
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "theirs"))
    async with (
        perdure.open(address, is_trusted=False) as store,
        perdure.Runtime(store, agents=[agent], models=ScriptedModel([STRUCK])) as runtime,
    ):
        turn = (await runtime.start("a", id="s")).send("go", while_waiting="raise")
        with pytest.raises(perdure.errors.Waiting):
            await turn
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "ours"))
    async with (
        perdure.open(address, is_trusted=False) as store,
        perdure.Runtime(store, models=ScriptedModel([])) as runtime,
    ):
        errors: dict[str, perdure.errors.PerdureError] = {}
        assert await runtime.resume_all(on_error=errors.__setitem__) == []
        assert isinstance(errors["s"], perdure.errors.ConfigError)
        assert await runtime.resume_all() == []
        assert "session s was not resumed" in caplog.text


def test_blocking_runtime_can_resume_all_sessions() -> None:
    with perdure.blocking.open("memory:") as store:
        models = ScriptedModel([STRUCK, "Done."])
        agent = perdure.Agent("a", model="x:y", tools=[STRIKE])
        with perdure.blocking.Runtime(store, [agent], models=models) as runtime:
            chat = runtime.start("a")
            with pytest.raises(perdure.errors.Waiting) as caught:
                chat.send("go", while_waiting="raise").result()
            runtime.suspend()
        with perdure.blocking.Runtime(store, [agent], models=models) as runtime:
            (again,) = runtime.resume_all()
            assert again.id == chat.id
            store.answer(caught.value.question.id, "allow", by="ana")
            assert again.turn is not None
            assert again.turn.result().text == "Done."
