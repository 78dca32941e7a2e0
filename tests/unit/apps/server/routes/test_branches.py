"""Routes of branches: moving, forking, labels, compaction, the tree."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.served import served


async def test_branch_can_be_moved_and_compared_over_http(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two", "three"]) as server:
        session = await server.said("hi")
        url = f"/v1/sessions/{session}"
        first = (await server.http.get(f"{url}/messages")).json()["items"][0]["id"]
        left = (await server.http.get(url)).json()["leaf"]
        moved = await server.http.post(f"{url}/branch", json={"entry": first})
        assert moved.json()["leaf"] == first
        stale = {"entry": left, "expectedLeaf": left}
        refused = await server.http.post(f"{url}/branch", json=stale)
        assert (refused.status_code, refused.json()["code"]) == (409, "leaf_conflict")
        await server.said("other", session)
        leaf = (await server.http.get(url)).json()["leaf"]
        ends = {"a": left, "b": leaf}
        found = (await server.http.get(f"{url}/diff", params=ends)).json()
        assert found["shared"] == first
        assert [each["text"] for each in found["a"]] == ["one"]
        assert found["b"][0]["text"] == "other"


async def test_tree_shows_branches_labels_and_pins(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two"]) as server:
        session = await server.said("hi")
        url = f"/v1/sessions/{session}"
        await server.http.put(f"{url}/labels/2", json={"text": "start"})
        await server.http.put(f"{url}/pins/2")
        await server.http.post(f"{url}/branch", json={"entry": f"{session}/2"})
        await server.said("again", session)
        tree = (await server.http.get(f"{url}/tree")).json()
        root, left, again, _ = tree["items"]
        assert (root["label"], root["isPinned"]) == ("start", True)
        assert [row["isOnBranch"] for row in tree["items"]] == [True, False, True, True]
        assert again["parentId"] == left["parentId"] == root["id"]
        newest = (await server.http.get(f"{url}/tree", params={"last": 1})).json()
        assert (len(newest["items"]), newest["hasMore"]) == (1, True)
        await server.http.delete(f"{url}/pins/2")
        await server.http.put(f"{url}/labels/2", json={"text": None})
        rows = (await server.http.get(f"{url}/tree")).json()["items"]
        assert (rows[0]["label"], rows[0]["isPinned"]) == (None, False)


async def test_session_is_forked_at_entry(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two"]) as server:
        session = await server.said("hi")
        new = {"at": f"{session}/2", "title": "Copy", "id": "copy"}
        forked = await server.http.post(f"/v1/sessions/{session}/fork", json=new)
        assert forked.status_code == 201
        assert (forked.json()["id"], forked.json()["parent"]) == ("copy", session)
        shown = (await server.http.get("/v1/sessions/copy/messages")).json()["items"]
        assert [each["text"] for each in shown] == ["hi"]


async def test_compaction_can_be_made_and_undone_over_http(tmp_path: Path) -> None:
    answers = [f"answer {n} " + "word " * 9_000 for n in range(4)]
    async with served(tmp_path, [*answers, "A summary", "x", "y"]) as server:
        session = await server.said("m0")
        for n in (1, 2, 3):
            await server.said(f"m{n}", session)
        url = f"/v1/sessions/{session}"
        compacted = await server.http.post(f"{url}/compact", json={})
        assert compacted.status_code == 200, compacted.text
        again = await server.http.post(f"{url}/compact", json={})
        assert (again.status_code, again.json()["code"]) == (409, "nothing_to_compact")
        context = (await server.http.get(f"{url}/context")).json()
        assert "'m0'" not in str(context["messages"])  # ids may contain m0
        (shown,) = (await server.http.get(f"{url}/messages")).json()["compactions"]
        assert (shown["isUndone"], shown["reason"]) == (False, "manual")
        wanted = {"compaction": shown["id"]}
        removed = (await server.http.get(f"{url}/removed", params=wanted)).json()["items"]
        assert removed[0]["text"] == "m0"
        message = {"compaction": removed[0]["id"]}
        assert (await server.http.get(f"{url}/removed", params=message)).status_code == 422
        await server.http.post(f"{url}/uncompact", json={})
        (shown,) = (await server.http.get(f"{url}/messages")).json()["compactions"]
        assert shown["isUndone"]
        context = (await server.http.get(f"{url}/context")).json()
        assert "m0" in str(context["messages"])
