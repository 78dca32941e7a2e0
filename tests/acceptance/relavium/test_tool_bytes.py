"""Base64 in arguments and results of tools is stored as content; tools get the original text."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

import perdure
from perdure.client.agents.chat import Chat
from perdure.engine.turns.executor.tool_media import read_content
from perdure.errors import ModelUnavailable, ToolDenied
from perdure.events.wire import wire
from perdure.models.protocol import TextDelta
from perdure.session.ids import StreamId, blob_hash
from perdure.session.ledger import Interrupted, ToolFinished, ToolStarted
from tests.fakes.players import Theatre, asks, words

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
BASE64 = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{BASE64}"
HANDLE = f"media://{blob_hash(PNG)}"
ARGUMENTS = json.dumps({"image": URL})


def mirror(seen: list[str], **options: Any) -> perdure.ToolSpec:
    """A tool that returns its argument."""

    async def mirror(image: str) -> str:
        """Mirror."""
        seen.append(image)
        return f"mirrored {image}"

    spec = perdure.tool(effect="read")(mirror)
    return perdure.ToolSpec(spec.name, "Mirror.", spec.parameters, spec.run, **options)


async def without_base64(theatre: Theatre) -> None:
    """Assert that no entry and no request contains the bytes, and that the store contains them."""
    for entry in await theatre.entries():
        assert BASE64.encode() not in entry.body, entry.kind
    for request in theatre.players.requests:
        assert BASE64 not in str(wire(request.messages))
    assert await theatre.memory.blob(blob_hash(PNG)) == PNG


async def test_base64_argument_reaches_the_tool_but_is_stored_outside_the_log() -> None:
    seen: list[str] = []
    theatre = Theatre(main=[asks("mirror", json=ARGUMENTS), words("done")])
    chat = await theatre.chat(tools=[mirror(seen)])
    await chat.send("go")
    assert seen == [URL]
    await without_base64(theatre)
    assert (await theatre.bodies(ToolStarted))[0].contents == (HANDLE,)
    (result,) = [m for m in await chat.session.messages() if m.role == "tool"]
    assert result.text == f"mirrored data:image/png;base64,{HANDLE}"
    assert await read_content(theatre.memory, StreamId("s"), HANDLE) == PNG


async def test_call_approved_in_another_process_gets_the_original_base64() -> None:
    seen: list[str] = []
    theatre = Theatre(main=[asks("mirror", json=ARGUMENTS), words("done")])
    gated = mirror(seen, action="os", is_gated=True)
    chat = await theatre.chat(tools=[gated])
    async for event in chat.send("go"):
        if event.type == "inbox:question":
            break
    await chat.suspend()
    agent = perdure.Agent("helper", model="p:main", tools=[gated])
    resumed = await theatre.runtime(agent).resume("s")
    (asked,) = await resumed.session.questions()
    assert asked.question.arguments == {"image": f"data:image/png;base64,{HANDLE}"}
    await resumed.session.answer(asked.id, "allow", by="Ana")
    assert resumed.turn is not None
    await resumed.turn
    assert seen == [URL]
    await without_base64(theatre)


async def test_base64_of_unsuccessful_calls_is_not_stored_in_the_log() -> None:
    async def fail(image: str) -> str:
        """Fail."""
        raise ValueError(f"bad image {image}")

    theatre = Theatre(
        main=[
            asks("unheard_of", json=ARGUMENTS),
            asks("fail", json=ARGUMENTS),
            (TextDelta("so f"), *asks("fail", json=ARGUMENTS)[:-1], ModelUnavailable("p", "broke")),
        ]
    )
    chat = await theatre.chat(tools=[perdure.tool(effect="read")(fail)])
    with pytest.raises(perdure.errors.TurnFailed):
        await chat.send("go")
    await without_base64(theatre)
    refused, failed = await theatre.bodies(ToolFinished)
    assert refused.input == {"image": f"data:image/png;base64,{HANDLE}"}
    assert HANDLE in (failed.error or "")
    assert [each.partial.text for each in await theatre.bodies(Interrupted)] == ["so f"]


async def test_appended_calls_and_results_are_stored_without_base64() -> None:
    theatre = Theatre(main=[words("done")])
    chat = await theatre.chat()
    call = perdure.tool_call("c", "mirror", {"image": URL})
    await chat.session.append(perdure.user("go"), perdure.assistant(call))
    await chat.session.append(perdure.tool_result("c", URL))
    await chat.send("and?")
    await without_base64(theatre)


async def test_forged_content_handle_gives_no_access_to_another_session() -> None:
    theatre = Theatre(main=[words("mine")])
    await (await theatre.chat(id="other")).session.append(
        perdure.user("go"), perdure.assistant(perdure.tool_call("c", "mirror", {"image": URL}))
    )
    seen: list[str] = []
    forged = f"data:image/png;base64,{HANDLE}"
    theatre.players.acts["main"] = [asks("mirror", json=json.dumps({"image": forged}))]
    chat: Chat = await theatre.chat(tools=[mirror(seen)])
    await chat.send("go")
    assert seen == [forged]
    with pytest.raises(ToolDenied):
        await read_content(theatre.memory, StreamId("s"), HANDLE)
