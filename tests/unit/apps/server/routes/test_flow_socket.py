"""The WebSocket of flows: a real client and a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from perdure.apps.server.flows.socket import MAX_MESSAGE_BYTES
from perdure.apps.server.routes.flow_socket import TOO_LONG
from tests.fakes.served import Served
from tests.fakes.served_flows import begun, serving_flows

pytestmark = pytest.mark.full_only


class Client:
    """A connected client, and the messages that it received."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.got: list[dict[str, Any]] = []

    async def send(self, type_: str, **fields: Any) -> None:
        """Send a message."""
        await self.connection.send(msgspec.json.encode({"type": type_, **fields}).decode())

    async def until(self, type_: str, **fields: Any) -> dict[str, Any]:
        """Receive messages up to one of `type_` that has the `fields`."""
        async with asyncio.timeout(60):
            while True:
                message = msgspec.json.decode(await self.connection.recv())
                self.got.append(message)
                if message["type"] == type_ and fields.items() <= message.items():
                    return message

    async def until_waiting(self, topic: str) -> dict[str, Any]:
        """Receive messages until the flow waits for a person about `topic`."""
        while True:
            flow = (await self.until("flow_state"))["flow"]
            for wait in flow["waits"]:
                if wait["topic"] == topic:
                    return wait


@asynccontextmanager
async def client(server: Served, token: str, **headers: str) -> AsyncGenerator[Client]:
    """A client with `token`."""
    address = server.url.replace("http", "ws") + "/v1/flows/socket"
    given = {"Authorization": f"Bearer {token}", **headers}
    async with connect(address, additional_headers=given) as connection:
        yield Client(connection)


async def test_flow_can_be_started_and_answered_over_a_socket(tmp_path: Path) -> None:
    async with (
        serving_flows(tmp_path) as server,
        client(server, server.token()) as socket,
    ):
        assert (await socket.until("flow_summaries"))["flows"] == []
        new = {"workspace": str(tmp_path), "recordFolder": "record", "consent": "partial-access"}
        await socket.send("start_initialized_flow", flow=new)
        await socket.until_waiting("prompt-human")
        await socket.send("human_input", text="The night train.")
        await socket.until_waiting("handoff-approval")
        await socket.send("handoff_approval", decision="approve")
        while (await socket.until("flow_state"))["flow"]["status"] == "running":
            pass
        types = {message["type"] for message in socket.got}
        assert {"request_sent", "receiving_response", "output_text", "response_end"} <= types
        assert {"operator_event", "feed_replay", "input_text"} <= types
        spoken = [each["text"] for each in socket.got if each["type"] == "output_text"]
        assert "Which train?" in "".join(spoken)


async def test_client_that_connects_late_gets_the_whole_feed(tmp_path: Path) -> None:
    async with serving_flows(tmp_path) as server:
        flow = await begun(server, tmp_path)
        async with client(server, server.token("read")) as first:
            await first.send("open_flow", flowId=flow)
            await first.until_waiting("prompt-human")
        await server.runtime.suspend()
        before = (await server.http.get(f"/v1/flows/{flow}")).json()["head"]
        async with client(server, server.token("read")) as late:
            (summary,) = (await late.until("flow_summaries"))["flows"]
            assert summary["id"] == flow
            await late.send("open_flow", flowId=flow)
            assert (await late.until("flow_state"))["flow"]["waits"]
            feed = await late.until("feed_replay", role="owner")
            assert any("Which train?" in item["text"] for item in feed["items"])
        assert (await server.http.get(f"/v1/flows/{flow}")).json()["head"] == before


async def test_invalid_message_gets_error_and_socket_stays_open(tmp_path: Path) -> None:
    async with serving_flows(tmp_path) as server, client(server, server.token()) as socket:
        for message in ("{", "[]", '{"type": "unknown"}', '{"type": "open_flow"}'):
            await socket.connection.send(message)
            assert (await socket.until("error"))["code"] == "invalid_request"
        await socket.send("open_flow", flowId="no-such-flow", id="m1")
        assert (await socket.until("error", id="m1"))["code"] == "session_not_found"
        await socket.send("human_input", text="hello", id="m2")
        assert "open_flow" in (await socket.until("error", id="m2"))["message"]


async def test_caller_without_the_required_permission_is_rejected(tmp_path: Path) -> None:
    async with serving_flows(tmp_path) as server:
        flow = await begun(server, tmp_path)
        async with client(server, server.token("read")) as reader:
            await reader.send("open_flow", flowId=flow)
            await reader.until_waiting("prompt-human")
            await reader.send("human_input", text="The night train.", id="m1")
            assert (await reader.until("error", id="m1"))["code"] == "role_missing"
        async with client(server, server.token(subject="ana")) as restricted:
            with pytest.raises(ConnectionClosed):
                await restricted.until("flow_summaries")
        with pytest.raises((InvalidStatus, ConnectionClosed)):
            async with client(server, "pdr_no_token") as unknown:
                await unknown.until("flow_summaries")


async def test_writer_token_cannot_give_flow_roles_full_access(tmp_path: Path) -> None:
    async with serving_flows(tmp_path) as server:
        flow = await begun(server, tmp_path)
        async with client(server, server.token("write")) as connected:
            await connected.send("open_flow", flowId=flow)
            await connected.send("consent_mode", id="1", mode="full-access")
            refused = await connected.until("error")
            assert (refused["code"], refused["id"]) == ("role_missing", "1")
            await connected.send("consent_mode", mode="no-access")
            while True:
                shown = (await connected.until("flow_state"))["flow"]
                if shown["consent"]["mode"] == "no-access":
                    break


async def test_too_long_message_closes_the_socket(tmp_path: Path) -> None:
    async with serving_flows(tmp_path) as server:  # uvicorn itself accepts 16 MB
        for size, is_long in ((MAX_MESSAGE_BYTES // 2, False), (MAX_MESSAGE_BYTES // 2 + 1, True)):
            async with client(server, server.token("read")) as connected:
                await connected.until("flow_summaries")
                await connected.connection.send("é" * size)
                if is_long:
                    with pytest.raises(ConnectionClosed):
                        await connected.until("error")
                    assert connected.connection.close_code == TOO_LONG
                else:
                    assert (await connected.until("error"))["code"] == "invalid_request"


async def test_page_of_another_site_cannot_open_a_socket(tmp_path: Path) -> None:
    async with serving_flows(tmp_path) as server:
        address = server.url.replace("http", "ws") + "/v1/flows/socket"
        headers = {"Cookie": f"perdure_session={server.token()}", "Origin": "http://evil.example"}
        with pytest.raises((InvalidStatus, ConnectionClosed)):
            async with connect(address, additional_headers=headers) as connection:
                await connection.recv()
