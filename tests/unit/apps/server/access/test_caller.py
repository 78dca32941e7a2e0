"""The caller of a request: the access rights of each kind of token."""

from __future__ import annotations

from pathlib import Path

import perdure
from tests.fakes.served import served


async def test_request_without_valid_token_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for header in ("", "Bearer", "Bearer nothing", "Basic abc", f"Token {server.token()}"):
            got = await server.http.get("/v1/sessions", headers={"Authorization": header})
            assert got.status_code == 401
            assert got.json()["code"] in ("token_missing", "token_invalid")


async def test_reader_token_cannot_change_data(tmp_path: Path) -> None:
    async with served(tmp_path, ["hello"]) as server:
        reader = await server.client("read")
        assert (await reader.get("/v1/sessions")).status_code == 200
        refused = await reader.post("/v1/messages", json={"text": "hello"})
        assert (refused.status_code, refused.json()["code"]) == (403, "role_missing")


async def test_session_of_another_person_or_agent_returns_not_found(tmp_path: Path) -> None:
    agents = [perdure.Agent(name, model="scripted:desk") for name in ("a", "b")]
    async with served(tmp_path, ["x"] * 9, agents=agents) as server:
        ana, bob = await server.client(subject="ana"), await server.client(subject="bob")
        only_b = await server.client(agent="b")
        made = await ana.post("/v1/messages", json={"text": "hi", "agent": "a"})
        session = made.json()["sessionId"]
        shown = await server.until(session, "idle")
        assert (shown["subject"], shown["agent"]) == ("ana", "a")
        for other in (bob, only_b):
            assert (await other.get(f"/v1/sessions/{session}")).status_code == 404
            assert (await other.get(f"/v1/sessions/{session}/events")).status_code == 404
            assert (await other.get("/v1/sessions")).json()["items"] == []
            new = {"text": "mine", "sessionId": session, "agent": "a"}
            assert (await other.post("/v1/messages", json=new)).status_code in (403, 404)
        assert [each["id"] for each in (await ana.get("/v1/sessions")).json()["items"]] == [session]


async def test_change_with_outdated_etag_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hi")
        url = f"/v1/sessions/{session}"
        etag = (await server.http.get(url)).headers["etag"]
        first = await server.http.patch(url, json={"title": "a"}, headers={"If-Match": etag})
        assert first.status_code == 200
        again = await server.http.patch(url, json={"title": "b"}, headers={"If-Match": etag})
        assert (again.status_code, again.json()["code"]) == (412, "head_conflict")
        newer = {"If-Match": first.headers["etag"]}
        assert (await server.http.patch(url, json={"title": "b"}, headers=newer)).is_success
