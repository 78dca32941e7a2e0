"""The inbox: questions with all arguments, and answers after which their turn continues."""

from __future__ import annotations

from pathlib import Path

import perdure
from perdure import assistant, tool_call
from tests.fakes.served import served

SENT: list[str] = []


@perdure.tool(effect="external", needs_approval=True)
def send_mail(to: str) -> str:
    """Send a mail."""
    SENT.append(to)
    return "sent"


async def test_turn_continues_after_its_question_is_answered_over_http(tmp_path: Path) -> None:
    SENT.clear()
    agent = perdure.Agent("desk", model="scripted:desk", tools=[send_mail])
    answers = [assistant(tool_call("c1", "send_mail", {"to": "ana"})), "It is sent"]
    async with served(tmp_path, answers, agents=[agent]) as server:
        sent = await server.http.post("/v1/messages", json={"text": "write to ana"})
        session = sent.json()["sessionId"]
        await server.until(session, "waiting")
        (question,) = (await server.http.get("/v1/inbox")).json()["items"]
        assert question["session"] == session
        assert "ana" in str(question["question"])
        stranger = await server.client(subject="bob")
        assert (await stranger.get("/v1/inbox")).json()["items"] == []
        url = f"/v1/inbox/{question['id']}/answer"
        assert (await stranger.post(url, json={"answer": "once"})).status_code == 404
        assert (await stranger.get(f"/v1/inbox/{question['id']}")).status_code == 404
        assert (await server.http.get(f"/v1/inbox/{session}/99")).status_code == 404
        for unknown in (f"{session}/1", f"{session}/9999", "nobody/1", "nobody"):
            for client in (server.http, stranger):
                got = await client.post(f"/v1/inbox/{unknown}/answer", json={"answer": "once"})
                assert (got.status_code, got.json()["code"]) == (404, "question_not_found")
        for unknown in ("nobody/1", "nobody"):
            url_of_unknown = f"/v1/inbox/{unknown}/answer"
            keyed = {"Idempotency-Key": f"key of {unknown}"}
            got = await server.http.post(url_of_unknown, json={"answer": "once"}, headers=keyed)
            assert (got.status_code, got.json()["code"]) == (404, "question_not_found")
            got = await (await server.client("read")).post(url_of_unknown, json={"answer": "once"})
            assert (got.status_code, got.json()["code"]) == (403, "role_missing")
        choice = question["question"]["choices"][0]
        desk = await server.client(id="3f9a12cd")
        answered = await desk.post(url, json={"answer": choice})
        assert answered.status_code == 200, answered.text
        await server.until(session, "idle")
        assert SENT == ["ana"]
        other = question["question"]["choices"][-1]
        again = await server.http.post(url, json={"answer": other})
        assert again.status_code == 409
        assert again.json()["detail"].endswith(f"answered {choice!r} by token 3f9a12cd before")


async def test_question_is_shown_with_uncut_arguments(tmp_path: Path) -> None:
    agent = perdure.Agent("desk", model="scripted:desk", tools=[send_mail])
    to = "ana " * 2_000 + "end"
    async with served(
        tmp_path, [assistant(tool_call("c1", "send_mail", {"to": to}))], agents=[agent]
    ) as server:
        sent = await server.http.post("/v1/messages", json={"text": "write to ana"})
        await server.until(sent.json()["sessionId"], "waiting")
        (listed,) = (await server.http.get("/v1/inbox")).json()["items"]
        assert set(listed["question"]["arguments"]["to"]) == {"head", "bytes", "blake2b_256"}
        shown = (await server.http.get(f"/v1/inbox/{listed['id']}")).json()
        assert shown["question"]["arguments"] == {"to": to}
        assert shown == {**listed, "question": {**listed["question"], "arguments": {"to": to}}}


async def test_answer_to_a_program_question_starts_no_turn(tmp_path: Path) -> None:
    agent = perdure.Agent("desk", model="scripted:desk")
    async with served(tmp_path, [], agents=[agent]) as server:
        session = await server.store.create(id="s")
        asked = await session.ask("May it?", ["allow", "deny"], call=tool_call("c1", "send", {}))
        (question,) = (await server.http.get("/v1/inbox")).json()["items"]
        assert (question["id"], question["question"]["topic"]) == (asked.id, "program")
        url = f"/v1/inbox/{asked.id}/answer"
        for _ in range(2):  # the same answer again is no conflict
            answered = await server.http.post(url, json={"answer": "deny", "note": "not now"})
            assert answered.status_code == 200, answered.text
        assert (await server.http.post(url, json={"answer": "allow"})).status_code == 409
        answer = await session.answer_to(asked)
        assert answer is not None
        assert (answer.choice, answer.note) == ("deny", "not now")
        assert [each.kind async for each in session.entries()] == ["question", "answer"]
