"""The route of messages: its answers match the stored session."""

from __future__ import annotations

import base64
from pathlib import Path

from perdure.session.messages import MediaPart
from tests.fakes.served import served


async def test_posted_message_is_answered_in_its_session(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two"]) as server:
        new = {"text": "hello", "title": "Greeting", "subject": "ana"}
        sent = await server.http.post("/v1/messages", json=new)
        assert sent.status_code == 201
        session = sent.json()["sessionId"]
        shown = await server.until(session, "idle")
        assert (shown["title"], shown["subject"], shown["messages"]) == ("Greeting", "ana", 2)
        again = await server.http.post("/v1/messages", json={"text": "on", "sessionId": session})
        assert (again.status_code, again.json()["isNew"]) == (200, False)


async def test_message_can_contain_an_image_but_no_other_file(
    tmp_path: Path,
) -> None:
    image = b"\x89PNG\r\n\x1a\n" + b"0" * 32
    data = base64.b64encode(image).decode()
    async with served(tmp_path, ["seen"]) as server:
        new = {"text": "", "contents": [{"data": data, "name": "a.png"}]}
        sent = await server.http.post("/v1/messages", json=new)
        assert sent.status_code == 201, sent.text
        session = await server.store.open(sent.json()["sessionId"])
        (message, *_) = await session.messages()
        (part,) = message.parts
        assert isinstance(part, MediaPart)
        assert await server.store.content(part) == image
        for wrong in ({"data": "AAAA"}, {"data": "?"}, {"data": data, "mimeType": "text/html"}):
            refused = await server.http.post("/v1/messages", json={"text": "", "contents": [wrong]})
            assert (refused.status_code, refused.json()["code"]) == (422, "wrong_argument")
        assert len(await server.store.recent()) == 1


async def test_message_without_text_and_contents_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        for text in ("", " \n"):
            refused = await server.http.post("/v1/messages", json={"text": text})
            assert (refused.status_code, refused.json()["code"]) == (422, "wrong_argument")
        assert (await server.http.get("/v1/sessions")).json()["items"] == []
