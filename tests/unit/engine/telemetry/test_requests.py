"""Telemetry of model requests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.client.agents import runtime_services
from perdure.client.agents.chat import Chat
from perdure.models.scenario import Reply
from tests.fakes.chats import Stage, calls, says
from tests.fakes.telemetry import Telemetry, always, attributes
from tests.unit.engine.telemetry.test_spans import KEY, look


async def chatting(
    monkeypatch: pytest.MonkeyPatch, *replies: Reply, **options: Any
) -> tuple[Chat, Telemetry]:
    told = Telemetry()
    stage = Stage(*replies)
    observer = told.observer(stage.clock, **options)
    monkeypatch.setattr(runtime_services, "chosen_observer", always(observer))
    chat = await stage.chat([look], instructions=f"Be kind. {KEY[:3]}", temperature=0.5)
    return chat, told


async def test_call_span_contains_request_if_content_is_enabled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replies = (says(calls("look", json='{"where": "attic"}')), says("done"))
    chat, told = await chatting(monkeypatch, *replies, has_content=True)
    await chat.send(f"my plan, with {KEY}")
    first, second = [attributes(span) for span in told.spans if span.name == "chat test"]
    asked, called, answered = msgspec.json.decode(second["gen_ai.input.messages"])
    assert (asked["role"], called["role"], answered["role"]) == ("user", "assistant", "tool")
    assert called["parts"][0]["arguments"] == {"where": "attic"}
    assert answered["parts"][0]["type"] == "tool_call_response"
    assert len(msgspec.json.decode(first["gen_ai.input.messages"])) == 1
    (said,) = msgspec.json.decode(first["gen_ai.system_instructions"])
    assert said["content"].startswith("Be kind.")
    (tool,) = msgspec.json.decode(first["gen_ai.tool.definitions"])
    assert (tool["type"], tool["name"]) == ("function", "look")
    assert "where" in tool["parameters"]["properties"]
    assert not any(KEY in span.to_json() for span in told.spans)


async def test_call_span_contains_only_settings_if_content_is_disabled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat, told = await chatting(monkeypatch, says("done"))
    await chat.send("my plan")
    about = attributes(told.span("chat test"))
    assert about["gen_ai.request.stream"] is True
    assert about["gen_ai.request.temperature"] == 0.5
    assert about["gen_ai.response.time_to_first_chunk"] >= 0
    assert not {"gen_ai.input.messages", "gen_ai.system_instructions"} & about.keys()
    assert "gen_ai.tool.definitions" not in about
    (first,) = told.points("gen_ai.client.operation.time_to_first_chunk")
    assert first.count == 1
    assert first.attributes["gen_ai.provider.name"] == "scripted"
    assert "perdure.namespace" not in first.attributes


async def test_time_to_first_chunk_is_measured_by_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat, told = await chatting(monkeypatch, says("done"), namespace="shop")
    await chat.send("my plan")
    (first,) = told.points("gen_ai.client.operation.time_to_first_chunk")
    assert first.attributes["perdure.namespace"] == "shop"


async def test_histograms_use_the_buckets_of_opentelemetry_conventions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chat, told = await chatting(monkeypatch, says("done"))
    await chat.send("go")
    (calls_took,) = told.points("gen_ai.client.operation.duration")
    assert calls_took.explicit_bounds[:3] == (0.01, 0.02, 0.04)
    assert calls_took.explicit_bounds[-1] == 81.92
    tokens, *_ = told.points("gen_ai.client.token.usage")
    assert (tokens.explicit_bounds[0], tokens.explicit_bounds[-1]) == (1, 67_108_864)
