"""The server's answers to a stranger: broken bodies, caches, pages, error texts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from perdure.apps.server.access import guard
from tests.fakes.served import served

JSON = {"Content-Type": "application/json"}
EVIL = {"Origin": "http://evil.example"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"metadata":{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}}", id="deep"),
        pytest.param(b'{"title":"\xff\xfe"}', id="no UTF-8"),
        pytest.param(b'{"title":"\\ud800"}', id="half a character"),
        pytest.param(b'{"metadata":{"a":1e999}}', id="too large a number"),
        pytest.param(b"\x1f\x8b\x08\x00", id="compressed"),
    ],
)
async def test_request_body_that_cannot_be_read_is_refused(tmp_path: Path, body: bytes) -> None:
    async with served(tmp_path) as server:
        got = await server.http.post("/v1/sessions", content=body, headers=JSON)
        assert 400 <= got.status_code < 500, got.text
        assert got.headers["content-type"] == "application/problem+json"


async def test_http_client_that_sends_no_data_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_for_body(seconds: float) -> None:
        monkeypatch.setattr(guard, "BODY_S", seconds)

    wait_for_body(0.1)
    async with served(tmp_path, ["one"]) as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nContent-Length: 99\r\n"
        writer.write(f"{head}Authorization: Bearer {server.token()}\r\n\r\n{{".encode())
        async with asyncio.timeout(60):
            status = await reader.readline()
        assert b" 408 " in status
        writer.close()
        wait_for_body(60)
        session = await server.said("hi")
        wait_for_body(0.1)  # a stream that waits for longer goes on
        url = f"/v1/sessions/{session}/events"
        async with server.http.stream("GET", url) as stream:
            lines = stream.aiter_lines()
            while "caught-up" not in await anext(lines):
                pass
            await asyncio.sleep(0.3)
            wait_for_body(60)
            await server.http.patch(f"/v1/sessions/{session}", json={"title": "later"})
            async with asyncio.timeout(60):
                while "later" not in await anext(lines):
                    pass


async def test_server_answers_forbid_caching(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hi")
        for path in ("/v1/sessions", f"/v1/sessions/{session}/messages", "/v1/store", "/readyz"):
            got = await server.http.get(path)
            assert (got.status_code, got.headers["cache-control"]) == (200, "no-store"), path
        for path in ("/", "/console/app.js", "/widget.js"):
            assert (await server.http.get(path)).headers["cache-control"] == "no-cache", path


@pytest.mark.parametrize("name", ["widget.js", "console"])
async def test_session_with_the_name_of_a_public_file_is_not_public(
    tmp_path: Path, name: str
) -> None:
    async with served(tmp_path) as server:
        assert (await server.http.post("/v1/sessions", json={"id": name})).status_code == 201
        for path in (f"/v1/sessions/{name}", f"/v1/sessions/{name}/messages"):
            got = await server.http.get(path, headers=EVIL)
            assert got.status_code == 200
            assert "access-control-allow-origin" not in got.headers
            assert got.headers["cross-origin-resource-policy"] == "same-origin"


async def test_page_of_another_site_cannot_sign_in(tmp_path: Path) -> None:
    async with (
        served(tmp_path) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as browser,
    ):
        body = f'{{"token":"{server.token()}"}}'
        headers = {"Content-Type": "text/plain", **EVIL}  # a form can send this
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            got = await browser.post(
                "/v1/sign-in", content=body, headers={**headers, "Origin": origin}
            )
            assert (got.status_code, got.json()["code"]) == (403, "origin_refused")
            assert "set-cookie" not in got.headers
        own = {"Origin": server.url}
        assert (await browser.post("/v1/sign-in", content=body, headers=own)).status_code == 200


@pytest.mark.parametrize("broken", ["{", '[{"id": 7}]', "x" * (4 * 1024 * 1024 + 1)])
async def test_invalid_token_file_rejects_all_requests_without_showing_its_path(
    tmp_path: Path, broken: str
) -> None:
    async with served(tmp_path) as server:
        token = server.token()
        server.tokens.path.write_text(broken)
        for headers in ({"Authorization": f"Bearer {token}"}, EVIL):
            for method, path in (("GET", "/v1/sessions"), ("POST", "/mcp")):
                got = await server.http.request(method, path, headers=headers)
                assert (got.status_code, got.json()["code"]) == (503, "tokens_unavailable")
                assert str(tmp_path) not in got.text
        entered = await server.http.post("/v1/sign-in", json={"token": token})
        assert (entered.status_code, entered.json()["code"]) == (503, "tokens_unavailable")


async def test_error_after_a_store_failure_contains_no_file_name(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'secret-place.db'}"
    async with served(tmp_path, ["one"], address=address) as server:
        session = await server.said("hi")
        await server.store.backend.close()
        for path in ("/v1/sessions", f"/v1/sessions/{session}", "/v1/store", "/v1/search?q=hi"):
            got = await server.http.get(path)
            assert (got.status_code, got.json()["code"]) == (503, "store_unavailable")
            assert "secret-place" not in got.text
        ready = await server.http.get("/readyz")
        assert (ready.status_code, ready.json()) == (503, {"status": "store_unavailable"})


async def test_request_without_a_token_gets_status_401(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for path in ("/v1/sessions", "/mcp"):
            got = await server.http.post(path, headers={"Authorization": ""})
            assert (got.status_code, got.headers["www-authenticate"]) == (401, "Bearer")
