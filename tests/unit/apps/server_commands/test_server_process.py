"""Before a server stops, it reports that it is draining, and still serves requests meanwhile."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.acceptance.server.test_serve import PROGRAM, serving, signed_in

pytestmark = pytest.mark.full_only


async def test_draining_server_still_answers_requests(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    async with (
        serving(tmp_path, "--drain-seconds", "60") as (process, address),
        signed_in(address) as client,
    ):
        assert (await client.get("/readyz")).json() == {"status": "ready"}
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            while (ready := await client.get("/readyz")).status_code == 200:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.01)
        assert (ready.status_code, ready.json()) == (503, {"status": "draining"})
        async with httpx.AsyncClient(
            base_url=client.base_url, timeout=60
        ) as other:  # a new connection
            assert (await other.get("/healthz")).status_code == 200
        assert (await client.get("/v1/sessions")).status_code == 200
        process.send_signal(signal.SIGTERM)  # a second one does not wait
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_server_ends_open_streams_when_its_drain_time_is_over(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    async with (
        serving(tmp_path, "--drain-seconds", "0.5") as (process, address),
        signed_in(address) as client,
    ):
        socket = f"{str(client.base_url).replace('http', 'ws', 1)}/v1/socket"
        cookie = {"Cookie": f"perdure_session={client.cookies['perdure_session']}"}
        async with (
            client.stream("GET", "/v1/events") as stream,
            connect(socket, additional_headers=cookie) as follower,
        ):
            lines = stream.aiter_lines()
            assert await anext(lines) == "retry: 1000"
            await follower.recv()
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                assert "event: caught-up" in [line async for line in lines]
                await follower.wait_closed()
        assert await asyncio.wait_for(process.wait(), 60) == 0
    told = (tmp_path / "stderr").read_text()  # how to sign in, idle sessions, and agents
    assert told.count("\n") == 3
