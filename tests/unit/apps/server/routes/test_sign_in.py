"""Sign-in over HTTP: the cookie works for pages of this site only."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from perdure.apps.server.access.sign_in import COOKIE, SignIn
from perdure.apps.server.access.tokens import TokenFile
from perdure.client.clock import SystemClock
from perdure.server import Role
from tests.fakes.served import served


async def test_sign_in_sets_a_protected_cookie(tmp_path: Path) -> None:
    codes = SignIn(TokenFile(tmp_path / "tokens.json"), SystemClock().now_ms, os.urandom)
    async with (
        served(tmp_path, ["hi"], signing_in=codes) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as page,
    ):
        wrong = await page.post("/v1/sign-in", json={"code": "x"})
        assert (wrong.status_code, wrong.json()["code"]) == (401, "code_invalid")
        both = await page.post("/v1/sign-in", json={})
        assert both.status_code == 422
        done = await page.post("/v1/sign-in", json={"code": codes.code()})
        assert done.json() == {"isSignedIn": True}
        set_cookie = done.headers["set-cookie"].lower()
        assert "httponly" in set_cookie
        assert "samesite=strict" in set_cookie
        assert (await page.get("/v1/sessions")).status_code == 200
        new = {"text": "hello"}
        bare = await page.post("/v1/messages", json=new)
        assert (bare.status_code, bare.json()["code"]) == (403, "header_missing")
        other = {"X-Perdure": "1", "Origin": "https://evil.example"}
        refused = await page.post("/v1/messages", json=new, headers=other)
        assert (refused.status_code, refused.json()["code"]) == (403, "origin_refused")
        own = {"X-Perdure": "1", "Origin": server.url}
        assert (await page.post("/v1/messages", json=new, headers=own)).status_code == 201
        cookie = page.cookies[COOKIE]
        assert (await page.post("/v1/sign-out", headers=own)).status_code == 200
        page.cookies.set(COOKIE, cookie)
        again = await page.get("/v1/sessions")
        assert again.status_code == 401


@pytest.mark.parametrize("role", ["read", "write", "admin"])
async def test_caller_has_the_role_of_its_token(tmp_path: Path, role: Role) -> None:
    async with served(tmp_path) as server:
        client = await server.client(role)
        assert (await client.get("/v1/caller")).json() == {"role": role}
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as stranger:
            assert (await stranger.get("/v1/caller")).status_code == 401
