"""The HTTP traffic of the Anthropic client: its requests, and how it reads answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.errors import ContextOverflow, ModelRefused, ModelUnavailable, RateLimited
from perdure.events.plain_json import plain
from perdure.models.protocol import ModelRequest, ThinkingLevel
from perdure.models.providers.anthropic_messages import AnthropicMessages
from perdure.session.messages import Usage, assistant, tool_call, tool_result, user
from tests.fakes.anthropic_server import MODEL, anthropic_server, events
from tests.fakes.model_server import Chunk, failing
from tests.fakes.plans import Plan
from tests.fakes.signatures import signature_of
from tests.fakes.wires import BASE64, HELLO, KEY, PARAMETERS, PDF, PNG, READ, Wire

ADAPTIVE = "anthropic:claude-opus-4-6"
"""A model that chooses its own amount of thinking."""

CALL = Plan(thinking="I must read.", calls=(("toolu_1", "read_file", {"path": "x"}),))
YES = events(Plan(text="yes"))


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with anthropic_server() as server:
        client = AnthropicMessages(base_url=server.url, api_key=KEY, stream_idle_timeout_s=600)
        yield Wire(client, server, MODEL)
        await client.aclose()


def blocks(message: Any) -> list[str]:
    return [block["type"] for block in message["content"]]


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
    assert KEY in (sent.headers.get("x-api-key"), sent.headers["authorization"].split()[-1])
    assert wire.server.refused == []
    body = dict(sent.body)
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("claude-haiku-4-5", 99, 0.5)
    assert "thinking" not in body
    assert [block["text"] for block in body["system"]] == ["Be brief."]
    (tool,) = body["tools"]
    assert (tool["name"], tool["description"]) == ("read_file", "Reads a file.")
    assert tool["input_schema"] == PARAMETERS
    question, calls, results = body["messages"]
    assert blocks(question) == ["text"]
    assert [block.get("input") for block in calls["content"]] == [
        None,
        {"path": "ä"},
        {"path": "b"},
    ]
    assert [(b["tool_use_id"], b["is_error"]) for b in results["content"]] == [
        ("c1", False),
        ("c2", True),
    ]


async def test_conversation_prefix_is_cached(wire: Wire) -> None:
    await wire.answer()
    assert wire.body["cache_control"]["type"] == "ephemeral"


async def test_pictures_and_documents_are_sent_as_blocks(wire: Wire) -> None:
    await wire.answer(wire.request(user("What is it?", PNG, PDF)))
    _, picture_name, picture, document_name, document = wire.body["messages"][0]["content"]
    assert picture_name["text"] == "(x.png, image/png)"
    assert document_name["text"] == "(x.pdf, application/pdf)"
    assert picture["source"] == {
        "type": "base64",
        "media_type": "image/png",
        "data": BASE64[PNG.handle],
    }
    assert document["type"] == "document"
    assert document["source"]["data"] == BASE64[PDF.handle]


# Thinking ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "limit", "budget"),
    [
        ("minimal", None, 1_024),
        ("low", None, 2_048),
        ("medium", None, 8_192),
        ("high", None, 16_384),
        ("xhigh", None, 32_768),
        ("max", None, 32_768),
        ("high", 5_000, 3_976),
        ("high", 2_000, None),
        ("off", None, None),
    ],
)
async def test_thinking_budget_leaves_room_for_answer(
    wire: Wire, level: ThinkingLevel, limit: int | None, budget: int | None
) -> None:
    await wire.says(YES, wire.request(level=level, limit=limit))
    expected = None if budget is None else {"type": "enabled", "budget_tokens": budget}
    assert wire.body.get("thinking") == expected
    assert wire.server.refused == []


@pytest.mark.parametrize(("level", "effort"), [("low", "low"), ("high", "high"), ("max", "max")])
async def test_thinking_level_is_sent_as_effort_with_adaptive_thinking(
    wire: Wire, level: ThinkingLevel, effort: str
) -> None:
    request = ModelRequest(ADAPTIVE, HELLO, thinking_level=level, temperature=0.2)
    await wire.says(YES, request)
    assert wire.body["thinking"]["type"] == "adaptive"
    assert wire.body["output_config"]["effort"] == effort
    assert "temperature" not in wire.body


async def test_request_during_a_tool_round_contains_signed_thinking(wire: Wire) -> None:
    message = await wire.says(events(CALL), wire.request(level="high"))
    await wire.says(
        YES, wire.request(*HELLO, message, tool_result("toolu_1", "content"), level="high")
    )
    thought, call = wire.body["messages"][1]["content"]
    assert thought == {
        "type": "thinking",
        "thinking": "I must read.",
        "signature": signature_of("I must read."),
    }
    assert call["id"] == "toolu_1"
    assert wire.body["thinking"]["type"] == "enabled"
    assert wire.server.refused == []


async def test_stored_message_contains_no_signature(wire: Wire) -> None:
    message = await wire.says(events(CALL), wire.request(level="high"))
    assert signature_of("I must read.") not in str(plain(message))


async def test_resumed_tool_round_is_sent_without_thinking(wire: Wire) -> None:
    message = assistant("Reading.", tool_call("toolu_9", "read_file"), model=MODEL)
    request = wire.request(*HELLO, message, tool_result("toolu_9", "content"), level="high")
    await wire.says(YES, request)
    assert "thinking" not in wire.body
    assert blocks(wire.body["messages"][1]) == ["text", "tool_use"]
    next_turn = (*request.messages, assistant("Done.", model=MODEL), user("And now?"))
    await wire.says(YES, wire.request(*next_turn, level="high"))
    assert wire.body["thinking"]["type"] == "enabled"
    assert wire.server.refused == []


async def test_redacted_thinking_is_sent_back_unchanged(wire: Wire) -> None:
    start, ping, *rest = events(Plan(calls=CALL.calls))
    shifted = [{**e, "index": e["index"] + 1} if "index" in e else e for e in rest]
    hidden: list[Chunk] = [
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "redacted_thinking", "data": "ZGF0YQ=="},
        },
        {"type": "content_block_stop", "index": 0},
    ]
    message = await wire.says([start, ping, *hidden, *shifted], wire.request(level="high"))
    assert [call.id for call in message.tool_calls] == ["toolu_1"]
    await wire.says(
        YES, wire.request(*HELLO, message, tool_result("toolu_1", "content"), level="high")
    )
    assert wire.body["messages"][1]["content"][0] == {
        "type": "redacted_thinking",
        "data": "ZGF0YQ==",
    }


# Answers -----------------------------------------------------------------------------------------


async def test_cache_reads_and_writes_are_counted_separately(wire: Wire) -> None:
    usage = Usage(10, 7, cache_read_tokens=3_000, cache_write_tokens=500)
    assert (await wire.says(events(Plan(text="x", usage=usage)))).usage == usage


async def test_calls_to_the_official_address_have_a_price() -> None:
    async with anthropic_server() as server:
        client = AnthropicMessages(base_url=server.url, api_key=KEY)
        # Only the address says whose prices apply; the price list is asked with Anthropic's.
        client._address = "https://api.anthropic.com"  # pyright: ignore[reportPrivateUsage] - no call may leave this machine
        wire = Wire(client, server, MODEL)
        usage = Usage(1_000_000, 1_000_000)
        message = await wire.says(events(Plan(text="x", usage=usage)))
        await client.aclose()
    assert message.usage is not None
    # 1 and 5 dollars per million tokens.
    assert message.usage.cost_microcents == 600_000_000


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("a_reason_of_the_future", "stop"),
    ],
)
async def test_provider_finish_reasons_are_mapped_to_stop_reasons(
    wire: Wire, reason: str, expected: str
) -> None:
    ended = [
        {**event, "delta": {"stop_reason": reason, "stop_sequence": None}}
        if event["type"] == "message_delta"
        else event
        for event in events(Plan(text="x"))
    ]
    assert (await wire.says(ended)).stop_reason == expected


# Errors ------------------------------------------------------------------------------------------


async def test_context_overflow_error_contains_the_token_counts(wire: Wire) -> None:
    said = "prompt is too long: 210000 tokens > 200000 maximum"
    error = await wire.failure(failing(400, said))
    assert isinstance(error, ContextOverflow)
    assert (error.used_tokens, error.limit_tokens) == (210_000, 200_000)


async def test_error_contains_the_retry_delay_given_by_the_server(wire: Wire) -> None:
    error = await wire.failure(failing(429, "slow down", retry_after="12"))
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == 12


async def test_exhausted_credit_at_the_provider_raises_model_refused(wire: Wire) -> None:
    error = await wire.failure(failing(400, "Your credit balance is too low to use the API."))
    assert isinstance(error, ModelRefused)


async def test_overload_is_reported_as_unavailable(wire: Wire) -> None:
    assert isinstance(await wire.failure(failing(529, "Overloaded")), ModelUnavailable)
