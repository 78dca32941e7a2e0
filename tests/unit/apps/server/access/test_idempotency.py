"""Requests with an Idempotency-Key are done once, even after a restart or in parallel."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

import perdure
from perdure.apps.server.access import idempotency
from perdure.session.notes import Note
from tests.fakes.served import Served, served

pytestmark = pytest.mark.full_only  # each test has a server of its own

KEY = {"Idempotency-Key": "7f1c7c0e-one"}


async def said_in(server: Served, session: str) -> list[str]:
    shown = await server.http.get(f"/v1/sessions/{session}/messages")
    return [each["text"] for each in shown.json()["items"]]


async def test_message_with_the_same_idempotency_key_is_sent_once(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two"]) as server:
        both = await asyncio.gather(
            *(server.http.post("/v1/messages", json={"text": "hi"}, headers=KEY) for _ in range(2))
        )
        session = both[0].json()["sessionId"]
        await server.until(session, "idle")
        again = await server.http.post("/v1/messages", json={"text": "hi"}, headers=KEY)
        assert [each.status_code for each in (*both, again)] == [201, 201, 201]
        assert both[0].content == both[1].content == again.content
        assert again.headers["idempotency-replayed"] == "true"
        assert await said_in(server, session) == ["hi", "one"]


async def test_idempotency_key_with_another_body_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        first = await server.http.post("/v1/messages", json={"text": "hi"}, headers=KEY)
        other = await server.http.post("/v1/messages", json={"text": "ho"}, headers=KEY)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
        assert KEY["Idempotency-Key"] in other.json()["detail"]
        assert "api:" not in other.text
        assert (await said_in(server, first.json()["sessionId"]))[0] == "hi"


async def test_idempotency_key_with_another_query_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hi")
        (await server.http.post(f"/v1/sessions/{session}/fork", json={})).raise_for_status()
        erasing = f"/v1/sessions/{session}?forks="
        refused = await server.http.delete(f"{erasing}refuse", headers=KEY)
        assert (refused.status_code, refused.json()["code"]) == (409, "session_has_forks")
        other = await server.http.delete(f"{erasing}keep", headers=KEY)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


async def test_same_idempotency_key_of_two_tokens_starts_two_sessions(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two"]) as server:
        other = await server.client("write")
        sent = [
            await client.post("/v1/messages", json={"text": "hi"}, headers=KEY)
            for client in (server.http, other)
        ]
        assert len({each.json()["sessionId"] for each in sent}) == 2


async def test_repeated_message_after_a_restart_gets_the_first_response(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/store.db"
    async with served(tmp_path, ["one"], address=address) as server:
        token = server.token("write")
        signed = {"Authorization": f"Bearer {token}", **KEY}
        first = await server.http.post("/v1/messages", json={"text": "hi"}, headers=signed)
        await server.until(first.json()["sessionId"], "idle")
    async with served(tmp_path, ["two"], address=address) as server:
        again = await server.http.post("/v1/messages", json={"text": "hi"}, headers=signed)
        assert (again.status_code, again.content) == (201, first.content)
        assert await said_in(server, first.json()["sessionId"]) == ["hi", "one"]


async def test_changes_of_a_session_with_one_idempotency_key_are_made_once(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hi")
        fork = f"/v1/sessions/{session}/fork"
        forks = [await server.http.post(fork, json={}, headers=KEY) for _ in range(2)]
        assert forks[0].json()["id"] == forks[1].json()["id"]
        made = [
            await server.http.post(
                "/v1/sessions", json={"title": "a"}, headers={"Idempotency-Key": "create"}
            )
            for _ in range(2)
        ]
        assert [each.status_code for each in made] == [201, 201]
        assert made[0].json()["id"] == made[1].json()["id"]
        renamed = {"Idempotency-Key": "rename", "If-Match": '"0"'}
        first = await server.http.patch(
            f"/v1/sessions/{session}", json={"title": "b"}, headers={"Idempotency-Key": "rename"}
        )
        assert first.status_code == 200, first.text
        again = await server.http.patch(
            f"/v1/sessions/{session}", json={"title": "b"}, headers=renamed
        )
        assert (again.status_code, again.content) == (200, first.content)


async def test_change_with_idempotency_key_returns_the_current_etag(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hi")
        place = f"/v1/sessions/{session}"
        first = await server.http.patch(place, json={"title": "b"}, headers=KEY)
        head = {"If-Match": first.headers["etag"]}
        assert (await server.http.patch(place, json={"title": "c"}, headers=head)).is_success


async def test_rejected_request_is_processed_again_when_it_is_repeated(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hi")
        place = f"/v1/sessions/{session}/follow-up"
        for _ in range(2):
            refused = await server.http.post(place, json={"text": "more"}, headers=KEY)
            assert (refused.status_code, refused.json()["code"]) == (409, "invalid_transition")


@pytest.mark.parametrize("was_stored", [True, False])
async def test_message_to_a_killed_server_is_stored_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, was_stored: bool
) -> None:
    monkeypatch.setattr(idempotency, "_POLLS", 1)
    async with served(tmp_path, ["zero", "one", "two"]) as server:
        token = server.token("write")
        signed = {"Authorization": f"Bearer {token}", **KEY}
        session = await server.said("before")
        body = {"text": "hi", "sessionId": session}
        request = httpx.Request("POST", f"{server.url}/v1/messages", json=body)
        keyed = idempotency.KeyedRequest(
            "POST", "/v1/messages", KEY["Idempotency-Key"], "t1", token
        )
        keyed.read(b"", request.content)
        await keyed.claim(await server.store.open(session))  # the process is killed after this
        if was_stored:
            await server.said("hi", session)
        await server.http.post("/v1/messages", json=body, headers=signed)
        await server.until(session, "idle")
        assert await said_in(server, session) == ["before", "zero", "hi", "one"]


async def test_change_with_an_unknown_outcome_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "_POLLS", 1)
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hi")
        place = f"/v1/sessions/{session}/fork"
        first = await server.http.post(place, json={}, headers=KEY)
        assert first.status_code == 201
        opened = await server.store.open(session)
        answers = [entry async for entry in opened.notes(idempotency.ANSWER)]
        await opened.note(Note(idempotency.ANSWER, {"is_refused": True}), about=answers[0].about)
        assert (await server.http.post(place, json={}, headers=KEY)).json() != first.json()


@pytest.mark.parametrize("key", ["", "x" * 201])
async def test_invalid_idempotency_key_is_rejected(tmp_path: Path, key: str) -> None:
    async with served(tmp_path) as server:
        refused = await server.http.post(
            "/v1/messages", json={"text": "hi"}, headers={"Idempotency-Key": key}
        )
        assert (refused.status_code, refused.json()["code"]) == (400, "idempotency_key_invalid")


async def test_facts_are_remembered_and_corrected_once_per_idempotency_key(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        url = "/v1/memory/facts"
        made = [await server.http.post(url, json={"text": "a"}, headers=KEY) for _ in range(3)]
        assert {each.status_code for each in made} == {201}
        assert len({each.json()["id"] for each in made}) == 1
        other = await server.http.post(url, json={"text": "b"}, headers=KEY)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
        place, key = f"{url}/{made[0].json()['id']}", {"Idempotency-Key": "other"}
        for _ in range(2):
            corrected = await server.http.patch(place, json={"text": "c"}, headers=key)
            assert corrected.status_code == 200, corrected.text
            assert (corrected.json()["text"], corrected.json()["history"]) == ("c", ["a"])
        stranger = await server.client("write")
        theirs = await stranger.post(url, json={"text": "a"}, headers=KEY)
        assert theirs.json()["id"] != made[0].json()["id"]


async def test_repeated_answer_is_stored_once_with_or_without_an_idempotency_key(
    tmp_path: Path,
) -> None:
    call = perdure.assistant(perdure.tool_call("c1", "refund", {"order": "7"}))
    async with served(tmp_path, [call, "done"], agents=[ASKING]) as server:
        sent = await server.http.post("/v1/messages", json={"text": "hi"})
        await server.until(sent.json()["sessionId"], "waiting")
        (question,) = (await server.http.get("/v1/inbox")).json()["items"]
        url = f"/v1/inbox/{question['id']}/answer"
        answers = [
            await server.http.post(url, json={"answer": "allow"}, headers=headers)
            for headers in (KEY, KEY, {})
        ]
        assert [each.status_code for each in answers] == [200] * 3
        assert len({each.json()["id"] for each in answers}) == 1
        await server.until(sent.json()["sessionId"], "idle")


@perdure.tool(effect="external", needs_approval=True)
async def refund(order: str) -> str:
    """Give the money back."""
    return order


ASKING = perdure.Agent("desk", model="scripted:desk", tools=[refund])


async def test_route_without_idempotency_support_rejects_an_idempotency_key(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        refused = await server.http.post("/v1/store/verify", headers=KEY)
        assert (refused.status_code, refused.json()["code"]) == (400, "idempotency_unsupported")
