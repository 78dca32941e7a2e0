"""Routes of memory: facts and episodes of one person, and recall with reasons."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.served import served


async def test_fact_is_remembered_corrected_and_forgotten(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        ana, bob = await server.client(subject="ana"), await server.client(subject="bob")
        made = await ana.post("/v1/memory/facts", json={"text": "Ana is allergic to nuts"})
        assert made.status_code == 201
        url = f"/v1/memory/facts/{made.json()['id']}"
        assert (await bob.get("/v1/memory/facts")).json()["items"] == []
        assert (await bob.patch(url, json={"text": "x"})).status_code == 404
        assert (await bob.delete(url)).status_code == 404
        better = await ana.patch(url, json={"text": "Ana is allergic to peanuts"})
        assert better.json()["history"] == ["Ana is allergic to nuts"]
        assert (await ana.delete(better.request.url.path)).status_code == 204
        assert (await ana.get("/v1/memory/facts")).json()["items"] == []


async def test_recall_gives_reasons(tmp_path: Path) -> None:
    async with served(tmp_path, ["The Seaview has the better pool"]) as server:
        ana, bob = await server.client(subject="ana"), await server.client(subject="bob")
        sent = await ana.post("/v1/messages", json={"text": "Which hotel did we choose?"})
        await server.until(sent.json()["sessionId"], "idle")
        ask = {"question": "Which hotel has a pool?"}
        found = (await ana.get("/v1/memory/recall", params=ask)).json()["items"]
        assert "pool" in str(found[0]["why"])
        assert (await bob.get("/v1/memory/recall", params=ask)).json()["items"] == []


async def test_source_of_fact_must_be_visible(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hi")
        bob = await server.client(subject="bob")
        new = {"text": "Something", "sources": [f"{session}/2"]}
        assert (await bob.post("/v1/memory/facts", json=new)).status_code == 404
        assert (await server.http.post("/v1/memory/facts", json=new)).status_code == 201


async def test_records_are_never_made_for_another_person_than_the_token_says(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, ["one"]) as server:
        ana = await server.client(subject="ana")
        for path, body in (
            ("memory/facts", {"text": "Ana likes tea"}),
            ("sessions", {}),
            ("messages", {"text": "hi"}),
        ):
            refused = await ana.post(f"/v1/{path}", json={**body, "subject": "bob"})
            assert (refused.status_code, refused.json()["code"]) == (403, "subject_refused")
            made = await ana.post(f"/v1/{path}", json={**body, "subject": "ana"})
            assert made.status_code == 201
        assert (
            len((await server.http.get("/v1/sessions", params={"scope": "all"})).json()["items"])
            == 2
        )
        other = await server.client(agent="desk")
        new = {"text": "The desk is open", "agent": "shop"}
        assert (await other.post("/v1/memory/facts", json=new)).json()["code"] == "agent_refused"
