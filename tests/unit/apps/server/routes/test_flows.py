"""Flows over HTTP: start, feed, decisions, and permissions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.served_flows import begun, flow_until, serving_flows, waits_for

pytestmark = pytest.mark.full_only  # each test has a server of its own


async def test_flow_runs_from_start_to_end_over_http(tmp_path: Path) -> None:
    async with serving_flows(tmp_path) as server:
        flow = await begun(server, tmp_path)
        shown = await flow_until(server, flow, waits_for("prompt-human"))
        assert [each["state"] for each in shown["nodes"]] == ["waiting", "pending", "pending"]
        url = f"/v1/flows/{flow}"
        reply = {"text": "The night train", "to": "owner-intake"}
        assert (await server.http.post(f"{url}/reply", json=reply)).status_code == 200
        assert (await server.http.post(f"{url}/reply", json=reply)).status_code == 409
        shown = await flow_until(server, flow, waits_for("handoff-approval"))
        feed = (await server.http.get(f"{url}/feeds/owner")).json()
        assert "Which train?" in str(feed["items"])
        assert all(each["entryId"] for each in feed["items"])
        role = (await server.http.get(f"{url}/roles/owner")).json()
        assert role["contextWindow"] == 20_000
        assert role["contextTokens"] > 0
        for choice in ("approve", "none"):
            topic = {"approve": "handoff-approval", "none": "improvement-choice"}[choice]
            shown = await flow_until(server, flow, waits_for(topic))
            (question,) = [each["question"] for each in shown["waits"]]
            sent = await server.http.post(f"/v1/inbox/{question}/answer", json={"answer": choice})
            assert sent.status_code == 200, sent.text
        await flow_until(server, flow, lambda shown: shown["status"] == "completed")
        (listed,) = (await server.http.get("/v1/flows")).json()["items"]
        assert (listed["id"], listed["waits"]) == (flow, 0)
        assert (await server.http.delete(url)).status_code == 204
        assert (await server.http.get(url)).status_code == 404


async def test_consent_and_configuration_of_a_flow_can_be_changed_over_http(tmp_path: Path) -> None:
    async with serving_flows(tmp_path) as server:
        flow = await begun(server, tmp_path, consent="no-access")
        url = f"/v1/flows/{flow}"
        writer = await server.client("write")
        refused = await writer.post(f"{url}/consent", json={"mode": "full-access"})
        assert (refused.status_code, refused.json()["code"]) == (403, "role_missing")
        narrower = await writer.post(f"{url}/consent", json={"mode": "partial-access"})
        assert narrower.json()["consent"]["mode"] == "partial-access"
        changed = await server.http.post(f"{url}/consent", json={"mode": "full-access"})
        assert changed.json()["consent"]["mode"] == "full-access"
        body = {"model": "scripted:flow", "tools": ["read_file"]}
        set_ = await server.http.put(f"{url}/roles/developer", json=body)
        assert set_.json()["tools"] == ["read_file"], set_.text
        assert (await server.http.put(f"{url}/roles/nobody", json=body)).status_code == 409
        for unknown in ("roles/nobody", "feeds/nobody"):
            answer = await server.http.get(f"{url}/{unknown}")
            assert (answer.status_code, answer.json()["code"]) == (404, "role_not_found")
            assert "'nobody'; it has: owner, developer" in answer.json()["detail"]


async def test_new_project_is_created_and_its_flow_asks_a_question(tmp_path: Path) -> None:
    async with serving_flows(tmp_path) as server:
        folder = tmp_path / "new"
        body = {"workspace": str(folder), "mode": "greenfield"}
        sent = await server.http.post("/v1/flows", json=body)
        assert sent.status_code == 201, sent.text
        assert (folder / "a-docs" / "index.yaml").is_file()
        await flow_until(server, sent.json()["id"], waits_for("prompt-human"))


@pytest.mark.parametrize(
    "fields", [{"workspace": "/"}, {"workflow": "../../x.yaml"}, {"recordFolder": "/tmp"}]
)
async def test_flow_outside_of_projects_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    async with serving_flows(folder) as server:
        sent = await server.http.post("/v1/flows", json={"workspace": str(folder)} | fields)
        assert (sent.status_code, sent.json()["code"]) == (403, "folder_refused")


async def test_restricted_tokens_can_neither_read_nor_change_flows(tmp_path: Path) -> None:
    async with serving_flows(tmp_path) as server:
        flow = await begun(server, tmp_path)
        calls = [("GET", ""), ("GET", "/feeds/owner"), ("POST", "/resume")]
        person = await server.client(subject="ana")
        reader = await server.client("read")
        for method, path in calls:
            url = f"/v1/flows/{flow}{path}"
            assert (await person.request(method, url, json={})).status_code == 403
        assert (await reader.get(f"/v1/flows/{flow}")).status_code == 200
        assert (await reader.post(f"/v1/flows/{flow}/resume")).status_code == 403
        writer = await server.client("write")
        body = {"workspace": str(tmp_path)}
        assert (await writer.post("/v1/flows", json=body)).status_code == 403


async def test_flow_with_client_chosen_id_is_started_once(tmp_path: Path) -> None:
    async with serving_flows(tmp_path) as server:
        assert await begun(server, tmp_path, id="mine") == "mine"
        body = {"workspace": str(tmp_path), "recordFolder": "other", "id": "mine"}
        again = await server.http.post("/v1/flows", json=body)
        assert (again.status_code, again.json()["code"]) == (409, "session_exists")
        assert [each["id"] for each in (await server.http.get("/v1/flows")).json()["items"]] == [
            "mine"
        ]
