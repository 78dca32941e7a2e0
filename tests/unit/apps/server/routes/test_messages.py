"""The route of messages: its answers match what happened."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.served import served


async def test_message_is_answered_in_its_session(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two"]) as server:
        new = {"text": "hello", "title": "Greeting", "subject": "ana"}
        sent = await server.http.post("/v1/messages", json=new)
        assert sent.status_code == 201
        session = sent.json()["sessionId"]
        shown = await server.until(session, "idle")
        assert (shown["title"], shown["subject"], shown["messages"]) == ("Greeting", "ana", 2)
        again = await server.http.post("/v1/messages", json={"text": "on", "sessionId": session})
        assert (again.status_code, again.json()["isNew"]) == (200, False)
