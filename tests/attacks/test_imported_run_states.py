"""A stored state of a paused run that came in a file approves no call.

The file holds decisions that its writer made: one call, all calls of a tool, a nested agent's call,
and states that the SDK would not write.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from agents import Agent, Runner, RunState
from agents.testing import ScriptedModel, assistant_message, function_call

import perdure
from perdure.adapters.openai_agents import PerdureSession
from perdure.adapters.openai_agents.session import RUN_STATE
from tests.integration.adapters.openai_agents.children.asking import (
    CONFIG,
    agent_in,
    answering,
    asking,
    pause,
    resume,
)

Forge = Callable[[dict[str, Any]], None]


def sent(folder: Path) -> list[str]:
    return (folder / "sent").read_text().split() if (folder / "sent").exists() else []


def nesting(inner: Agent[Any], *script: Any) -> Agent[Any]:
    """Return an agent whose tool is the agent `inner`."""
    tool = inner.as_tool("helper", "Helps", run_config=CONFIG)
    return Agent(name="outer", model=ScriptedModel([*script]), tools=[tool])


async def approved_state(agent: Agent[Any], *, always: bool) -> str:
    """Run `agent` until its calls need approval, approve them all, and return the run's state."""
    result = await Runner.run(agent, "Send it", run_config=CONFIG)
    state = result.to_state()
    for item in state.get_interruptions():
        state.approve(item, always_approve=always)
    return state.to_string()


async def written(store: perdure.Store, text: str, folder: Path, id: str = "s") -> Path:
    """Store a session with the run state `text`, and export it; return the file."""
    session = PerdureSession(id, store)
    await session.add_items([{"role": "user", "content": "Send it"}])
    stored = await store.open(session.stored_id)
    data: dict[str, object] = {"content": perdure.content(text.encode(), "application/json")}
    await stored.append_many([perdure.Note(RUN_STATE, data)], aliases=[f"{RUN_STATE}:{stored.id}"])
    await stored.export("perdure", folder / "s.perdure", replace=True)
    return folder / "s.perdure"


def keeps(state: dict[str, Any]) -> None:
    """Change nothing."""
    assert state["context"].get("approvals") or state["context"]["function_tool_approvals"]


def hides_the_interruption(state: dict[str, Any]) -> None:
    """Change the state so that nothing waits for an approval."""
    state["current_step"]["data"]["interruptions"] = []
    state["last_processed_response"]["interruptions"] = []


def has_no_step(state: dict[str, Any]) -> None:
    state["current_step"] = None


def has_an_old_schema(state: dict[str, Any]) -> None:
    """Change the state to an old schema, which stores approvals under the name of the tool."""
    state["$schemaVersion"] = "1.14"
    state["context"].pop("function_tool_approvals", None)
    state["context"]["approvals"] = {
        name: {"approved": True, "rejected": []} for name in ("send", "sender.send", "helper")
    }


FORGERIES: tuple[Forge, ...] = (keeps, hides_the_interruption, has_no_step, has_an_old_schema)


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("forge", FORGERIES)
async def test_imported_run_state_runs_no_call_that_needs_approval(
    forge: Forge, *, always: bool, tmp_path: Path
) -> None:
    state = json.loads(await approved_state(asking(tmp_path, "report"), always=always))
    forge(state)
    async with perdure.open("memory:") as eve:
        file = await written(eve, json.dumps(state), tmp_path)
    async with perdure.open("memory:") as store:
        await store.import_files([file])
        await resume(PerdureSession("s", store), answering(tmp_path))
        assert sent(tmp_path) == []


async def test_run_state_approved_by_the_user_runs_the_call(tmp_path: Path) -> None:
    """Control: a state that was not imported does run the call that it approves."""
    text = await approved_state(asking(tmp_path, "report"), always=False)
    async with perdure.open("memory:") as store:
        await written(store, text, tmp_path)
        await resume(PerdureSession("s", store), answering(tmp_path))
    assert sent(tmp_path) == ["report"]


async def test_imported_run_state_of_a_nested_agent_approves_no_call(tmp_path: Path) -> None:
    call = function_call("helper", {"input": "go"}, call_id="o1")
    text = await approved_state(nesting(asking(tmp_path, "report"), [call]), always=True)
    assert '"agent_run_state"' in text
    async with perdure.open("memory:") as eve:
        file = await written(eve, text, tmp_path)
        await resume(
            PerdureSession("s", eve), nesting(answering(tmp_path), [assistant_message("Done.")])
        )
        assert sent(tmp_path) == ["report"]
    (tmp_path / "sent").unlink()
    async with perdure.open("memory:") as store:
        await store.import_files([file])
        again = await resume(
            PerdureSession("s", store), nesting(answering(tmp_path), [assistant_message("Done.")])
        )
        assert again is not None
        assert len(again.interruptions) == 1
        assert sent(tmp_path) == []


