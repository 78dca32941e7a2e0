"""Requests in the access log and as spans: they contain ids and no content."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from opentelemetry import trace

from tests.fakes.served import served
from tests.fakes.telemetry import Telemetry

WORD = "xyzzyplugh"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_access_log_has_one_line_for_each_request_without_content(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="perdure.access")
    async with served(tmp_path, [WORD]) as server:
        reader = await server.client("read", id="reader1", name=WORD)
        await server.said(WORD, f"id-{WORD}")
        caplog.clear()
        asked = {"X-Request-ID": "mine.1"}
        await reader.get("/v1/search", params={"q": WORD}, headers=asked)
        await reader.get(f"/v1/sessions/id-{WORD}")
        await reader.get(f"/{WORD}")
        bad = await reader.get("/v1/store", headers={"X-Request-ID": f"a b {WORD}"})
        await reader.get("/v1/store", headers={"Authorization": f"Bearer {WORD}"})
        lines = [each.getMessage() for each in caplog.records if each.name == "perdure.access"]
    assert len(lines) == 5
    assert WORD not in "".join(lines)
    assert lines[0].startswith("GET /v1/search 200 ")
    assert lines[0].endswith("ms request=mine.1 token=reader1")
    assert lines[1].startswith("GET /v1/sessions/{session_id} 200 ")
    assert lines[2].startswith("GET - 404 ")
    assert f"request={bad.headers['x-request-id']} " in lines[3]
    assert lines[4].startswith("GET /v1/store 401 ")
    assert lines[4].endswith("token=-")


async def test_trace_connects_caller_request_and_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    telemetry = Telemetry()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: telemetry.tracers)

    def tracer_of(name: str, *_: object, **__: object) -> trace.Tracer:
        return telemetry.tracers.get_tracer(name)

    monkeypatch.setattr(trace, "get_tracer", tracer_of)
    async with served(tmp_path, ["one"]) as server:
        new = {"text": WORD, "sessionId": "a"}
        sent = await server.http.post("/v1/messages", json=new, headers={"traceparent": PARENT})
        assert sent.status_code == 201
        await server.until("a", "idle")
    request = telemetry.span("POST /v1/messages")
    turn = telemetry.span("invoke_agent desk")
    assert request.parent is not None
    assert f"{request.parent.trace_id:032x}-{request.parent.span_id:016x}" in PARENT
    assert turn.parent is not None
    context = request.get_span_context()
    assert context is not None
    assert turn.parent.span_id == context.span_id
    assert (request.attributes or {})["http.response.status_code"] == 201
    assert WORD not in request.to_json()


async def test_failing_telemetry_does_not_fail_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no tracer")

    async with served(tmp_path) as server:
        monkeypatch.setattr(trace, "get_tracer", broken)
        assert (await server.http.get("/v1/sessions")).status_code == 200
