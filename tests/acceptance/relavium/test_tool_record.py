"""Each tool call has all fields in the record, whether it ran or not, and however it ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure.errors import TurnFailed
from perdure.models.protocol import StreamEnd, ToolCallDelta
from perdure.session.clock import timestamp
from perdure.session.codec import body_of
from perdure.session.ledger import ToolFinished, ToolStarted
from tests.fakes.chats import until
from tests.fakes.clock import START_MS
from tests.fakes.players import Theatre, asks, words


async def records(theatre: Theatre) -> list[dict[str, Any]]:
    """Build the record of each tool call from the entries of the log."""
    entries = {entry.id: entry for entry in await theatre.entries()}
    found: list[dict[str, Any]] = []
    for entry in entries.values():
        ended = body_of(entry)
        if not isinstance(ended, ToolFinished) or ended.result is None:
            continue
        assert entry.about is not None
        started = body_of(entries[entry.about])
        is_run = isinstance(started, ToolStarted)
        result = entries[ended.result].message
        assert result is not None
        found.append(
            {
                "id": ended.id,
                "name": ended.tool,
                "input": started.input if is_run else ended.input,
                "output": result.text,
                "success": ended.succeeded,
                "error": ended.error,
                "called_at": started.called_at if is_run else ended.called_at,
                "duration_ms": ended.duration_ms,
                "outcome": ended.outcome,
            }
        )
    return found


@perdure.tool(effect="read")
async def look(where: str = "") -> str:
    """Look."""
    return "a tree"


@perdure.tool(effect="read")
async def fail() -> str:
    """Fail."""
    raise ValueError("no tree")


@perdure.tool(effect="read", timeout_s=0.01)
async def linger() -> str:
    """Take too long."""
    await asyncio.Event().wait()
    return "never"


@perdure.tool(effect="write", on_unknown="never")
async def strike() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return "never"


def gated() -> perdure.ToolSpec:
    """`look`, a tool that needs the approval of a person."""
    return perdure.ToolSpec(
        "gated", look.description, look.parameters, look.run, action="os", is_gated=True
    )


def complete(record: dict[str, Any], name: str, outcome: str) -> None:
    """Assert that `record` of a call of the tool `name` has every field."""
    assert (record["name"], record["outcome"]) == (name, outcome)
    assert record["id"] == f"{name}-0"
    assert record["input"] == {}
    assert record["success"] == (outcome == "ok")
    assert record["output"]
    assert bool(record["error"]) == (outcome != "ok")
    assert record["called_at"] == START_MS
    assert isinstance(record["duration_ms"], int)


async def is_running(theatre: Theatre) -> bool:
    """Return whether the log contains the start of a tool."""
    return bool(await theatre.bodies(ToolStarted))


async def begun(*names: str, **agent: Any) -> tuple[Theatre, Any, perdure.Turn]:
    """Begin a turn whose model calls the tools `names`."""
    theatre = Theatre(main=[asks(*names), words("done")])
    tools = [look, fail, linger, strike, gated()]
    chat = await theatre.chat(tools=tools, **agent)
    return theatre, chat, chat.send("go")


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("look", "ok"), ("fail", "error"), ("linger", "timeout"), ("unheard_of", "refused")],
)
async def test_tool_record_of_a_call_that_ended_is_complete(name: str, outcome: str) -> None:
    theatre, _, turn = await begun(name)
    await turn
    (record,) = await records(theatre)
    complete(record, name, outcome)
    if outcome == "refused":
        assert record["duration_ms"] == 0


async def test_tool_record_of_declined_call_has_its_request_time() -> None:
    theatre, chat, turn = await begun("gated")
    async for event in turn:
        if event.type == "inbox:question":
            break
    (asked,) = await chat.session.questions()
    theatre.clock.advance(60)
    await chat.session.answer(asked.id, "deny", by="Ana")
    await turn
    (record,) = await records(theatre)
    complete(record, "gated", "refused")
    assert record["duration_ms"] == 0


async def test_tool_records_of_aborted_calls_are_complete() -> None:
    theatre, chat, _ = await begun("strike", "look")
    await until(lambda: is_running(theatre))
    theatre.clock.advance(2)
    await chat.abort()
    running, pending = await records(theatre)
    complete(running, "strike", "aborted")
    assert running["duration_ms"] == 2_000
    complete(pending | {"id": "look-0"}, "look", "aborted")
    assert (pending["id"], pending["duration_ms"]) == ("look-1", 0)


async def test_tool_record_of_a_call_whose_process_died_is_complete() -> None:
    theatre, chat, _ = await begun("strike")
    await until(lambda: is_running(theatre))
    await chat.suspend()
    theatre.clock.advance(3)
    agent = perdure.Agent("helper", model="p:main", tools=[strike])
    resumed = await theatre.runtime(agent).resume("s")
    assert resumed.turn is not None
    await resumed.turn
    (record,) = await records(theatre)
    complete(record, "strike", "unknown")
    assert record["duration_ms"] == 3_000


async def test_tool_record_of_a_call_in_a_truncated_answer_is_complete() -> None:
    cut = (ToolCallDelta(0, "look-0", "look", "{}"), StreamEnd("length", None))
    theatre = Theatre(main=[cut])
    chat = await theatre.chat(tools=[look])
    assert (await chat.send("go")).end == "length"
    (record,) = await records(theatre)
    complete(record, "look", "refused")


async def test_tool_record_at_the_round_limit_is_complete() -> None:
    theatre, _, turn = await begun("unheard_of", limits=perdure.Limits(max_tool_rounds=1))
    theatre.players.acts["main"].insert(0, asks("unheard_of"))
    with pytest.raises(TurnFailed, match="max_tool_rounds"):
        await turn
    for record in await records(theatre):
        complete(record | {"id": "unheard_of-0"}, "unheard_of", "refused")
    told = [payload for type_, payload in await theatre.events() if type_ == "agent:tool_result"]
    assert len(told) == 2
    for payload in told:
        assert payload["toolInput"] == {}
        assert payload["calledAt"] == timestamp(START_MS)
        assert payload["durationMs"] == 0