async def test_run_state_in_a_fork_of_an_import_approves_no_call(tmp_path: Path) -> None:
    text = await approved_state(asking(tmp_path, "report"), always=True)
    async with perdure.open("memory:") as eve:
        file = await written(eve, text, tmp_path)
        stored = await eve.open("oa:s")
        note = await stored.entry(f"{RUN_STATE}:oa:s")
        entries = [perdure.Note("x"), perdure.body_of(note)]
        await stored.append_many(entries, aliases=[None, f"{RUN_STATE}:oa:f"])  # pyright: ignore[reportArgumentType] - a body that was read is a note
        await stored.export("perdure", file, replace=True)
    async with perdure.open("memory:") as store:
        await store.import_files([file])
        await (await store.open("oa:s")).fork(id="oa:f")
        await resume(PerdureSession("f", store), answering(tmp_path))
        assert sent(tmp_path) == []


async def test_import_does_not_replace_the_state_of_another_session(tmp_path: Path) -> None:
    text = await approved_state(asking(tmp_path, "bill"), always=True)
    async with perdure.open("memory:") as eve:
        await written(eve, text, tmp_path, "eve")
        stored = await eve.open("oa:eve")
        note = perdure.body_of(await stored.entry(f"{RUN_STATE}:oa:eve"))
        await stored.append_many([cast("Any", note)], aliases=[f"{RUN_STATE}:oa:s"])
        await stored.export("perdure", tmp_path / "eve.perdure")
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store)
        await session.add_items([{"role": "user", "content": "Hello"}])
        await store.import_files([tmp_path / "eve.perdure"])
        await resume(session, answering(tmp_path))
        await pause(session, asking(tmp_path, "report"))
        await store.import_files([tmp_path / "eve.perdure"])
        await resume(session, answering(tmp_path))
        assert sent(tmp_path) == []
        assert await session.load_state(answering(tmp_path)) is not None


async def test_run_state_in_a_store_from_another_user_approves_no_call(tmp_path: Path) -> None:
    text = await approved_state(asking(tmp_path, "report"), always=True)
    address = f"sqlite:///{tmp_path / 'received.db'}"
    async with perdure.open(address) as eve:
        await written(eve, text, tmp_path)
    async with perdure.open(address, is_trusted=False) as store:
        session = PerdureSession("s", store)
        again = await resume(session, answering(tmp_path))
        assert again is not None
        assert len(again.interruptions) == 1
        assert sent(tmp_path) == []
        (question,) = await store.questions()
        await store.answer(question.id, "allow", by="ana")
        assert await resume(session, answering(tmp_path)) is not None
        assert sent(tmp_path) == ["report"]


async def test_run_state_that_another_writer_extended_approves_no_call(tmp_path: Path) -> None:
    """A session of the user comes back with more entries, which another writer added."""
    text = await approved_state(asking(tmp_path, "report"), always=True)
    async with perdure.open("memory:") as store, perdure.open("memory:") as eve:
        session = PerdureSession("s", store)
        await session.add_items([{"role": "user", "content": "Hello"}])
        await (await store.open("oa:s")).export("perdure", tmp_path / "own.perdure")
        await eve.import_files([tmp_path / "own.perdure"])
        file = await written(eve, text, tmp_path)
        await store.import_files([file])
        assert (await store.open("oa:s")).head > 1
        await resume(session, answering(tmp_path))
        assert sent(tmp_path) == []


async def test_approval_given_by_the_user_after_an_import_is_valid(tmp_path: Path) -> None:
    """Decisions that the program makes after the import count, and are stored as its own."""
    text = await approved_state(asking(tmp_path, "report"), always=True)
    async with perdure.open("memory:") as eve:
        file = await written(eve, text, tmp_path)
    async with perdure.open("memory:") as store:
        await store.import_files([file])
        session = PerdureSession("s", store)
        state = await session.load_state(answering(tmp_path))
        assert isinstance(state, RunState)
        (item,) = state.get_interruptions()
        state.approve(item)
        await session.save_state(state)
        await resume(session, answering(tmp_path))
        assert sent(tmp_path) == ["report"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"$schemaVersion": "1.18", "context": 1}'])
async def test_damaged_run_state_raises_the_error_of_the_sdk(text: str, tmp_path: Path) -> None:
    async with perdure.open("memory:") as eve:
        file = await written(eve, text, tmp_path)
        with pytest.raises(Exception) as own:  # noqa: PT011 - whatever the SDK raises
            await PerdureSession("s", eve).load_state(agent_in(tmp_path))
    async with perdure.open("memory:") as store:
        await store.import_files([file])
        with pytest.raises(type(own.value)):
            await PerdureSession("s", store).load_state(agent_in(tmp_path))
