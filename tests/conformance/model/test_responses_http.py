"""The HTTP traffic of OpenAI's Responses client: its requests, and how it reads answers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure.errors import ContextOverflow, ModelUnavailable
from perdure.events.plain_json import plain
from perdure.models.protocol import ModelRequest, ThinkingLevel
from perdure.models.providers.openai_responses import OpenAIResponses
from perdure.session.messages import Usage, assistant, tool_call, tool_result, user
from tests.fakes.model_server import failing
from tests.fakes.plans import Plan
from tests.fakes.responses_server import MODEL, events, responses_server
from tests.fakes.signatures import signature_of
from tests.fakes.wires import BASE64, HELLO, KEY, PARAMETERS, PDF, PNG, READ, Wire

CALL = Plan(thinking="I must read.", calls=(("call_1", "read_file", {"path": "x"}),))
YES = events(Plan(text="yes"))


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with responses_server() as server:
        client = OpenAIResponses(base_url=server.url, api_key=KEY, stream_idle_timeout_s=600)
        yield Wire(client, server, MODEL)
        await client.aclose()


async def test_request_has_the_expected_headers_and_body(wire: Wire) -> None:
    request = ModelRequest(
        MODEL,
        (
            user("Read both."),
            assistant(
                "Reading.",
                tool_call("c1", "read_file", {"path": "ä"}),
                tool_call("c2", "read_file", {"path": "b"}),
            ),
            tool_result("c1", "one"),
            tool_result("c2", "no such file", is_error=True),
        ),
        system="Be brief.",
        tools=(READ,),
        max_output_tokens=99,
    )
    await wire.answer(request)
    (sent,) = wire.server.requests
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert wire.server.refused == []
    body = sent.body
    assert (body["model"], body["store"], body["max_output_tokens"]) == ("gpt-5", False, 99)
    assert "previous_response_id" not in body
    assert body["instructions"] == "Be brief."
    (tool,) = body["tools"]
    assert (tool["type"], tool["name"], tool["parameters"]) == ("function", "read_file", PARAMETERS)
    kinds = [item.get("type", item.get("role")) for item in body["input"]]
    assert kinds[2:] == ["function_call"] * 2 + ["function_call_output"] * 2
    assert [item["call_id"] for item in body["input"][2:]] == ["c1", "c2", "c1", "c2"]


async def test_pictures_and_documents_are_sent_as_data(wire: Wire) -> None:
    await wire.answer(wire.request(user("What is it?", PNG, PDF)))
    _, picture_name, picture, document_name, document = wire.body["input"][0]["content"]
    assert picture_name == {"type": "input_text", "text": "(x.png, image/png)"}
    assert document_name == {"type": "input_text", "text": "(x.pdf, application/pdf)"}
    assert picture["image_url"] == f"data:image/png;base64,{BASE64[PNG.handle]}"
    assert document["type"] == "input_file"
    assert document["file_data"].endswith(BASE64[PDF.handle])


@pytest.mark.parametrize(
    ("level", "effort", "summary"),
    [
        ("minimal", "minimal", "auto"),
        ("high", "high", "auto"),
        ("off", "minimal", None),
    ],
)
async def test_thinking_level_is_sent_as_reasoning_effort(
    wire: Wire, level: ThinkingLevel, effort: str, summary: str | None
) -> None:
    await wire.says(YES, wire.request(level=level))
    assert wire.body["reasoning"].get("effort") == effort
    assert wire.body["reasoning"].get("summary") == summary
    assert wire.body["include"] == ["reasoning.encrypted_content"]


async def test_non_reasoning_model_gets_no_effort(wire: Wire) -> None:
    await wire.says(YES, ModelRequest("openai-responses:gpt-4o", HELLO, thinking_level="high"))
    assert "reasoning" not in wire.body
    assert not wire.body.get("include")


async def test_request_to_reasoning_model_has_no_temperature(wire: Wire) -> None:
    await wire.says(YES, ModelRequest(MODEL, HELLO, thinking_level="low", temperature=0.5))
    assert "temperature" not in wire.body
    await wire.says(YES, ModelRequest("openai-responses:gpt-4o", HELLO, temperature=0.5))
    assert wire.body["temperature"] == 0.5


async def test_reasoning_of_an_unfinished_tool_round_is_sent_encrypted(wire: Wire) -> None:
    message = await wire.says(events(CALL), wire.request(level="high"))
    assert signature_of("rs_1") not in str(plain(message))
    rounds = (*HELLO, message, tool_result("call_1", "content"))
    await wire.says(YES, wire.request(*rounds, level="high"))
    reasoning, call = wire.body["input"][1:3]
    assert (reasoning["type"], reasoning["id"]) == ("reasoning", "rs_1")
    assert reasoning["encrypted_content"] == signature_of("rs_1")
    assert (call["type"], call["call_id"]) == ("function_call", "call_1")
    next_turn = (*rounds, assistant("Done.", model=MODEL), user("And now?"))
    await wire.says(YES, wire.request(*next_turn, level="high"))
    assert "reasoning" not in [item.get("type") for item in wire.body["input"]]
    assert wire.server.refused == []


async def test_cache_reads_are_counted_separately(wire: Wire) -> None:
    usage = Usage(10, 40, cache_read_tokens=3_000)
    assert (await wire.says(events(Plan(text="x", usage=usage)))).usage == usage


async def test_refusal_keeps_text_of_model(wire: Wire) -> None:
    *_, end = events(Plan())
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress"}
    part = {"type": "refusal", "refusal": ""}
    done = {**item, "status": "completed", "content": [{**part, "refusal": "I will not."}]}
    message = await wire.says(
        [
            *events(Plan())[:2],
            {
                "type": "response.output_item.added",
                "output_index": 0,
                "item": {**item, "content": []},
            },
            {"type": "response.content_part.added", **place, "part": part},
            {"type": "response.refusal.delta", **place, "delta": "I will "},
            {"type": "response.refusal.delta", **place, "delta": "not."},
            {"type": "response.refusal.done", **place, "refusal": "I will not."},
            {"type": "response.output_item.done", "output_index": 0, "item": done},
            end,
        ]
    )
    assert (message.text, message.stop_reason) == ("I will not.", "content_filter")


async def test_answer_that_failed_on_the_server_raises_unavailable(wire: Wire) -> None:
    *chunks, end = events(Plan(text="x"))
    failed = {
        "type": "response.failed",
        "response": {
            **end["response"],
            "status": "failed",
            "error": {"code": "server_error", "message": "The model broke."},
        },
    }
    with pytest.raises(ModelUnavailable, match="The model broke"):
        await wire.says([*chunks, failed])


async def test_context_overflow_is_recognized_by_its_error_code(wire: Wire) -> None:
    error = await wire.failure(failing(400, "Too long.", code="context_length_exceeded"))
    assert isinstance(error, ContextOverflow)
