"""Routes of sessions: lists, pages, messages and entries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import perdure
from tests.fakes.console_store import refund
from tests.fakes.samples import case
from tests.fakes.served import Served, served


async def test_session_list_is_paged_and_filtered(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for n in range(5):
            new = {"id": f"s{n}", "title": f"Trip {n}", "subject": "ana" if n % 2 else "bob"}
            made = await server.http.post("/v1/sessions", json=new)
            assert made.status_code == 201
            assert made.headers["etag"] == f'"{made.json()["head"]}"'
        first = (await server.http.get("/v1/sessions", params={"limit": 3})).json()
        rest = await server.http.get("/v1/sessions", params={"limit": 3, "after": first["next"]})
        found = [each["id"] for each in first["items"] + rest.json()["items"]]
        assert sorted(found) == ["s0", "s1", "s2", "s3", "s4"]
        assert rest.json()["next"] is None
        of_ana = await server.http.get("/v1/sessions", params={"subject": "ana"})
        assert {each["id"] for each in of_ana.json()["items"]} == {"s1", "s3"}
        named = await server.http.get("/v1/sessions", params={"query": "trip 4"})
        assert [each["id"] for each in named.json()["items"]] == ["s4"]
        assert (await server.http.get("/v1/sessions", params={"limit": 0})).status_code == 400
        taken = await server.http.post("/v1/sessions", json={"id": "s1"})
        assert (taken.status_code, taken.json()["code"]) == (409, "session_exists")


async def test_session_list_is_filtered_by_state_and_time(tmp_path: Path) -> None:
    asks = perdure.assistant(perdure.tool_call("c1", "refund", {"number": 1, "reason": "late"}))
    agent = perdure.Agent("desk", model="scripted:desk", tools=[refund])
    async with served(tmp_path, [asks, "hello"], agents=[agent]) as server:
        sent = await server.http.post("/v1/messages", json={"text": "Give it back."})
        waits = sent.json()["sessionId"]
        await server.until(waits, "waiting")
        made = (await server.http.post("/v1/sessions", json={"id": "idle"})).json()
        closed = (await server.http.post("/v1/sessions", json={"id": "closed"})).json()
        await server.http.post("/v1/sessions/closed/end", json={})

        async def listed(**query: str) -> set[str]:
            page = await server.http.get("/v1/sessions", params={"limit": "1", **query})
            found, after = page.json()["items"], page.json()["next"]
            while after is not None:
                params = {"limit": "1", "after": after, **query}
                page = (await server.http.get("/v1/sessions", params=params)).json()
                found, after = found + page["items"], page["next"]
            return {each["id"] for each in found}

        assert await listed(state="waiting") == {waits}
        assert await listed(state="idle") == {made["id"]}
        assert await listed(state="ended") == {closed["id"]}
        assert await listed(state="running") == set()
        assert await listed(since=closed["createdAt"], until="2100-01-01T00:00:00Z") >= {"closed"}
        assert await listed(until="2000-01-01T00:00:00Z") == set()
        models = {
            each["id"]: each["model"]
            for each in (await server.http.get("/v1/sessions")).json()["items"]
        }
        assert models[waits] == "scripted:desk"


async def test_session_is_renamed(tmp_path: Path) -> None:
    async with served(tmp_path, ["hello"]) as server:
        session = await server.said("What is up?")
        renamed = await server.http.patch(f"/v1/sessions/{session}", json={"title": "News"})
        assert renamed.json()["name"] == "News"
        bare = await server.http.patch(f"/v1/sessions/{session}", json={"title": None})
        assert (bare.json()["title"], bare.json()["name"]) == (None, "What is up?")


async def test_messages_are_paged_from_the_newest_backwards(tmp_path: Path) -> None:
    async with served(tmp_path, [f"answer {n}" for n in range(3)]) as server:
        session = await server.said("m0")
        await server.said("m1", session)
        handle = await server.store.open(session)
        first = (await handle.path(kind="message"))[0]
        await handle.label(first.id, "start")
        await handle.branch(first.id)
        await server.said("other", session)
        url = f"/v1/sessions/{session}/messages"
        newest = (await server.http.get(url, params={"last": 2})).json()
        assert [each["text"] for each in newest["items"]] == ["other", "answer 0"]
        assert newest["hasMore"]
        assert len(newest["items"][0]["siblings"]) == 1
        before = {"last": 2, "before": newest["items"][0]["id"]}
        earlier = (await server.http.get(url, params=before)).json()
        assert [each["text"] for each in earlier["items"]] == ["m0"]
        assert earlier["items"][0]["label"] == "start"
        assert not earlier["hasMore"]


async def test_entries_after_a_given_seq_are_returned(tmp_path: Path) -> None:
    async with served(tmp_path, ["hello"]) as server:
        session = await server.said("hi")
        url = f"/v1/sessions/{session}/entries"
        page = (await server.http.get(url, params={"limit": 3})).json()
        assert [each["seq"] for each in page["items"]] == [0, 1, 2]
        rest = (await server.http.get(url, params={"after": page["next"]})).json()
        assert [each["seq"] for each in rest["items"]] == [3, 4, 5, 6]
        newest = {"newestFirst": True, "limit": 1}
        assert (await server.http.get(url, params=newest)).json()["items"][0]["seq"] == 6


async def test_entries_are_paged_in_both_orders(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        session = await server.store.create(id="s")
        for number in range(4):
            entry = await session.append(perdure.user(str(number)))
            await session.label(entry, f"l{number}")
        for query, pages in (
            ({"limit": 3}, [[0, 1, 2], [3, 4, 5], [6, 7]]),
            ({"limit": 3, "newestFirst": True}, [[7, 6, 5], [4, 3, 2], [1, 0]]),
            ({"limit": 4, "newestFirst": True}, [[7, 6, 5, 4], [3, 2, 1, 0]]),
            ({"limit": 3, "newestFirst": True, "kind": "message"}, [[6, 4, 2], [0]]),
        ):
            with case(query):
                assert await _pages(server, "/v1/sessions/s/entries", query) == pages


async def test_entry_appended_between_pages_does_not_change_older_pages(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        session = await server.store.create(id="s")
        await session.append_many([perdure.user(str(number)) for number in range(4)])
        url, query = "/v1/sessions/s/entries", {"newestFirst": True, "limit": 2}
        first = (await server.http.get(url, params=query)).json()
        await session.append(perdure.user("new"))
        older = (await server.http.get(url, params=query | {"after": first["next"]})).json()
        assert [each["seq"] for each in first["items"] + older["items"]] == [3, 2, 1, 0]
        assert older["next"] is None


async def _pages(server: Served, url: str, query: Mapping[str, int | str]) -> list[list[int]]:
    """Return the seqs on the pages of a list; stop after ten pages if the list does not end."""
    found, after = list[list[int]](), "-1"
    while after is not None and len(found) < 10:
        page = (await server.http.get(url, params={**query, "after": after})).json()
        found.append([each["seq"] for each in page["items"]])
        after = page["next"]
    return found


async def test_sessions_are_filtered_by_agent_over_all_pages(tmp_path: Path) -> None:
    agents = [perdure.Agent(name, model="scripted:desk") for name in ("a", "b")]
    async with served(tmp_path, agents=agents) as server:
        made: dict[str, list[str]] = {"a": [], "b": []}
        for n in range(9):
            name = "a" if n % 3 == 0 else "b"
            sent = await server.http.post("/v1/sessions", json={"agent": name})
            made[name].append(sent.json()["id"])
        for name, wanted in made.items():
            found, after = list[str](), None
            while True:
                query = {"agent": name, "limit": 2} | ({} if after is None else {"after": after})
                page = (await server.http.get("/v1/sessions", params=query)).json()
                found += [each["id"] for each in page["items"]]
                after = page["next"]
                if after is None:
                    break
            assert sorted(found) == sorted(wanted)


async def test_export_has_file_name_and_media_type(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        session = await server.store.create(id="shop:ana")
        await session.append(perdure.user("hi"), perdure.assistant("hello"))
        document = (await server.http.get("/v1/openapi.json")).json()
        route = document["paths"]["/v1/sessions/{session_id}/export"]["get"]
        for name, ending, kind in (
            ("perdure", "jsonl", "application/x-ndjson"),
            ("opencode", "json", "application/json"),
            ("workflow", "yaml", "application/yaml"),
            ("markdown", "md", "text/markdown"),
            ("html", "html", "text/html"),
        ):
            url = "/v1/sessions/shop:ana/export"
            found = await server.http.get(url, params={"format": name})
            assert found.headers["content-type"].partition(";")[0] == kind
            told = f'attachment; filename="shop_ana.{ending}"'
            assert found.headers["content-disposition"] == told
            assert kind in route["responses"]["200"]["content"]


async def test_session_with_an_erased_message_is_shown(tmp_path: Path) -> None:
    async with served(tmp_path, ["sunny", "rainy"]) as server:
        id = await server.said("How is the weather?")
        await server.said("My password is swordfish.", id)
        session = await server.store.open(id)
        (secret,) = [each for each in await session.path() if "swordfish" in each.text]
        await session.erase_entries([secret])
        shown = (await server.http.get(f"/v1/sessions/{id}/messages")).json()
        texts = [each["parts"][0]["text"] for each in shown["items"]]
        assert texts == ["How is the weather?", "sunny", "rainy"]
        for page in ("", "/entries", "/tree", "/context", "/turns"):
            seen = await server.http.get(f"/v1/sessions/{id}{page}")
            assert seen.status_code == 200, (page, seen.text)
            assert "swordfish" not in seen.text
