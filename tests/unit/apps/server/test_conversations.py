"""Conversations: the effect of a message on a session, through the real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import perdure
from perdure import assistant, tool_call
from perdure.errors import HeadConflict
from tests.fakes.served import served


async def test_new_session_gets_an_unguessable_id(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, ["one", "two"]) as server:
        first = await server.http.post("/v1/messages", json={"text": "hello"})
        second = await server.http.post("/v1/messages", json={"text": "hello"})
        assert (first.status_code, second.status_code) == (201, 201)
        ids = {first.json()["sessionId"], second.json()["sessionId"]}
        assert len(ids) == 2
        assert all(len(id) >= 26 for id in ids)


async def test_message_to_an_unknown_session_creates_the_session_once(tmp_path: Path) -> None:
    async with served(tmp_path, ["answer"] * 9) as server:
        sent = await asyncio.gather(
            *(
                server.http.post("/v1/messages", json={"text": f"n{n}", "sessionId": "visitor-7"})
                for n in range(8)
            )
        )
        codes = sorted(each.status_code for each in sent)
        assert codes[-1] in (200, 202)
        assert codes.count(201) == 1
        await server.until("visitor-7", "idle")
        session = await server.store.open("visitor-7")
        said = {message.text for message in await session.messages() if message.role == "user"}
        assert said == {f"n{n}" for n in range(8)}


async def test_message_while_turn_runs_is_queued_or_rejected(tmp_path: Path) -> None:
    going = asyncio.Event()

    @perdure.tool(effect="read")
    async def wait() -> str:
        """Wait."""
        await going.wait()
        return "done"

    agent = perdure.Agent("desk", model="scripted:desk", tools=[wait])
    answers = [assistant(tool_call("c1", "wait", {})), "Both answered"]
    async with served(tmp_path, answers, agents=[agent]) as server:
        began = await server.http.post("/v1/messages", json={"text": "first"})
        session = began.json()["sessionId"]
        new = {"text": "second", "sessionId": session}
        rejected = await server.http.post("/v1/messages", json={**new, "ifRunning": "reject"})
        queued = await server.http.post("/v1/messages", json=new)
        assert rejected.status_code == 409
        assert rejected.json()["code"] == "turn_running"
        assert (queued.status_code, queued.json()["status"]) == (202, "queued")
        going.set()
        await server.until(session, "idle")
        told = await (await server.store.open(session)).messages()
        assert [each.text for each in told if each.role == "user"] == ["first", "second"]
        assert told[-1].text == "Both answered"


async def test_message_to_an_ended_session_reopens_the_session(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two"]) as server:
        session = await server.said("hello")
        await (await server.store.open(session)).end()
        assert (await server.http.get(f"/v1/sessions/{session}")).json()["state"] == "ended"
        again = await server.http.post("/v1/messages", json={"text": "back", "sessionId": session})
        assert again.status_code == 200
        await server.until(session, "idle")


async def test_message_to_an_erased_session_gets_status_410(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hello")
        await (await server.store.open(session)).erase()
        again = await server.http.post("/v1/messages", json={"text": "back", "sessionId": session})
        assert (again.status_code, again.json()["code"]) == (410, "erased")


async def test_server_with_several_agents_refuses_a_message_without_an_agent(
    tmp_path: Path,
) -> None:
    agents = [perdure.Agent(name, model="scripted:desk") for name in ("a", "b")]
    async with served(tmp_path, ["one"], agents=agents) as server:
        unnamed = await server.http.post("/v1/messages", json={"text": "hello"})
        assert (unnamed.status_code, unnamed.json()["code"]) == (422, "agent_missing")
        assert "a, b" in unnamed.json()["detail"]
        named = await server.http.post("/v1/messages", json={"text": "hello", "agent": "b"})
        assert named.status_code == 201


async def test_message_sent_during_a_compaction_is_answered_after_the_compaction(
    tmp_path: Path,
) -> None:
    begun, going = asyncio.Event(), asyncio.Event()

    async def wait(_: object) -> None:
        begun.set()
        await going.wait()

    answers = [f"answer {n} " + "word " * 9_000 for n in range(4)]
    async with served(tmp_path, [*answers, "A summary", "x", "y"]) as server:
        session = await server.said("m0")
        for n in (1, 2, 3):
            await server.said(f"m{n}", session)
        server.store.hooks.on("session_before_compact", wait)
        async with asyncio.TaskGroup() as requests:
            url = f"/v1/sessions/{session}/compact"
            compacted = requests.create_task(server.http.post(url, json={}))
            await begun.wait()
            new = {"text": "meanwhile", "sessionId": session}
            rejected = await server.http.post("/v1/messages", json={**new, "ifRunning": "reject"})
            sent = requests.create_task(server.http.post("/v1/messages", json=new))
            await asyncio.sleep(0.1)
            going.set()
        assert rejected.status_code == 409
        assert compacted.result().status_code == 200
        assert (sent.result().status_code, sent.result().json()["status"]) == (200, "started")
        await server.until(session, "idle")
        said = await (await server.store.open(session)).messages()
        assert (said[-2].text, said[-1].role) == ("meanwhile", "assistant")


async def test_steering_with_an_outdated_head_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        chat = await server.runtime.start("desk")
        await chat.send("hi")
        head = (await server.store.open(chat.id)).head
        with pytest.raises(HeadConflict):
            await chat.steer("late", expected_head=head - 1)
        assert (await server.store.open(chat.id)).head == head


async def test_message_sets_the_agent_of_a_session_that_has_no_agent(tmp_path: Path) -> None:
    agents = [perdure.Agent(name, model="scripted:desk") for name in ("desk", "shop")]
    async with served(tmp_path, ["one", "two"], agents=agents) as server:
        session = await server.store.create()
        new = {"text": "hi", "sessionId": session.id}
        refused = await server.http.post("/v1/messages", json=new)
        assert (refused.status_code, refused.json()["code"]) == (422, "agent_missing")
        sent = await server.http.post("/v1/messages", json={**new, "agent": "shop"})
        assert sent.status_code == 200
        assert (await server.until(session.id, "idle"))["agent"] == "shop"
