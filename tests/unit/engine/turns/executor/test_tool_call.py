"""Tools in a turn: their failures are results for the model."""

from __future__ import annotations

import pytest

from perdure.models.scenario import CallTools, ScriptedCall
from perdure.session.codec import body_of
from perdure.session.ledger import ToolFinished
from perdure.session.media.inline import media
from perdure.session.messages import ToolResultPart
from perdure.tools.decorator import tool
from perdure.tools.spec import ToolCall, ToolOutput, ToolSpec
from tests.fakes.chats import Stage, says


@tool(effect="read")
async def halve(number: int, *, call: ToolCall) -> str:
    """Halve a number."""
    if number % 2:
        raise ValueError("it is odd")
    return f"{number // 2} in {call.working_dir.name} for {call.session_id}"


def call(json: str) -> CallTools:
    return CallTools((ScriptedCall("halve", json, id="c1"),))


@pytest.mark.parametrize(
    ("json", "outcome", "told"),
    [
        ('{"number": 4}', "ok", "2 in"),
        ('{"number": 3}', "error", "it is odd"),
        ('{"number": "many"}', "error", "number"),
        ('{"number": 4', "error", "not a JSON object"),
    ],
)
async def test_result_of_a_tool_call_is_sent_to_the_model(
    json: str, outcome: str, told: str
) -> None:
    chat = await Stage(says(call(json)), says("I see.")).chat([halve])
    assert (await chat.send("go")).text == "I see."
    finished = [
        body
        async for entry in chat.session.entries()
        if isinstance(body := body_of(entry), ToolFinished)
    ]
    assert [done.outcome for done in finished] == [outcome]
    result = next(m for m in await chat.session.messages() if m.role == "tool")
    assert told in result.text


@tool(effect="write", needs_approval=True)
async def book(number: int) -> str:
    """Book after an approval."""
    raise AssertionError(number)


@pytest.mark.parametrize("gated", ["write_file", book])
async def test_call_with_invalid_json_is_refused_without_a_question(gated: str | ToolSpec) -> None:
    name = gated if isinstance(gated, str) else gated.name
    wrong = CallTools((ScriptedCall(name, '{"path": "new.txt"', id="c1"),))
    chat = await Stage(says(wrong), says("I see.")).chat([gated])
    assert (await chat.send("go")).text == "I see."
    result = next(m for m in await chat.session.messages() if m.role == "tool")
    assert 'the arguments are not a JSON object: {"path": "new.txt"' in result.text
    assert "__invalid_json__" not in result.text


async def test_invalid_call_can_be_corrected_a_limited_number_of_times() -> None:
    replies = [says(call("{}")) for _ in range(6)]
    chat = await Stage(*replies).chat([halve])
    with pytest.raises(Exception, match="tool_failed"):
        await chat.send("go")


async def test_tool_raising_base_exception_does_not_block_session() -> None:
    class Odd(BaseException):
        pass

    async def odd() -> str:
        """Be odd."""
        raise Odd("very")

    chat = await Stage(says(CallTools((ScriptedCall("odd", id="c1"),))), says("I see.")).chat([odd])
    assert (await chat.send("go")).text == "I see."
    result = next(m for m in await chat.session.messages() if m.role == "tool")
    assert "very" in result.text


@tool(effect="read")
async def draw() -> ToolOutput:
    """Return the same picture twice."""
    picture = media(b"\x89PNG\r\n\x1a\n" + b"p" * 20)
    return ToolOutput("two pictures", media=(picture, picture))


async def test_equal_pictures_returned_by_a_tool_are_stored_once() -> None:
    stage = Stage(says(CallTools((ScriptedCall("draw", "{}", id="c1"),))), says("ok"))
    chat = await stage.chat([draw])
    await chat.send("go")
    result = next(m for m in await chat.session.messages() if m.role == "tool")
    (part,) = [p for p in result.parts if isinstance(p, ToolResultPart)]
    first, second = part.media
    assert first == second
    content = await stage.memory.blob(first.handle.removeprefix("media://"))
    assert content.startswith(b"\x89PNG")
