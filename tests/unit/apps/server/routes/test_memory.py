"""Routes of memory: facts and episodes of one person, and recall with reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import perdure
from perdure import MemoryConfig, user
from tests.fakes.embedders import WordEmbedder
from tests.fakes.served import served


async def test_fact_is_remembered_corrected_and_deleted(tmp_path: Path) -> None:
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


async def test_pages_of_facts_and_episodes_begin_after_a_cursor(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two", "three"]) as server:
        for number in range(3):
            text = {"text": f"Fact {number}"}
            assert (await server.http.post("/v1/memory/facts", json=text)).status_code == 201
            session = await server.said("hi")
            ended = await server.http.post(f"/v1/sessions/{session}/end")
            assert ended.is_success, ended.text
        for path in ("/v1/memory/facts", "/v1/memory/episodes"):
            whole = (await server.http.get(path)).json()
            assert (len(whole["items"]), whole["next"]) == (3, None)
            found, after = list[Any](), None
            for last in (False, False, True):
                asked = {"limit": 1} | ({} if after is None else {"after": after})
                page = (await server.http.get(path, params=asked)).json()
                found += page["items"]
                after = page["next"]
                assert (after is None) == last
            assert found == whole["items"]
            assert (await server.http.get(path, params={"after": "x"})).status_code == 422


async def test_recall_returns_the_reasons_of_each_hit(tmp_path: Path) -> None:
    async with served(tmp_path, ["The Seaview has the better pool"]) as server:
        ana, bob = await server.client(subject="ana"), await server.client(subject="bob")
        sent = await ana.post("/v1/messages", json={"text": "Which hotel did we choose?"})
        await server.until(sent.json()["sessionId"], "idle")
        ask = {"question": "Which hotel has a pool?"}
        found = (await ana.get("/v1/memory/recall", params=ask)).json()["items"]
        assert "pool" in str(found[0]["why"])
        assert (await bob.get("/v1/memory/recall", params=ask)).json()["items"] == []


async def test_source_of_a_new_fact_must_be_visible_to_the_caller(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hi")
        bob = await server.client(subject="bob")
        new = {"text": "Something", "sources": [f"{session}/2"]}
        assert (await bob.post("/v1/memory/facts", json=new)).status_code == 404
        assert (await server.http.post("/v1/memory/facts", json=new)).status_code == 201


async def test_token_of_one_subject_cannot_access_another_subject(
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
        known = {"text": "hi", "sessionId": made.json()["sessionId"], "subject": "bob"}
        assert (await ana.post("/v1/messages", json=known)).json()["code"] == "subject_refused"
        for path in ("sessions", "search", "memory/facts", "memory/recall", "memory/episodes"):
            sought = {"question": "tea"} if path.endswith("recall") else {}
            sought |= {"q": "tea"} if path == "search" else {}
            asked = await ana.get(f"/v1/{path}", params={**sought, "subject": "bob"})
            assert asked.status_code == 403, path
        assert (
            len((await server.http.get("/v1/sessions", params={"scope": "all"})).json()["items"])
            == 2
        )
        other = await server.client(agent="desk")
        new = {"text": "The desk is open", "agent": "shop"}
        assert (await other.post("/v1/memory/facts", json=new)).json()["code"] == "agent_refused"


async def test_recall_uses_the_embedder_of_the_server_or_the_agent(
    tmp_path: Path,
) -> None:
    alike = [("hotel", "lodging")]
    own, of_agent = WordEmbedder(alike=alike), WordEmbedder("agent:1", alike=alike)
    memory = MemoryConfig(embedder=of_agent)
    helper = perdure.Agent("helper", model="x:y", memory=memory)
    samples: list[tuple[dict[str, Any], WordEmbedder]] = [({"embedder": own}, own), ({}, of_agent)]
    for options, used in samples:
        async with served(tmp_path, agents=[helper], **options) as server:
            session = await server.store.create(subject="ana")
            await session.append(user("Which hotel?"))
            ana = await server.client(subject="ana")
            ask = {"question": "lodging"}
            found = (await ana.get("/v1/memory/recall", params=ask)).json()
            assert [each["text"] for each in found["items"]] == ["Which hotel?"]
            assert found["problem"] is None
            call = {"name": "recall", "arguments": ask}
            sent = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            accepts = {"accept": "application/json, text/event-stream"}
            answered = await ana.post("/mcp", json=sent, headers=accepts)
            assert "Which hotel?" in answered.text
            assert used.asked
            used.failure = OSError("down")
            found = (await ana.get("/v1/memory/recall", params=ask)).json()
            assert (found["items"], "by words alone" in found["problem"]) == ([], True)
            assert "down" not in found["problem"]  # it may name files of the server
            found = (await server.http.get("/v1/memory/recall", params=ask)).json()
            assert "down" in found["problem"]


async def test_recall_finds_only_texts_of_the_subject_of_the_token(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        session = await server.store.create(subject="ana")
        said = await session.append(user("Where do we stay?"))
        await session.end(summary="A hotel by the river.")
        memory = server.store.memory
        fact = await memory.remember("a quiet hotel", subject="ana", source=said)
        await memory.remember("the hotel of bob", subject="bob")
        ana, bob = await server.client(subject="ana"), await server.client(subject="bob")
        found = (await ana.get("/v1/memory/recall", params={"question": "hotel"})).json()["items"]
        by_kind = {each["kind"]: each for each in found}
        assert by_kind.keys() >= {"episode", "fact"}
        assert (by_kind["fact"]["entryId"], by_kind["fact"]["sources"]) == (fact.id, [said.id])
        found = (await bob.get("/v1/memory/recall", params={"question": "hotel"})).json()["items"]
        assert [each["text"] for each in found] == ["the hotel of bob"]


async def test_token_for_memory_can_access_only_facts_and_episodes(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        memory = server.store.memory
        for subject, agent in (("ana", "desk"), ("bob", None), (None, None)):
            session = await server.store.create(subject=subject)
            await session.append(user("hi"))
            await session.end()
            await memory.remember(f"about {subject}", subject=subject, agent=agent)

        async def seen(path: str, client: Any, **query: str) -> set[str | None]:
            page = await client.get(f"/v1/memory/{path}", params=query)
            return {each["subject"] for each in page.json()["items"]}

        ana, desk = await server.client(subject="ana"), await server.client(agent="desk")
        for path in ("facts", "episodes"):
            assert await seen(path, server.http) == {"ana", "bob", None}
            assert await seen(path, server.http, subject="bob") == {"bob"}
            assert await seen(path, server.http, scope="subject") == {None}
            for query in ({}, {"subject": "ana"}, {"scope": "namespace"}):
                assert await seen(path, ana, **query) == {"ana"}
        assert await seen("facts", desk) == {"ana"}
        assert await seen("facts", desk, subject="bob") == set()
        refused = await server.http.get("/v1/memory/facts?subject=ana&scope=namespace")
        assert refused.status_code == 422
