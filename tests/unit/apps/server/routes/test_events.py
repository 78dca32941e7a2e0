"""Live events: a stream that resumes after any event without a gap."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from perdure.apps.server import streams
from tests.fakes.served import Served, served

pytestmark = pytest.mark.full_only  # each test has a server of its own


async def blocks(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Return the events of a stream, each with `event` and `data`, and `id` if it is resumable."""
    block: dict[str, Any] = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if line.startswith(":"):
            continue
        if line:
            block[name] = json.loads(value) if name == "data" else value
        else:
            if "data" in block:
                yield block
            block = {}


async def seen(server: Served, session: str, upto: int, **ask: Any) -> list[dict[str, Any]]:
    """Return the events of `session` up to the seq `upto`."""
    found: list[dict[str, Any]] = []
    url = f"/v1/sessions/{session}/events"
    async with server.http.stream("GET", url, **ask) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        async for block in blocks(stream):
            if block["event"] == "caught-up":
                assert block["data"] == {"head": upto}
                return found
            found.append(block)
    raise AssertionError(found)


async def test_stream_is_resumed_after_any_event(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hi")
        head = (await server.store.open(session)).head
        whole = await seen(server, session, head)
        assert [int(each["id"]) for each in whole if "id" in each] == list(range(head + 1))
        assert await seen(server, session, head, params={"after": head}) == []
        for last in range(head):
            headers = {"Last-Event-ID": str(last)}
            rest = await seen(server, session, head, headers=headers)
            assert rest == [each for each in whole if each["data"]["sequenceNumber"] > last]
            assert rest == await seen(server, session, head, params={"after": last})


async def test_stream_shows_a_turn_that_begins_later(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two"]) as server:
        session = await server.said("hi")
        head = (await server.store.open(session)).head
        url = f"/v1/sessions/{session}/events"
        async with server.http.stream("GET", url, params={"after": head}) as stream:
            await server.said("more", session)
            texts: list[str] = []
            async for block in blocks(stream):
                if block["event"] == "caught-up":
                    continue
                texts += [part["text"] for part in block["data"].get("parts", [])]
                if "two" in texts:
                    break
        assert texts == ["more", "two"]


async def test_cursor_that_is_not_a_number_is_rejected(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hi")
        url = f"/v1/sessions/{session}/events"
        got = await server.http.get(url, headers={"Last-Event-ID": "x"})
        assert (got.status_code, got.json()["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("past", [1, 10**6, 2**63, 10**30])
async def test_cursor_after_newest_entry_is_rejected_before_stream_starts(
    tmp_path: Path, past: int
) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hi")
        head = (await server.store.open(session)).head
        url = f"/v1/sessions/{session}/events"
        after = str(head + past)
        for got in (
            await server.http.get(url, params={"after": after}),
            await server.http.get(url, headers={"Last-Event-ID": after}),
        ):
            assert (got.status_code, got.json()["code"]) == (422, "wrong_argument")
            assert got.json()["newest"] == head


async def test_namespace_stream_shows_only_visible_sessions(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"] * 9) as server:
        ana = await server.client(subject="ana")
        seen_by: dict[str, set[str]] = {}
        for name, client in (("all", server.http), ("ana", ana)):
            async with client.stream("GET", "/v1/events") as stream:
                mine = await ana.post("/v1/messages", json={"text": "hi"})
                await server.said("mine alone")
                last = await ana.post("/v1/messages", json={"text": "last"})
                found: set[str] = set()
                async for block in blocks(stream):
                    found.add(block["data"].get("sessionId", ""))
                    if last.json()["sessionId"] in found:
                        break
                seen_by[name] = found - {""}
                assert mine.json()["sessionId"] in found
        assert len(seen_by["all"]) == 3
        assert len(seen_by["ana"]) == 2


async def test_namespace_stream_resumes_after_the_last_event_id(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"] * 9) as server:
        await server.said("a")
        async with server.http.stream("GET", "/v1/events", params={"after": 0}) as stream:
            whole: list[dict[str, Any]] = []
            async for block in blocks(stream):
                if block["event"] == "caught-up":
                    break
                whole.append(block)
        ids = [int(each["id"]) for each in whole if "id" in each]
        assert ids == sorted(ids)
        headers = {"Last-Event-ID": str(ids[2])}
        async with server.http.stream("GET", "/v1/events", headers=headers) as stream:
            async for block in blocks(stream):
                assert block == whole[[each.get("id") for each in whole].index(str(ids[2])) + 1]
                break


async def test_stream_from_a_future_position_sends_only_new_events(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        params = {"after": 10**6}
        async with server.http.stream("GET", "/v1/events", params=params) as stream:
            found = blocks(stream)
            assert (await anext(found))["event"] == "caught-up"
            session = await server.said("hi")
            assert (await anext(found))["data"]["sessionId"] == session


async def test_namespace_stream_misses_no_commit_after_catching_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, ["one", "two"]) as server:
        await server.said("before")
        backend, is_said, reads = server.store.backend, asyncio.Event(), 0
        position = backend.position

        async def late_position() -> int:
            nonlocal reads
            reads += 1
            if reads == 2:  # the first one is that of `caught-up`
                await is_said.wait()
            return await position()

        monkeypatch.setattr(backend, "position", late_position)
        async with server.http.stream("GET", "/v1/events") as stream:
            found = blocks(stream)
            assert (await anext(found))["event"] == "caught-up"
            session = await server.said("hi")
            is_said.set()
            async with asyncio.timeout(60):
                while (block := await anext(found))["event"] != "durable":
                    pass
            assert block["data"]["sessionId"] == session


async def test_idle_stream_sends_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.02)
    async with served(tmp_path) as server:
        made = await server.http.post("/v1/sessions", json={})
        url = f"/v1/sessions/{made.json()['id']}/events"
        beats = 0
        async with server.http.stream("GET", url) as stream:
            async for line in stream.aiter_lines():
                beats += line.startswith(":")
                if beats == 3:
                    break


def following(server: Served, path: str, **limits: Any) -> connect:
    """Open a WebSocket with a token that has `limits`."""
    headers = {"Authorization": f"Bearer {server.token('read', **limits)}"}
    return connect(server.url.replace("http", "ws", 1) + path, additional_headers=headers)


async def until_caught_up(socket: ClientConnection) -> list[dict[str, Any]]:
    """Return the messages that `socket` gets before it has caught up."""
    found: list[dict[str, Any]] = []
    while (message := json.loads(await socket.recv()))["event"] != "caught-up":
        found.append(message)
    return found


async def test_socket_sends_the_same_events_as_the_stream(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two"]) as server:
        session = await server.said("hi")
        head = (await server.store.open(session)).head
        whole = await seen(server, session, head)
        async with following(server, f"/v1/sessions/{session}/socket") as socket:
            got = await until_caught_up(socket)
            texts = [{**each, "id": str(each["id"])} if "id" in each else each for each in got]
            assert texts == whole
            await server.said("more", session)
            live = json.loads(await socket.recv())
            assert (live["event"], live["id"]) == ("durable", head + 1)
        async with following(server, f"/v1/sessions/{session}/socket?after={head - 1}") as socket:
            assert (await until_caught_up(socket))[0]["id"] == head
        async with following(server, "/v1/socket?after=0") as socket:
            assert session in {
                each["data"].get("sessionId") for each in await until_caught_up(socket)
            }


async def test_rejected_socket_gives_the_reason_when_it_closes(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        mine = await server.said("hi")
        cases = {
            f"/v1/sessions/{mine}/socket?after=999": (4422, "wrong_argument"),
            "/v1/sessions/nothing/socket": (4404, "session_not_found"),
        }
        for path, (status, code) in cases.items():
            async with following(server, path) as socket:
                with pytest.raises(ConnectionClosed):
                    await socket.recv()
            assert socket.close_code == status
            assert (socket.close_reason or "").startswith(code)
        async with following(server, f"/v1/sessions/{mine}/socket", subject="ana") as socket:
            await socket.wait_closed()
        assert socket.close_code == 4404


async def test_socket_closes_after_its_token_was_revoked(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        async with following(server, "/v1/socket") as socket:
            await until_caught_up(socket)
            for record in server.tokens.records():
                server.tokens.revoke(record.id, record.created_at)
            await socket.wait_closed()
        assert socket.close_code == 4401


async def test_socket_of_a_page_of_another_site_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        cookie = {"Cookie": f"perdure_session={server.token()}", "Origin": "http://evil.example"}
        address = server.url.replace("http", "ws", 1) + "/v1/socket"
        with pytest.raises(InvalidStatus, match="403"):
            async with connect(address, additional_headers=cookie):
                pass
