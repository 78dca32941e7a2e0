"""The calls that the documentation promises to programs, each called once as documented.

`python -m tests.acceptance.test_surface` prints a line for each of the calls.
"""

from __future__ import annotations

import asyncio
import importlib
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import assistant, thinking, tool_call, tool_result, user
from perdure.testing import ScriptedModel


@perdure.tool(effect="write", on_unknown="ask")
async def send_mail(to: str, body: str, *, call: perdure.ToolCall) -> str:
    """Send a mail."""
    return f"{to} {bool(call.idempotency_key)}"


ASKED = assistant(tool_call("c1", "send_mail", {"to": "ana", "body": "hi"}))


class Stage:
    """A store on disk, a runtime and a chat with one turn of one tool call."""

    def __init__(self, folder: Path) -> None:
        self.address = f"sqlite:///{folder / 'agents.db'}"
        self.agent = perdure.Agent("helper", model="x:y", tools=[send_mail])
        self.models = ScriptedModel([ASKED, "sent", "again", "more"])

    async def __aenter__(self) -> Stage:
        self.store = await perdure.open(self.address)
        agents = [self.agent]
        self.runtime = perdure.Runtime(self.store, agents=agents, models=self.models)
        self.chat = await self.runtime.start(self.agent, workspace=perdure.Workspace("."))
        turn = self.chat.send("Send it")
        self.events = [event async for event in turn]
        self.reply = await turn
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runtime.close()
        await self.store.close()


async def open_async(stage: Stage) -> bool:
    async with perdure.open(stage.address) as store:
        return len(await store.recent()) == 1


async def open_blocking(stage: Stage) -> bool:
    def opened() -> bool:
        blocking = importlib.import_module("perdure.blocking")
        with blocking.open(stage.address) as store:
            return len(store.recent()) == 1

    return await asyncio.to_thread(opened)


async def messages(stage: Stage) -> bool:
    session = await stage.store.create()
    items = user("x"), assistant("y", thinking("z"), tool_call("c1", "read_file", {"path": "x"}))
    await session.append(*items)
    await session.append(tool_result("c1", "no", is_error=True))
    return len(await session.messages()) == 3


async def tool_calls(stage: Stage) -> bool:
    (call,) = await stage.store.tool_calls(session=stage.chat.id, tool="send_mail")
    failed = await stage.store.tool_calls(failed=True)
    fields = (call.id, call.name, call.output, call.success, call.error)
    times = call.called_at > 0 and call.duration_ms is not None
    return fields == ("c1", "send_mail", "ana True", True, None) and times and not failed


async def records(stage: Stage) -> bool:
    (used,) = await stage.store.usage(by="model")
    (day,) = await stage.store.activity()
    edits = await stage.store.edits()
    return used.calls == 2 and day.turns == 1 and edits == []


async def open_turn(stage: Stage) -> bool:
    return (await stage.chat.session.info()).open_turn is None


async def recovery(stage: Stage) -> bool:
    await stage.runtime.suspend()
    return await stage.runtime.resume_all() == []


async def waiting(stage: Stage) -> bool:
    turn = stage.chat.send("more", while_waiting="raise")
    return (await turn).text == "again" and perdure.errors.Waiting is perdure.errors.Waiting


async def lifecycle(stage: Stage) -> bool:
    await stage.chat.abort()
    await stage.chat.cancel()
    chat = await stage.runtime.resume(stage.chat.id)
    return chat.id == stage.chat.id and (await chat.send("on")).text == "again"


async def json_forms(stage: Stage) -> bool:
    values: list[Any] = [
        *await stage.store.tool_calls(),
        *await stage.store.usage(),
        *await stage.store.activity(),
        await stage.chat.session.info(),
        stage.reply,
        *map(perdure.wire, stage.events),
    ]
    return all(msgspec.json.decode(msgspec.json.encode(each)) for each in values)


SURFACE: dict[str, Callable[[Stage], Awaitable[bool]]] = {
    "async with perdure.open(…); await perdure.open(…)": open_async,
    "perdure.blocking.open(…)": open_blocking,
    "user, assistant, thinking, tool_call, tool_result": messages,
    "store.tool_calls(session=, tool=, failed=)": tool_calls,
    "store.usage(by=), activity(), edits()": records,
    "info.open_turn": open_turn,
    "runtime.resume_all(), suspend()": recovery,
    "chat.send(while_waiting='raise'), errors.Waiting": waiting,
    "chat.abort, cancel; runtime.resume": lifecycle,
    "JSON of returned values": json_forms,
}


@pytest.mark.parametrize("name", SURFACE)
async def test_documented_call_works_as_written(name: str, tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        assert await SURFACE[name](stage)


async def _print() -> None:
    for name, call in SURFACE.items():
        with tempfile.TemporaryDirectory() as folder:
            async with Stage(Path(folder)) as stage:
                print(f"{'works' if await call(stage) else 'differs':8} {name}")  # noqa: T201 - the table is the output


if __name__ == "__main__":
    asyncio.run(_print())
