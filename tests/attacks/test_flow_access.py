"""No token of another person, agent or namespace can read or change a running flow."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from perdure.apps.server.access.caller import Caller
from tests.fakes.api_calls import Operation, calls, operations
from tests.fakes.direct import DirectClient
from tests.fakes.served import Served
from tests.fakes.served_flows import begun, flow_until, serving_flows, waits_for

ASKED = "Which train?"
"""The question of the flow's owner; no response to an attacker contains it."""


@asynccontextmanager
async def waiting(folder: Path) -> AsyncGenerator[tuple[Served, str, list[Operation]]]:
    """Serve a flow whose owner asked a question; yield the server, the flow's id, all routes."""
    async with serving_flows(folder) as server:
        flow = await begun(server, folder)
        await flow_until(server, flow, waits_for("prompt-human"))
        document = (await server.http.get("/v1/openapi.json")).json()
        yield server, flow, operations(document)


async def found(client: DirectClient, flow: str, chosen: list[Operation]) -> list[str]:
    """Return the calls that reveal the flow to `client`, or that succeeded."""
    leaks: list[str] = []
    for operation in chosen:
        is_of_flow = "/flows" in operation.path
        for stream in (flow, f"{flow}__owner"):
            values: dict[str, Any] = {"session_id": stream, "flow_id": flow, "role": "owner"}
            values |= {"stream": stream, "seq": 1, "text": "The night train", "q": "train"}
            values |= {"answer": "approve", "target": "owner-intake", "mode": "full-access"}
            for call in calls(operation, values, is_whole=False):
                status, text = await call.answer(client)
                is_done = is_of_flow and status < HTTPStatus.BAD_REQUEST
                is_named = flow in text and flow not in f"{call.path} {call.query} {call.body}"
                if is_done or is_named or ASKED in text:
                    leaks.append(f"{operation.name} {call.path}: {status} {text[-500:]}")
    return leaks


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"subject": "ana"}, id="other subject"),
        pytest.param({"agent": "other"}, id="other agent"),
        pytest.param({"subject": ""}, id="empty subject", marks=pytest.mark.all_only),
        pytest.param({"namespace": "other"}, id="other namespace", marks=pytest.mark.all_only),
        pytest.param({"expires_at": 1}, id="expired", marks=pytest.mark.all_only),
    ],
)
async def test_restricted_token_finds_and_changes_nothing_of_flow(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    async with waiting(tmp_path) as (server, flow, routes):
        before = (await server.http.get(f"/v1/flows/{flow}")).json()
        attacker = server.direct("admin", **limits)
        leaks = await found(attacker, flow, routes)
        assert not leaks, "\n".join(leaks)
        assert (await server.http.get(f"/v1/flows/{flow}")).json() == before


async def test_access_check_of_flows_detects_a_planted_leak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting(tmp_path) as (server, flow, routes):
        attacker = server.direct("read", subject="ana")
        reads = [each for each in routes if "/flows/" in each.path and not each.is_change]
        assert await found(attacker, flow, reads) == []
        monkeypatch.setattr(Caller, "require_all", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] - a leak
        leaks = await found(attacker, flow, reads)
        assert any(ASKED in each for each in leaks), leaks
