"""The guard rejects requests for other hosts, and adds security headers for browsers."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.served import served


async def test_request_for_another_host_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, hosts=["chat.example.com"]) as server:
        for host in ("127.0.0.1", "localhost:80", "LOCALHOST", "chat.example.com", "[::1]:9"):
            assert (await server.http.get("/healthz", headers={"Host": host})).status_code == 200
        for host in ("evil.example", "127.0.0.1.evil.example", "chat.example.com.evil", "", "a:b"):
            got = await server.http.get("/healthz", headers={"Host": host})
            assert (got.status_code, got.json()["code"]) == (421, "host_refused")


async def test_http_responses_have_security_headers(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for url in ("/healthz", "/v1/sessions", "/v1/nothing"):
            headers = (await server.http.get(url)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
