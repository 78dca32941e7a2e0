"""Published tokens: a visitor can send and watch in its own session only."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import perdure
from perdure import assistant, thinking, tool_call
from perdure.apps.server.access import visitors
from perdure.errors import WrongArgument
from perdure.server import sign_visitor
from tests.fakes.served import Served, served

pytestmark = pytest.mark.full_only  # each test has a server of its own

PAGE = "https://shop.example.com"
KEY = "pds_pub_" + "5" * 64
SIGNED = 1_800_000_000


@perdure.tool(effect="read")
def look_up(code: str) -> str:
    """Look a code up."""
    return f"the secret of {code}"


DESK = perdure.Agent("desk", model="scripted:desk", tools=[look_up])
OTHER = perdure.Agent("other", model="scripted:other")
ANSWERS = [
    assistant(thinking("hidden thought"), tool_call("c1", "look_up", {"code": "c-77"})),
    "Ok.",
]


async def visitor(
    server: Served, token: str | None = None, origin: str = PAGE
) -> httpx.AsyncClient:
    """A client in a page of `origin` with a published token."""
    fields: dict[str, Any] = {"id": "pub", "agent": "desk", "signing_key": KEY}
    made = token or server.token("write", origins=(PAGE,), **fields)
    headers = {"Authorization": f"Bearer {made}", "Origin": origin}
    client = httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60)
    return await server.stack.enter_async_context(client)


async def watched(client: httpx.AsyncClient, session: str) -> str:
    """Return the stored events of `session` as `client` sees them."""
    found: list[str] = []
    async with client.stream("GET", f"/v1/sessions/{session}/events") as stream:
        async for line in stream.aiter_lines():
            found.append(line)
            if line == "event: caught-up":
                break
    return "\n".join(found)


async def test_visitor_sees_texts_but_no_tool_data(tmp_path: Path) -> None:
    async with served(tmp_path, ANSWERS, agents=[DESK, OTHER]) as server:
        client = await visitor(server)
        sent = await client.post("/v1/messages", json={"text": "Which code?"})
        assert sent.status_code == 201
        assert sent.headers["access-control-allow-origin"] == PAGE
        session = sent.json()["sessionId"]
        assert (await server.until(session, "idle"))["subject"] is None
        seen = await watched(client, session)
        assert "Which code?" in seen
        assert "Ok." in seen
        whole = await watched(server.http, session)
        for hidden in ("c-77", "the secret", "hidden thought", "look_up", "scripted:desk"):
            assert hidden in whole
            assert hidden not in seen


async def test_visitor_can_only_send_messages_and_watch_its_session(tmp_path: Path) -> None:
    async with served(tmp_path, ["One."], agents=[DESK, OTHER]) as server:
        client = await visitor(server)
        own = (await client.post("/v1/messages", json={"text": "hi"})).json()["sessionId"]
        await server.until(own, "idle")
        document = (await server.http.get("/v1/openapi.json")).json()
        tried = 0
        for path, item in document["paths"].items():
            url = path.replace("{session_id}", own).replace("{seq}", "0")
            for method in item.keys() & {"get", "post", "put", "patch", "delete"}:
                if path in ("/v1/messages", "/v1/sessions/{session_id}/events", "/v1/sign-in"):
                    continue
                refused = await client.request(method, url, json={})
                assert refused.status_code == 403, (method, path)
                assert refused.json()["code"] == "token_publishable", (method, path)
                tried += 1
        assert tried > 40


async def test_visitor_cannot_access_sessions_of_other_clients(tmp_path: Path) -> None:
    async with served(tmp_path, ["One."], agents=[DESK, OTHER]) as server:
        client = await visitor(server)
        made = await server.http.post("/v1/messages", json={"text": "mine", "agent": "desk"})
        other = made.json()["sessionId"]
        await server.until(other, "idle")
        assert (await client.get(f"/v1/sessions/{other}/events")).status_code == 404
        for named in (other, "guessable"):
            refused = await client.post("/v1/messages", json={"text": "hi", "sessionId": named})
            assert (refused.status_code, refused.json()["code"]) == (403, "session_unsigned")
        refused = await client.post("/v1/messages", json={"text": "hi", "agent": "other"})
        assert refused.status_code == 403


@pytest.mark.parametrize("origin", ["https://evil.example.com", "null"])
async def test_publishable_token_is_refused_in_pages_of_other_origins(
    tmp_path: Path, origin: str
) -> None:
    async with served(tmp_path, ["One."]) as server:
        client = await visitor(server, origin=origin)
        refused = await client.post("/v1/messages", json={"text": "hi"})
        assert (refused.status_code, refused.json()["code"]) == (403, "origin_refused")
        assert "access-control-allow-origin" not in refused.headers


async def test_signed_visitor_can_use_only_its_session(tmp_path: Path) -> None:
    async with served(tmp_path, ["One.", "Two."]) as server:
        await visitor(server)
        token = sign_visitor(KEY, "shop-ana", now_s=time.time(), subject="ana")
        client = await visitor(server, token)
        for status in (201, 200):
            sent = await client.post("/v1/messages", json={"text": "hi", "sessionId": "shop-ana"})
            assert sent.status_code == status
            shown = await server.until("shop-ana", "idle")
        assert shown["subject"] == "ana"
        refused = await client.post("/v1/messages", json={"text": "hi", "sessionId": "shop-bo"})
        assert (refused.status_code, refused.json()["code"]) == (403, "session_unsigned")
        server.tokens.revoke("pub", 1)
        closed = await client.post("/v1/messages", json={"text": "hi"})
        assert closed.status_code == 401
        assert closed.headers["access-control-allow-origin"] == PAGE


async def test_weak_signing_key_for_visitors_is_rejected(tmp_path: Path) -> None:
    async with served(tmp_path, ["One."]) as server:
        client = await visitor(server)
        weak = {"Idempotency-Key": "1"}
        refused = await client.post("/v1/messages", json={"text": "hi"}, headers=weak)
        assert (refused.status_code, refused.json()["code"]) == (400, "idempotency_key_invalid")


def test_signed_token_identifies_its_visitor() -> None:
    token = sign_visitor(KEY, "shop-ana", now_s=SIGNED, subject="ana")
    assert visitors.token_id_of(token) == "pub"
    found = visitors.visitor_of(token, KEY, SIGNED * 1000)
    assert found == visitors.Visitor("shop-ana", SIGNED + visitors.DEFAULT_S, "ana")


FORGED: dict[str, Callable[[str], str]] = {
    "another payload": lambda token: token.replace(".", ".A", 1),
    "another token id": lambda token: token.replace("pub", "pux", 1),
    "no mac": lambda token: token.rpartition(".")[0] + ".",
    "empty": lambda _: "pdv_",
    "not ascii": lambda token: token + "\N{LATIN SMALL LETTER E WITH ACUTE}",
    "too long": lambda token: token + "A" * 5000,
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_token_is_refused(case: str) -> None:
    token = FORGED[case](sign_visitor(KEY, "shop-ana", now_s=SIGNED))
    assert visitors.visitor_of(token, KEY, SIGNED * 1000) is None


def test_expired_or_overlong_token_is_refused() -> None:
    token = sign_visitor(KEY, "shop-ana", now_s=SIGNED)
    late_s, early_s = SIGNED + visitors.DEFAULT_S, SIGNED - visitors.LONGEST_S
    assert visitors.visitor_of(token, KEY, late_s * 1000) is None
    assert visitors.visitor_of(token, KEY, early_s * 1000) is None
    assert visitors.visitor_of(token, "", SIGNED * 1000) is None


def test_signing_needs_signing_key_and_short_expiry() -> None:
    with pytest.raises(WrongArgument):
        sign_visitor("pdr_pub_1", "a", now_s=SIGNED)
    with pytest.raises(WrongArgument):
        sign_visitor(KEY, "a", now_s=SIGNED, valid_s=visitors.LONGEST_S + 1)


def test_payload_of_a_visitor_token_is_plain_json() -> None:
    payload = sign_visitor(KEY, "shop-ana", now_s=SIGNED).split(".")[1]
    raw = visitors.base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
    expected = {"session": "shop-ana", "exp": SIGNED + visitors.DEFAULT_S, "subject": None}
    assert msgspec.json.decode(raw) == expected
