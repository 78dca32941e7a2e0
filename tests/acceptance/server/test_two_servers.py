"""Two servers on one PostgreSQL behind one address: clients do not notice which server answers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.server import TokenFile, TokenRecord
from tests.acceptance.server.test_serve import PROGRAM, serving
from tests.fakes.postgres import PostgresServer

pytestmark = pytest.mark.full_only


class Balancer:
    """A proxy that gives each connection to the next server, and skips unreachable servers."""

    def __init__(self, ports: list[int]) -> None:
        self._ports: Iterator[int] = cycle(ports)
        self._servers = len(ports)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        for _ in range(self._servers):
            try:
                back = await asyncio.open_connection("127.0.0.1", next(self._ports))
            except OSError:
                continue
            await asyncio.gather(_copy(reader, back[1]), _copy(back[0], writer))
            return
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def balanced(addresses: list[str]) -> AsyncGenerator[str]:
    """One address in front of all `addresses`."""
    ports = [int(each.rpartition(":")[2]) for each in addresses]
    server = await asyncio.start_server(Balancer(ports).serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


class Watcher:
    """A reader of the durable events of a session at one server."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.seqs: list[int] = []
        self.texts: list[str] = []
        self._url = url
        self._headers = headers

    async def run(self) -> None:
        """Read until cancelled."""
        async with (
            httpx.AsyncClient(headers=self._headers, timeout=60) as client,
            client.stream("GET", self._url) as stream,
        ):
            async for line in stream.aiter_lines():
                if line.startswith("id: "):
                    self.seqs.append(int(line.removeprefix("id: ")))
                elif line.startswith("data: "):
                    self.texts += [part.get("text", "") for part in _parts(line)]

    async def until(self, text: str) -> None:
        """Wait until an event says `text`."""
        async with asyncio.timeout(60):
            while text not in self.texts:  # noqa: ASYNC110 - another process says it
                await asyncio.sleep(0.02)


def _parts(line: str) -> list[dict[str, Any]]:
    return json.loads(line.removeprefix("data: ")).get("parts") or []


@dataclass
class Servers:
    """Two servers; `ask` goes through the balancer, which alternates between them."""

    first: asyncio.subprocess.Process
    urls: list[str]
    url: str
    headers: dict[str, str]

    async def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> httpx.Response:
        """Send a request on a new connection."""
        given = {**self.headers, **{name.replace("_", "-"): headers[name] for name in headers}}
        async with httpx.AsyncClient(base_url=self.url, headers=given, timeout=60) as client:
            return await client.request(method, path, json=body)

    async def idle(self) -> str:
        """Wait until no turn of the session runs, and return the ETag of the session."""
        async with asyncio.timeout(60):
            while True:
                shown = await self.ask("GET", "/v1/sessions/s")
                if shown.json()["state"] == "idle":
                    return shown.headers["etag"]
                await asyncio.sleep(0.02)

    async def killed_within_a_turn(self, folder: Path) -> None:
        """Kill the first server while a tool of its turn runs."""
        (folder / "looked").unlink()
        (folder / "slow").touch()
        more = {"text": "And now?", "sessionId": "s"}
        async with httpx.AsyncClient(
            base_url=self.urls[0], headers=self.headers, timeout=60
        ) as direct:
            assert (await direct.post("/v1/messages", json=more)).status_code == 200
        async with asyncio.timeout(60):
            while not (folder / "looked").exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.01)
        self.first.send_signal(signal.SIGKILL)
        await self.first.wait()
        (folder / "slow").unlink()


@asynccontextmanager
async def two_servers(folder: Path, address: str) -> AsyncGenerator[Servers]:
    """Serve the store at `address` twice."""
    (folder / "shop.py").write_text(PROGRAM)
    file = folder / "tokens.json"
    record = TokenRecord(id="t", hash="", role="admin", created_at=0)
    headers = {"Authorization": f"Bearer {TokenFile(file).create(record, os.urandom(32))}"}
    shared = {"PERDURE_STORE": address, "PERDURE_TOKENS": str(file)}
    async with (
        serving(folder, **shared) as (first, one),
        serving(folder, **shared) as (_, two),
    ):
        urls = [each.partition("/#")[0] for each in (one, two)]
        async with balanced(urls) as url:
            yield Servers(first, urls, url, headers)


@pytest.mark.all_only
async def test_second_server_shows_writes_of_the_first_server_after_its_kill(
    tmp_path: Path, database: str
) -> None:
    async with two_servers(tmp_path, database) as servers:
        # A message sent again with its key, through either server, is sent once.
        body = {"text": "Where is it?", "sessionId": "s"}
        sent = [
            await servers.ask("POST", "/v1/messages", body, idempotency_key="k1") for _ in "1234"
        ]
        assert [each.status_code for each in sent] == [201] * 4
        assert len({each.content for each in sent}) == 1
        watcher = Watcher(f"{servers.urls[1]}/v1/sessions/s/events", servers.headers)
        watching = asyncio.create_task(watcher.run())
        await watcher.until("It is here")

        # Of changes at one head, through both servers, one is made.
        head = await servers.idle()
        changes = [
            servers.ask("PATCH", "/v1/sessions/s", {"title": f"t{number}"}, if_match=head)
            for number in range(8)
        ]
        codes = Counter(each.status_code for each in await asyncio.gather(*changes))
        assert codes == {200: 1, 412: 7}

        # The second server goes on with the turn of the first.
        await servers.killed_within_a_turn(tmp_path)
        before = watcher.texts.count("It is here")
        assert (await servers.ask("POST", "/v1/sessions/s/resume", {})).status_code == 200
        last = int((await servers.idle()).strip('"'))
        again = await servers.ask("POST", "/v1/messages", body, idempotency_key="k1")
        assert again.content == sent[0].content
        async with asyncio.timeout(60):
            while watcher.seqs[-1] < last:  # noqa: ASYNC110 - another process says it
                await asyncio.sleep(0.02)
        assert watcher.texts.count("It is here") == before + 1
        assert watcher.seqs == list(range(last + 1))  # without a gap, and nothing twice
        watching.cancel()


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    address = postgres.take()
    yield address
    postgres.give_back(address)
