"""Turns as spans and measurements, through the SDK of OpenTelemetry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from perdure.client.agents import runtime_services
from perdure.client.agents.chat import Chat
from perdure.engine.telemetry.attributes import MAX_CONTENT
from perdure.errors import TurnFailed
from perdure.events.scope import within
from perdure.models.scenario import CallTools, Fail, Reply, ScriptedCall
from perdure.session.messages import Usage
from perdure.tools.decorator import tool
from tests.fakes.chats import Stage, says
from tests.fakes.telemetry import Telemetry, always, attributes

KEY = "sk-ant-" + "a1B2" * 8
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@tool(effect="read")
async def look(where: str) -> str:
    """Record an event in the current span."""
    trace.get_current_span().add_event("looked")
    return f"{where}: nothing, but a key {KEY}"


def looking(where: str = "here") -> Reply:
    json = f'{{"where": "{where}"}}'
    return says(CallTools((ScriptedCall("look", json, id="c1"),)))


async def observed(
    monkeypatch: pytest.MonkeyPatch, *replies: Reply, **options: Any
) -> tuple[Chat, Telemetry]:
    told = Telemetry()
    stage = Stage(*replies)
    observer = told.observer(stage.clock, **options)
    monkeypatch.setattr(runtime_services, "chosen_observer", always(observer))
    return await stage.chat([look]), told


async def test_turn_span_has_child_spans_of_calls_and_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat, told = await observed(monkeypatch, looking(), says("done", usage=Usage(7, 2)))
    await chat.send("go")
    turn, ran = told.span("invoke_agent helper"), told.span("execute_tool look")
    first, second = [span for span in told.spans if span.name == "chat test"]
    assert turn.parent is None
    for below in (first, ran, second):
        assert below.parent is not None
        assert turn.context is not None
        assert below.parent.span_id == turn.context.span_id
        assert attributes(below)["gen_ai.conversation.id"] == "s"
        assert attributes(below)["perdure.turn"] == 1
    assert attributes(turn)["perdure.turn.end"] == "stop"
    about = attributes(second)
    assert about["gen_ai.operation.name"] == "chat"
    assert about["gen_ai.provider.name"] == "scripted"
    assert about["gen_ai.request.model"] == about["gen_ai.response.model"] == "test"
    assert about["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes(ran)["gen_ai.tool.call.id"] == "c1"
    assert attributes(ran)["perdure.tool.outcome"] == "ok"
    assert [event.name for event in ran.events] == ["looked"]


async def test_each_parallel_tool_has_a_separate_span(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = ("a", "b", "c")
    asked = [ScriptedCall("look", f'{{"where": "{name}"}}', id=name) for name in places]
    chat, told = await observed(monkeypatch, says(CallTools(tuple(asked))), says("done"))
    await chat.send("go")
    turn = told.span("invoke_agent helper")
    ran = [span for span in told.spans if span.name == "execute_tool look"]
    assert sorted(str(attributes(span)["gen_ai.tool.call.id"]) for span in ran) == list(places)
    for span in ran:
        assert [event.name for event in span.events] == ["looked"]
        assert span.parent is not None
        assert turn.context is not None
        assert span.parent.span_id == turn.context.span_id
        assert attributes(span)["perdure.tool.outcome"] == "ok"


async def test_spans_have_no_content_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat, told = await observed(monkeypatch, looking("attic"), says("done"))
    await chat.send("my plan")
    everything = " ".join(span.to_json() for span in told.spans)
    assert not any(word in everything for word in ("my plan", "attic", "nothing", "done"))


async def test_recorded_content_contains_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    replies = (looking("attic"), says("done"))
    chat, told = await observed(monkeypatch, *replies, has_content=True)
    await chat.send(f"my plan, with {KEY}")
    turn, ran = told.span("invoke_agent helper"), told.span("execute_tool look")
    assert "my plan" in attributes(turn)["gen_ai.input.messages"]
    assert "done" in attributes(turn)["gen_ai.output.messages"]
    assert "attic" in attributes(ran)["gen_ai.tool.call.arguments"]
    assert "[redacted]" in attributes(ran)["gen_ai.tool.call.result"]
    assert not any(KEY in span.to_json() for span in told.spans)


async def test_spans_contain_only_the_error_code_of_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat, told = await observed(monkeypatch, says(Fail("model_refused", KEY)))
    with pytest.raises(TurnFailed):
        await chat.send("go")
    turn = told.span("invoke_agent helper")
    calls = [span for span in told.spans if span.name == "chat test"]
    assert calls
    for span in (turn, *calls):
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"]
        assert KEY not in span.to_json()


async def test_turn_span_is_child_of_current_span(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat, told = await observed(monkeypatch, says("done"), environment={"TRACEPARENT": PARENT})
    with told.tracers.get_tracer("program").start_as_current_span("request") as request:
        await chat.send("go")
    turn = told.span("invoke_agent helper")
    assert turn.parent is not None
    assert turn.parent.span_id == request.get_span_context().span_id


async def test_w3c_trace_context_of_the_process_is_continued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat, told = await observed(monkeypatch, says("done"), environment={"TRACEPARENT": PARENT})
    await chat.send("go")
    turn = told.span("invoke_agent helper")
    assert turn.parent is not None
    assert f"{turn.parent.trace_id:032x}-{turn.parent.span_id:016x}" in PARENT


async def test_every_flow_span_has_flow_role_and_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat, told = await observed(monkeypatch, looking(), says("done"))
    with within(flow="f1", role="writer", node="draft"):
        await chat.send("go")
    assert len(told.spans) == 4
    for span in told.spans:
        found = attributes(span)
        names = ("flow", "role", "node", "session", "turn")
        assert [found[f"perdure.{name}"] for name in names] == ["f1", "writer", "draft", "s", 1]


async def test_usage_and_duration_of_a_call_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    chat, told = await observed(monkeypatch, looking(), says("done", usage=Usage(7, 2)))
    await chat.send("go")
    taken = told.points("gen_ai.client.token.usage")
    assert {point.attributes["gen_ai.token.type"] for point in taken} == {"input", "output"}
    (calls,) = told.points("gen_ai.client.operation.duration")
    assert calls.count == 2
    (turns,) = told.points("gen_ai.invoke_agent.duration")
    assert (turns.count, turns.attributes["perdure.turn.end"]) == (1, "stop")
    (tools,) = told.points("gen_ai.execute_tool.duration")
    assert tools.attributes["gen_ai.tool.name"] == "look"


async def test_abandoned_turn_ends_its_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    began = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait for ever."""
        began.set()
        await asyncio.Event().wait()
        return "never"

    told = Telemetry()
    stage = Stage(says(CallTools((ScriptedCall("wait", "{}", id="c1"),))))
    observer = told.observer(stage.clock)
    monkeypatch.setattr(runtime_services, "chosen_observer", always(observer))
    chat = await stage.chat([wait])
    turn = chat.send("go")
    await began.wait()
    await turn.stop()
    assert attributes(told.span("execute_tool wait"))["error.type"] == "CancelledError"
    assert attributes(told.span("invoke_agent helper"))["error.type"] == "CancelledError"


