"""Routes of turns: steering, abort, end, resume."""

from __future__ import annotations

import asyncio
from pathlib import Path

import perdure
from perdure import assistant, tool_call
from perdure.testing import ScriptedModel
from tests.fakes.served import served


def waiting_agent(going: asyncio.Event) -> perdure.Agent:
    @perdure.tool(effect="read")
    async def wait() -> str:
        """Wait."""
        await going.wait()
        return "done"

    return perdure.Agent("desk", model="scripted:desk", tools=[wait])


CALL = assistant(tool_call("c1", "wait", {}))


async def test_running_turn_accepts_steering_and_follow_up_messages(tmp_path: Path) -> None:
    going = asyncio.Event()
    answers = [CALL, "first", "second"]
    async with served(tmp_path, answers, agents=[waiting_agent(going)]) as server:
        sent = await server.http.post("/v1/messages", json={"text": "go"})
        url = f"/v1/sessions/{sent.json()['sessionId']}"
        steered = await server.http.post(f"{url}/steer", json={"text": "also this"})
        added = await server.http.post(f"{url}/follow-up", json={"text": "then that"})
        assert (steered.status_code, added.status_code) == (202, 202)
        going.set()
        await server.until(sent.json()["sessionId"], "idle")
        shown = (await server.http.get(f"{url}/messages")).json()["items"]
        said = [each["text"] for each in shown if each["role"] == "user"]
        assert said == ["go", "also this", "then that"]


async def test_running_turn_is_aborted(tmp_path: Path) -> None:
    async with served(tmp_path, [CALL], agents=[waiting_agent(asyncio.Event())]) as server:
        sent = await server.http.post("/v1/messages", json={"text": "go"})
        url = f"/v1/sessions/{sent.json()['sessionId']}"
        aborted = await server.http.post(f"{url}/abort")
        assert aborted.json()["state"] == "idle"
        (turn,) = (await server.http.get(f"{url}/turns")).json()["items"]
        assert turn["status"] == "aborted"


async def test_only_an_ended_session_gets_an_episode(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, [CALL, "over"], agents=[waiting_agent(asyncio.Event())]) as server:
        for action, state, episodes in (("cancel", "idle", 0), ("end", "ended", 1)):
            sent = await server.http.post("/v1/messages", json={"text": "go"})
            session = sent.json()["sessionId"]
            body = {"reason": "done"} if action == "end" else None
            done = await server.http.post(f"/v1/sessions/{session}/{action}", json=body)
            assert done.json()["state"] == state
            found = await server.http.get("/v1/memory/episodes", params={"session": session})
            assert len(found.json()["items"]) == episodes


async def test_idle_session_rejects_steering(tmp_path: Path) -> None:
    async with served(tmp_path, ["hello"]) as server:
        session = await server.said("hi")
        url = f"/v1/sessions/{session}"
        head = (await server.http.get(url)).json()["head"]
        for action in ("steer", "follow-up"):
            refused = await server.http.post(f"{url}/{action}", json={"text": "more"})
            assert (refused.status_code, refused.json()["code"]) == (409, "invalid_transition")
            assert "POST /v1/messages starts one" in refused.text
        assert (await server.http.get(url)).json()["head"] == head
        heads = [(await server.http.post(f"{url}/cancel")).json()["head"] for _ in range(3)]
        assert heads == [head] * 3


async def test_interrupted_turn_is_resumed(tmp_path: Path) -> None:
    going = asyncio.Event()
    agent = waiting_agent(going)
    async with served(tmp_path, [CALL, "over", "over"], agents=[agent]) as server:
        sent = await server.http.post("/v1/messages", json={"text": "go"})
        session = sent.json()["sessionId"]
        await server.runtime.suspend()
        await server.until(session, "interrupted")
        going.set()
        resumed = await server.http.post(f"/v1/sessions/{session}/resume", json={})
        assert resumed.status_code == 200
        await server.until(session, "idle")


async def test_resume_accepts_a_session_id_that_is_a_prefix_of_another_id(
    tmp_path: Path,
) -> None:
    going = asyncio.Event()
    agent = waiting_agent(going)
    async with served(tmp_path, ["one", "two", "over", "over"], agents=[agent]) as server:
        for session in ("visit", "visit-2"):
            await server.http.post("/v1/messages", json={"text": "hi", "sessionId": session})
            await server.until(session, "idle")
        other = perdure.Runtime(server.store, [agent], models=ScriptedModel([CALL, CALL]))
        async with other:
            for session in ("visit", "visit-2"):  # the newer one has the longer id
                await (await other.resume(session)).send("go").started()
            await other.suspend()
        for session in ("visit", "visit-2"):
            await server.until(session, "interrupted")
        going.set()
        await server.http.post("/v1/sessions/visit/resume", json={})
        await server.until("visit", "idle")


async def test_turns_are_paged_from_the_newest_backwards(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two", "three"]) as server:
        session = await server.said("go")
        for _ in range(2):
            await server.said("on", session)
        url = f"/v1/sessions/{session}/turns"
        newest = (await server.http.get(url, params={"last": 2})).json()
        assert [turn["number"] for turn in newest["items"]] == [2, 3]
        before = {"last": 2, "before": newest["next"]}
        earlier = (await server.http.get(url, params=before)).json()
        assert [turn["number"] for turn in earlier["items"]] == [1]
        assert [len(turn["calls"]) for turn in earlier["items"]] == [1]
        assert earlier["next"] is None


async def test_cancel_of_a_turn_of_another_server_is_rejected(tmp_path: Path) -> None:
    agent = waiting_agent(asyncio.Event())
    async with served(tmp_path, ["hello"], agents=[agent]) as server:
        kept = await server.said("hi")
        models = ScriptedModel([CALL] * 4)
        other = perdure.Runtime(server.store, [agent], models=models, owner="other")
        for chat in (await other.resume(kept), await other.start("desk")):
            turn = chat.send("go")
            await turn.started()
            refused = await server.http.post(f"/v1/sessions/{chat.id}/cancel")
            assert (refused.status_code, refused.json()["code"]) == (409, "lease_held")
            assert turn.is_running
            await chat.abort()
            assert (await turn).end == "aborted"
            cancelled = await server.http.post(f"/v1/sessions/{chat.id}/cancel")
            assert cancelled.status_code == 200
        await other.close()
