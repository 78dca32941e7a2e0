"""The HTTP traffic of the Google client: its requests, and how it reads answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from perdure.errors import ContextOverflow, ModelUnavailable, RateLimited
from perdure.events.plain_json import plain
from perdure.models.protocol import ModelRequest, ThinkingLevel
from perdure.models.providers.google_generative import GoogleGenerative
from perdure.session.messages import Usage, assistant, tool_call, tool_result, user
from tests.fakes.google_rules import STAND_IN
from tests.fakes.google_server import MODEL, events, google_server
from tests.fakes.model_server import failing
from tests.fakes.plans import Plan
from tests.fakes.signatures import signature_of
from tests.fakes.wires import BASE64, HELLO, KEY, PARAMETERS, PDF, PNG, READ, Wire

CALLS = Plan(
    thinking="I must read.",
    calls=(("c1", "read_file", {"path": "x"}), ("c2", "read_file", {"path": "y"})),
)
YES = events(Plan(text="yes"))


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with google_server() as server:
        client = GoogleGenerative(base_url=server.url, api_key=KEY, stream_idle_timeout_s=600)
        yield Wire(client, server, MODEL)
        await client.aclose()


def calls_of(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [part for part in content["parts"] if "functionCall" in part]


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
        temperature=0.5,
    )
    await wire.answer(request)
    (sent,) = wire.server.requests
    assert sent.path == "/v1beta/models/gemini-3-pro-preview:streamGenerateContent?alt=sse"
    assert sent.headers["x-goog-api-key"] == KEY
    assert wire.server.refused == []
    body = sent.body
    config = body["generationConfig"]
    assert (config["maxOutputTokens"], config["temperature"]) == (99, 0.5)
    assert [part["text"] for part in body["systemInstruction"]["parts"]] == ["Be brief."]
    (declared,) = body["tools"][0]["functionDeclarations"]
    assert (declared["name"], declared["parameters_json_schema"]) == ("read_file", PARAMETERS)
    question, answer, results = body["contents"]
    assert question == {"role": "user", "parts": [{"text": "Read both."}]}
    assert [call["functionCall"]["args"] for call in calls_of(answer)] == [
        {"path": "ä"},
        {"path": "b"},
    ]
    assert [part["functionResponse"]["id"] for part in results["parts"]] == ["c1", "c2"]


async def test_pictures_and_documents_are_sent_inline(wire: Wire) -> None:
    await wire.answer(wire.request(user("What is it?", PNG, PDF)))
    _, picture_name, picture, document_name, document = wire.body["contents"][0]["parts"]
    assert picture_name == {"text": "(x.png, image/png)"}
    assert document_name == {"text": "(x.pdf, application/pdf)"}
    assert picture["inlineData"] == {"data": BASE64[PNG.handle], "mime_type": "image/png"}
    assert document["inlineData"]["data"] == BASE64[PDF.handle]


@pytest.mark.parametrize(
    ("model", "level", "expected"),
    [
        ("gemini-3-pro-preview", "high", {"include_thoughts": True, "thinking_level": "HIGH"}),
        ("gemini-3-pro-preview", "off", {"thinking_level": "LOW"}),
        ("gemini-2.5-flash", "off", {"thinking_budget": 0}),
        ("gemini-2.5-flash", "medium", {"include_thoughts": True, "thinking_budget": 8_192}),
    ],
)
async def test_thinking_level_is_sent_as_the_model_expects(
    wire: Wire, model: str, level: ThinkingLevel, expected: dict[str, object]
) -> None:
    await wire.says(YES, ModelRequest(f"google:{model}", HELLO, thinking_level=level))
    assert wire.body["generationConfig"]["thinkingConfig"] == expected
    assert wire.server.refused == []


async def test_request_during_a_tool_round_contains_the_call_signature(wire: Wire) -> None:
    message = await wire.says(events(CALLS))
    assert signature_of("read_file") not in str(plain(message))
    rounds = (*HELLO, message, tool_result("c1", "1"), tool_result("c2", "2"))
    await wire.says(YES, wire.request(*rounds))
    first, second = calls_of(wire.body["contents"][1])
    assert first["thoughtSignature"].replace("_", "/").replace("-", "+") == signature_of(
        "read_file"
    )
    assert "thoughtSignature" not in second
    assert wire.server.refused == []


async def test_resumed_tool_round_is_sent_with_a_placeholder_signature(
    wire: Wire,
) -> None:
    message = assistant(tool_call("c9", "read_file"), model=MODEL)
    await wire.says(YES, wire.request(*HELLO, message, tool_result("c9", "1")))
    (call,) = calls_of(wire.body["contents"][1])
    assert call["thoughtSignature"] == STAND_IN
    assert wire.server.refused == []


async def test_thoughts_count_as_output_tokens(
    wire: Wire,
) -> None:
    usage = Usage(10, 40, cache_read_tokens=3_000)
    assert (await wire.says(events(Plan(text="x", usage=usage)))).usage == usage


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
    ],
)
async def test_provider_finish_reasons_are_mapped_to_stop_reasons(
    wire: Wire, reason: str, expected: str
) -> None:
    *chunks, end = events(Plan(text="x"))
    ended = {**end, "candidates": [{**end["candidates"][0], "finishReason": reason}]}
    assert (await wire.says([*chunks, ended])).stop_reason == expected


async def test_blocked_prompt_gives_stop_reason_content_filter(wire: Wire) -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m", "responseId": "r"}
    assert (await wire.says([blocked])).stop_reason == "content_filter"


async def test_malformed_tool_call_by_the_model_is_retryable(wire: Wire) -> None:
    *chunks, end = events(Plan(text="x"))
    ended = {
        **end,
        "candidates": [{**end["candidates"][0], "finishReason": "MALFORMED_FUNCTION_CALL"}],
    }
    with pytest.raises(ModelUnavailable):
        await wire.says([*chunks, ended])


async def test_context_overflow_error_contains_the_token_counts(wire: Wire) -> None:
    said = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    error = await wire.failure(failing(400, said))
    assert isinstance(error, ContextOverflow)
    assert (error.used_tokens, error.limit_tokens) == (1_200_000, 1_048_576)


async def test_error_contains_the_retry_delay_from_the_error_details(wire: Wire) -> None:
    body = (
        b'{"error": {"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED",'
        b' "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo",'
        b' "retryDelay": "21s"}]}}'
    )
    error = await wire.failure(failing(429, body=body))
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == 21