async def test_running_turns_and_tokens_are_measured_by_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running: list[dict[str, int]] = []

    @tool(effect="read")
    async def look(where: str) -> str:
        """Record how many turns run during the call."""
        points = told.points("perdure.turns.running")
        running.extend({each.attributes["perdure.namespace"]: each.value} for each in points)
        return where

    told = Telemetry()
    stage = Stage(looking(), says("done", usage=Usage(7, 2)))
    observer = told.observer(stage.clock, namespace="shop")
    monkeypatch.setattr(runtime_services, "chosen_observer", always(observer))
    await (await stage.chat([look])).send("go")
    assert running == [{"shop": 1}]
    (after,) = told.points("perdure.turns.running")
    assert after.value == 0
    tokens = told.points("gen_ai.client.token.usage")
    assert {point.attributes["perdure.namespace"] for point in tokens} == {"shop"}
    assert {point.attributes["gen_ai.request.model"] for point in tokens} == {"test"}


async def test_end_of_cut_tool_result_contains_no_part_of_a_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "x" * (MAX_CONTENT - len(": nothing, but a key sk-ant-a1"))
    chat, told = await observed(monkeypatch, looking(long), says("done"), has_content=True)
    await chat.send("go")
    result = attributes(told.span("execute_tool look"))["gen_ai.tool.call.result"]
    assert "but a key" in result
    assert "sk-ant" not in result
