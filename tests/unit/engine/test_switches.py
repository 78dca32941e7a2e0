"""An imported session of any format continues with the agent's model."""

from __future__ import annotations

import json

import pytest

from perdure import Agent, Runtime, body_of
from perdure.client.clock import Outside
from perdure.client.store import Store
from perdure.interop.continuation import continuation_of
from perdure.interop.reports import FormatName
from perdure.session.ledger import ModelCalled
from perdure.stores.in_memory.store import MemoryStore
from perdure.testing import ScriptedModel
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.sources import FILES, imported

SWITCHING = ("pi", "operator", "codex")
"""Formats whose files record changes of the model."""


async def best_session(memory: MemoryStore, format: FormatName) -> tuple[str, bool]:
    """Return an imported session, if possible with a model change; and whether it has one."""
    names, read = FILES[format]
    found: list[str] = []
    for name in names:
        report = await imported(memory, read(name), format)
        state = await memory.state(report.session)
        window = await memory.context_window(report.session, state.leaf)
        if window.state.model_change is not None:
            return report.session, True
        found += [report.session] if state.info.messages else []
    return found[0], False


@pytest.mark.parametrize("format", list(FILES))
async def test_imported_session_continues_with_the_model_of_the_agent(
    format: FormatName,
) -> None:
    clock, random = ManualClock(), SeededRandom(1)
    memory = MemoryStore(clock=clock, random=random)
    store = Store(memory, Outside(clock, random))
    session, has_switch = await best_session(memory, format)
    assert has_switch == (format in SWITCHING)
    agent = Agent("local", model="test:mine", thinking_level="low")
    models = ScriptedModel(["Done."] * 40)
    async with Runtime(store, [agent], models=models) as runtime:
        chat = await runtime.resume(session, "local")
        assert (await chat.session.info()).model == "test:mine"
        assert (await chat.session.context()).model == "test:mine"
        await chat.send("Go on.")
        await chat.set_model("test:other")
        await chat.send("Go on.")
        forked = await runtime.resume((await chat.session.fork()).id)
        await forked.send("Go on.")
    called = [
        body.model
        for each in (chat, forked)
        async for entry in each.session.entries(kind="model_called")
        if isinstance(body := body_of(entry), ModelCalled)
    ]
    assert called == ["test:mine", "test:other", "test:other"]
    assert {request.thinking_level for request in models.requests} == {"low"}


SWITCHES = (
    {"type": "model_change", "provider": "anthropic", "modelId": "claude-opus-4"},
    {"type": "thinking_level_change", "thinkingLevel": "high"},
    {"type": "model_change", "provider": "openai", "modelId": "gpt-5.1"},
    {"type": "message", "message": {"role": "user", "content": "In pi.", "timestamp": 0}},
)


@pytest.mark.parametrize("switched", [None, "test:other"])
async def test_model_switch_in_an_imported_file_does_not_change_the_model(
    switched: str | None,
) -> None:
    clock, random = ManualClock(), SeededRandom(1)
    memory = MemoryStore(clock=clock, random=random)
    agent = Agent("local", model="test:mine", thinking_level="low")
    models = ScriptedModel(["Done."] * 40)
    store = Store(memory, Outside(clock, random))
    async with Runtime(store, [agent], models=models) as runtime:
        chat = await runtime.start("local")
        if switched is not None:
            await chat.set_model(switched)
        await chat.send("Hello.")
        written = (await continuation_of(memory, chat.id, "pi", cwd="/srv")).exported.content
        lines = written.splitlines()
        parent = json.loads(lines[-1])["id"]
        for number, fields in enumerate(SWITCHES):
            own = {"id": f"ffff000{number}", "parentId": parent}
            line = {**fields, **own, "timestamp": "2026-03-31T23:33:21.000Z"}
            lines.append(json.dumps(line).encode())
            parent = own["id"]
        report = await imported(memory, b"\n".join([*lines, b""]), "pi")
        assert report.session == chat.id
        assert report.entries == len(SWITCHES)
        resumed = await runtime.resume(chat.id)
        await resumed.send("Go on.")
        assert (await resumed.session.info()).model == (switched or "test:mine")
        await resumed.set_model("test:third")
        await resumed.send("Go on.")
    assert "In pi." in models.requests[-1].messages[2].text
    called = [
        body.model
        async for entry in resumed.session.entries(kind="model_called")
        if isinstance(body := body_of(entry), ModelCalled)
    ]
    own_model = switched or "test:mine"
    assert called == [own_model, own_model, "test:third"]
    assert {request.thinking_level for request in models.requests} == {"low"}
