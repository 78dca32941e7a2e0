"""Pictures of programs are stored as blobs; the log contains their handles."""

from __future__ import annotations

import pytest

from perdure.client.store import Store
from perdure.engine.hooks.points import AfterModelCall
from perdure.errors import InvalidEntry
from perdure.models.protocol import ModelRequest
from perdure.session.kinds import Custom
from perdure.session.media.inline import media
from perdure.session.messages import InFlightMessage, MediaPart, Message, assistant, user
from tests.fakes.chats import Stage, says

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 8


def handle_in(message: Message | None) -> str:
    assert message is not None
    (part,) = [part for part in message.parts if isinstance(part, MediaPart)]
    return part.handle


async def test_appended_picture_is_stored_as_blob(store: Store) -> None:
    session = await store.create(id="s")
    entry = await session.append(user("Look", media(PNG)))
    handle = handle_in(entry.message)
    assert await store.backend.blob(handle.removeprefix("media://")) == PNG
    assert b"PNG" not in entry.body


async def test_pictures_of_an_unsaved_session_are_stored_with_the_session(store: Store) -> None:
    session = await store.create(id="s", lazy=True)
    entry = await session.append(user("Look", media(PNG)))
    await session.append(assistant("A cat."))
    assert not session.is_draft
    handle = handle_in(entry.message)
    assert await store.backend.blob(handle.removeprefix("media://")) == PNG


async def test_picture_that_is_sent_reaches_the_model() -> None:
    stage = Stage(says("A cat."), says("Another."))
    chat = await stage.chat()
    seen: list[ModelRequest] = []

    def look(point: AfterModelCall) -> None:
        seen.append(point.request)

    stage.store.hooks.on("after_model_call", look)
    await chat.send(user("Look", media(PNG)))
    assert list(seen[0].media.values()) == [PNG]
    assert set(seen[0].media) == {handle_in((await chat.session.messages())[0])}
    await chat.steer(user("And here", media(PNG + b"1")))
    await chat.send("What now?")
    assert sorted(seen[1].media.values()) == [PNG, PNG + b"1"]


async def test_message_with_only_a_picture_is_accepted() -> None:
    stage = Stage(says("A cat."))
    chat = await stage.chat()
    said = user(media(PNG))
    assert isinstance(said, InFlightMessage)
    assert (await chat.send(said)).text == "A cat."


async def test_extension_state_can_contain_pictures(store: Store) -> None:
    session = await store.create(id="s")
    entry = await session.append(Custom("shots", {"latest": media(PNG)}))
    assert b"media://sha256-" in entry.body
    with pytest.raises(ValueError, match="is bytes, which cannot be in a log"):
        await session.append(Custom("shots", {"latest": PNG}))


async def test_message_with_inline_bytes_is_rejected(store: Store) -> None:
    session = await store.create(id="s")
    loose = MediaPart("image/png", "data:image/png;base64,AAAA", 3)
    with pytest.raises(InvalidEntry, match="by their handle only"):
        await session.append(Message("user", (loose,)))
    assert session.head == -1
