"""Records: search, tool calls, usage and activity, and the permissions to see them."""

from __future__ import annotations

from pathlib import Path

import perdure
from perdure import assistant, tool_call, tool_result
from tests.fakes.served import served


@perdure.tool(effect="read")
def find_order(number: int) -> str:
    """Look an order up."""
    return f"order {number} was sent"


async def test_search_finds_only_words_of_visible_sessions(tmp_path: Path) -> None:
    async with served(tmp_path, ["The heron flew", "x"]) as server:
        ana, bob = await server.client(subject="ana"), await server.client(subject="bob")
        sent = await ana.post("/v1/messages", json={"text": "Did you see the heron?"})
        await server.until(sent.json()["sessionId"], "idle")
        for client, count in ((server.http, 2), (ana, 2), (bob, 0)):
            found = (await client.get("/v1/search", params={"q": "heron"})).json()["items"]
            assert len(found) == count
        people = {"q": "heron", "role": "user"}
        (hit,) = (await server.http.get("/v1/search", params=people)).json()["items"]
        assert [hit["snippet"][a:b] for a, b in hit["marks"]] == ["heron"]
        assert (await server.http.get("/v1/search", params={"q": ""})).status_code == 400


async def test_search_finds_no_removed_label(tmp_path: Path) -> None:
    async with served(tmp_path, ["x"]) as server:
        session = await server.said("hello")
        url = f"/v1/sessions/{session}"
        seq = (await server.http.get(f"{url}/messages")).json()["items"][0]["seq"]
        for label, count in (("heron", 1), ("tern", 0), ("heron", 1), (None, 0)):
            await server.http.put(f"{url}/labels/{seq}", json={"text": label})
            for filters in ({}, {"role": "label", "source": "", "match": "part"}):
                params = {"q": "heron", **filters}
                found = (await server.http.get("/v1/search", params=params)).json()["items"]
                assert len(found) == count


async def test_tool_calls_and_usage_are_listed(tmp_path: Path) -> None:
    agent = perdure.Agent("desk", model="scripted:desk", tools=[find_order])
    answers = [assistant(tool_call("c1", "find_order", {"number": 7})), "sent", "x"]
    async with served(tmp_path, answers, agents=[agent]) as server:
        session = await server.said("where is 7?")
        url = "/v1/tool-calls"
        (call,) = (await server.http.get(url, params={"session": session})).json()["items"]
        assert (call["name"], call["input"], call["success"]) == ("find_order", {"number": 7}, True)
        assert "was sent" in call["output"]
        failed = await server.http.get(url, params={"failed": True})
        assert failed.json()["items"] == []
        (usage,) = (await server.http.get("/v1/usage")).json()["items"]
        assert (usage["calls"], usage["sessions"], usage["day"]) == (2, 1, None)
        by_day = {"by": "agent", "daily": True}
        (daily,) = (await server.http.get("/v1/usage", params=by_day)).json()["items"]
        assert (daily["key"], daily["calls"], len(daily["day"])) == ("desk", 2, 10)
        (day,) = (await server.http.get("/v1/activity")).json()["items"]
        assert (day["turns"], day["toolCalls"]) == (1, 1)
        assert (await server.http.get("/v1/edits")).json()["items"] == []


async def test_edited_file_is_listed_with_its_newest_edit_call(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        session = await server.store.create(cwd="/project")
        for call in ("c1", "c2"):
            entry = await session.append(assistant(tool_call(call, "edit_file", {"path": "b.py"})))
            await session.append(tool_result(call, "done"))
        (edit,) = (await server.http.get("/v1/edits")).json()["items"]
        assert edit.pop("at") is not None
        assert edit == {
            "path": "b.py",
            "folder": "/project",
            "session": session.id,
            "entryId": entry.id,
            "tool": "edit_file",
            "edits": 2,
        }


async def test_tool_calls_and_usage_of_all_sessions_need_an_unrestricted_token(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as server:
        ana = await server.client(subject="ana")
        for url in ("/v1/tool-calls", "/v1/usage", "/v1/activity", "/v1/edits", "/v1/store"):
            refused = await ana.get(url)
            assert (refused.status_code, refused.json()["code"]) == (403, "token_restricted")


async def test_search_accepts_the_same_filters_as_the_session_list(tmp_path: Path) -> None:
    agents = [perdure.Agent(name, model="scripted:desk") for name in ("desk", "guide")]
    async with served(tmp_path, ["The heron flew"] * 9, agents=agents) as server:
        made = dict[str, str]()
        for subject, agent in (("Ana Lee", "desk"), ("bob", "guide"), ("ana", "guide")):
            new = {"text": "heron", "agent": agent, "subject": subject}
            sent = (await server.http.post("/v1/messages", json=new)).json()["sessionId"]
            await server.until(sent, "idle")
            made[sent] = subject

        async def found(**filters: str) -> set[str]:
            params = {"q": "heron", "limit": "1" if filters.pop("one", None) else "20", **filters}
            page = (await server.http.get("/v1/search", params=params)).json()
            listed = {k: v for k, v in filters.items() if k != "session"}
            sessions = (await server.http.get("/v1/sessions", params=listed)).json()["items"]
            assert {each["session"] for each in page["items"]} <= {each["id"] for each in sessions}
            return {made[each["session"]] for each in page["items"]}

        assert await found() == {"Ana Lee", "bob", "ana"}
        assert await found(agent="desk") == {"Ana Lee"}
        assert await found(agent="desk", one="1") == {"Ana Lee"}
        assert await found(agent="GUI", match="part") == {"bob", "ana"}
        assert await found(subject="ana") == {"ana"}
        assert await found(subject="ANA", match="part") == {"Ana Lee", "ana"}
        assert await found(subject="ana", agent="gui", match="part") == {"ana"}
        assert await found(state="running") == set()
        assert await found(source="claude-code") == set()
        refused = await server.http.get("/v1/search", params={"q": "x", "match": "some"})
        assert refused.status_code == 400
        assert "whole, part" in refused.json()["detail"]
        ana = await server.client(subject="ana")
        page = await ana.get("/v1/search", params={"q": "heron", "subject": "A", "match": "part"})
        assert {made[each["session"]] for each in page.json()["items"]} == {"ana"}


async def test_filters_offer_only_values_of_visible_sessions(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for subject in ("ana", "bob"):
            made = await server.store.create(subject=subject, cwd=f"/home/{subject}")
            await made.append(perdure.user("hi"))
        url = "/v1/session-values"
        assert (await server.http.get(url)).json() == {
            "agents": ["desk"],
            "subjects": ["ana", "bob"],
            "sources": [],
            "folders": ["/home/ana", "/home/bob"],
        }
        ana = (await (await server.client(subject="ana")).get(url)).json()
        assert (ana["subjects"], ana["folders"]) == (["ana"], ["/home/ana"])
        other = (await (await server.client(agent="guide")).get(url)).json()
        assert other == {"agents": [], "subjects": [], "sources": [], "folders": []}
