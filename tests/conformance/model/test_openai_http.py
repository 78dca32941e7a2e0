"""The HTTP traffic of the OpenAI-compatible client: its requests, and how it reads odd answers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from perdure.errors import (
    ContextOverflow,
    MalformedResponse,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from perdure.models.protocol import ModelRequest, ToolDeclaration
from perdure.models.providers.openai_compatible import OpenAICompatible
from perdure.models.stream import AnswerBuilder, invalid_json
from perdure.session.messages import (
    MediaPart,
    Message,
    ThinkingPart,
    Usage,
    assistant,
    tool_call,
    tool_result,
    user,
)
from tests.fakes.model_server import (
    Chunk,
    Handler,
    ModelServer,
    breaking_off,
    failing,
    hanging,
    plain,
    sending,
)
from tests.fakes.openai_server import ServerAnswer, answering, openai_server
from tests.fakes.ports import reserved_port

MODEL = "openai:served-model"
KEY = "sk-test-0123456789abcdef"
HELLO = (user("Hello"),)
PARAMETERS: Mapping[str, object] = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
}
READ = ToolDeclaration("read_file", "Reads a file.", PARAMETERS)
ANSWER = ServerAnswer(text="a whole answer")
PNG = b"\x89PNG"


@dataclass
class Wire:
    """A client, and the server that it calls."""

    client: OpenAICompatible
    server: ModelServer

    async def answer(self, request: ModelRequest | None = None) -> Message:
        return await self.fill(AnswerBuilder(MODEL), request)

    async def fill(self, builder: AnswerBuilder, request: ModelRequest | None = None) -> Message:
        async for delta in self.client.stream(request or ModelRequest(MODEL, HELLO)):
            builder.add(delta)
        return builder.build()

    async def failure(self, handler: Handler) -> ModelError:
        self.server.will(handler)
        with pytest.raises(ModelError) as raised:
            await self.answer()
        return raised.value

    @property
    def body(self) -> Mapping[str, Any]:
        """Return the body of the newest request."""
        return self.server.requests[-1].body


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with openai_server() as server:
        client = OpenAICompatible(base_url=server.url, api_key=KEY, stream_idle_timeout_s=600)
        yield Wire(client, server)
        await client.aclose()


# What is sent ------------------------------------------------------------------------------------


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
            assistant("Only one is there."),
            user("Thanks."),
        ),
        system="Be brief.",
        tools=(READ,),
        max_output_tokens=99,
        temperature=0.5,
    )
    await wire.answer(request)
    (sent,) = wire.server.requests
    assert (sent.method, sent.path) == ("POST", "/v1/chat/completions")
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert wire.server.refused == []
    call = {"type": "function", "function": {"name": "read_file"}}
    assert sent.body == {
        "model": "served-model",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 99,
        "temperature": 0.5,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read_file",
                    "description": "Reads a file.",
                    "parameters": PARAMETERS,
                },
            }
        ],
        "tool_choice": "auto",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Read both."},
            {
                "role": "assistant",
                "content": "Reading.",
                "tool_calls": [
                    {"id": "c1", **_with_arguments(call, '{"path":"ä"}')},
                    {"id": "c2", **_with_arguments(call, '{"path":"b"}')},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "tool", "tool_call_id": "c2", "content": '{"error":"no such file"}'},
            {"role": "assistant", "content": "Only one is there."},
            {"role": "user", "content": "Thanks."},
        ],
    }


def _with_arguments(call: Mapping[str, Any], arguments: str) -> Mapping[str, Any]:
    return {**call, "function": {**call["function"], "arguments": arguments}}


async def test_images_are_sent_as_data_urls(wire: Wire) -> None:
    image = MediaPart("image/png", "media://sha256-" + "a" * 64, 4, "x.png")
    request = ModelRequest(MODEL, (user("What is it?", image),), media={image.handle: PNG})
    await wire.answer(request)
    assert wire.server.refused == []
    assert wire.body["messages"][0]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "text", "text": "(x.png, image/png)"},
        {
            "type": "image_url",
            "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"},
        },
    ]


async def test_fake_server_rejects_the_same_requests_as_openai(wire: Wire) -> None:
    request = ModelRequest(MODEL, (user("x"), assistant(tool_call("c1", "t")), user("y")))
    with pytest.raises(ModelRefused, match="tool call c1 is not answered"):
        await wire.answer(request)
    assert len(wire.server.refused) == 1


async def test_call_with_invalid_json_arguments_is_sent_as_valid_json(wire: Wire) -> None:
    wire.server.will(answering(ServerAnswer(calls=(("c1", "read_file", '{"path": '),))))
    message = await wire.answer()
    (call,) = message.tool_calls
    assert invalid_json(call) == '{"path": '
    wire.server.will(answering(ANSWER))
    await wire.answer(ModelRequest(MODEL, (*HELLO, message, tool_result("c1", "not JSON"))))
    assert wire.server.refused == []


async def test_reasoning_is_sent_back_until_the_turn_ends(
    wire: Wire,
) -> None:
    thought = ServerAnswer(
        thinking="I must read it.",
        calls=(("c1", "read_file", "{}"),),
        thinking_field="reasoning",
    )
    wire.server.will(answering(thought), answering(ANSWER))
    message = await wire.answer()
    rounds = (*HELLO, message, tool_result("c1", "content"))
    await wire.answer(ModelRequest(MODEL, rounds))
    assert wire.body["messages"][1]["reasoning"] == "I must read it."
    await wire.answer(ModelRequest(MODEL, (*rounds, assistant("Done."), user("And now?"))))
    assert "reasoning" not in wire.body["messages"][1]


async def test_resumed_tool_round_is_sent_without_reasoning(wire: Wire) -> None:
    rounds = (
        *HELLO,
        assistant(ThinkingPart("I must."), tool_call("c1", "read_file"), model=MODEL),
        tool_result("c1", "content"),
    )
    await wire.answer(ModelRequest(MODEL, rounds))
    assert set(wire.body["messages"][1]) == {"role", "content", "tool_calls"}
    assert wire.server.refused == []


# What is made of answers -------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 429, 500, 503, 529])
async def test_failed_call_is_not_retried_by_client_library(wire: Wire, status: int) -> None:
    await wire.failure(failing(status, "no", retry_after="0"))
    assert len(wire.server.requests) == 1


async def test_error_contains_the_retry_delay_given_by_the_server(wire: Wire) -> None:
    error = await wire.failure(failing(429, "slow down", retry_after="12"))
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == 12


async def test_fractional_retry_delay_is_accepted(wire: Wire) -> None:
    error = await wire.failure(failing(429, "slow down", retry_after="2.5"))
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == 2.5


async def test_context_overflow_error_contains_the_token_counts(wire: Wire) -> None:
    said = "This model's maximum context length is 8192 tokens; you sent 9001 tokens."
    error = await wire.failure(failing(400, said, code="context_length_exceeded"))
    assert isinstance(error, ContextOverflow)
    assert (error.used_tokens, error.limit_tokens) == (9001, 8192)


async def test_api_key_quoted_by_server_is_redacted(wire: Wire) -> None:
    error = await wire.failure(failing(401, f"Incorrect API key provided: {KEY}"))
    assert isinstance(error, ModelRefused)
    assert error.status == 401
    assert KEY not in f"{error} {error.facts()} {error.__cause__}"


@pytest.mark.parametrize(
    "handler",
    [
        plain("text/html", b"<html>not what you want</html>"),
        plain("application/json", b'{"choices": [{"message": {"content": "hi"}}]}'),
        plain("text/event-stream", b""),
        sending("{bad"),
        sending(*ANSWER.chunks()[:2], "{bad"),
        sending(*ANSWER.chunks()[:2], '{"choices": 5}'),
        sending({"choices": [{"delta": {"tool_calls": "x"}}]}),
    ],
)
async def test_invalid_http_response_raises_malformed_response(
    wire: Wire, handler: Handler
) -> None:
    assert isinstance(await wire.failure(handler), MalformedResponse)


@pytest.mark.parametrize("is_ended", [True, False])
async def test_truncated_answer_raises_unavailable(wire: Wire, is_ended: bool) -> None:
    handler = sending(*ANSWER.chunks()[:2], is_ended=is_ended)
    assert isinstance(await wire.failure(handler), ModelUnavailable)


async def test_disconnect_before_answer_raises_unavailable(wire: Wire) -> None:
    assert isinstance(await wire.failure(breaking_off([])), ModelUnavailable)


async def test_disconnect_after_complete_answer_is_no_error(wire: Wire) -> None:
    with_usage, without = ANSWER.chunks(), ANSWER.chunks()[:-1]
    wire.server.will(breaking_off(with_usage), breaking_off(without))
    assert (await wire.answer()).usage == Usage(12, 5)
    message = await wire.answer()
    assert (message.text, message.stop_reason, message.usage) == (ANSWER.text, "stop", None)


async def test_unreported_usage_is_unknown_not_zero(wire: Wire) -> None:
    wire.server.will(answering(ServerAnswer(text="x", usage=None)))
    assert (await wire.answer()).usage is None


async def test_price_of_custom_server_is_unknown(wire: Wire) -> None:
    usage = (await wire.answer()).usage
    assert usage is not None
    assert usage.cost_microcents is None


async def test_unknown_finish_reason_ends_answer(wire: Wire) -> None:
    wire.server.will(answering(ServerAnswer(text="x", finish_reason="eos")))
    assert (await wire.answer()).stop_reason == "stop"


async def test_text_between_reasoning_tags_is_read_as_reasoning(wire: Wire) -> None:
    text = "<think>six times seven</think>42"
    chunks = ServerAnswer(text="-", chunk_chars=1).chunks()
    tagged = [_content(piece) for piece in ("<think>", "six times seven", "</think>", "42")]
    wire.server.will(sending(*tagged, *chunks[2:], "[DONE]"))
    message = await wire.answer()
    assert [type(part).__name__ for part in message.parts] == ["ThinkingPart", "TextPart"]
    assert message.text in text


async def test_refusal_keeps_text_of_model(wire: Wire) -> None:
    refusal = {"choices": [{"index": 0, "delta": {"refusal": "I will not."}}]}
    wire.server.will(sending(refusal, *ServerAnswer().chunks()[1:], "[DONE]"))
    message = await wire.answer()
    assert (message.text, message.stop_reason) == ("I will not.", "content_filter")


async def test_emoji_in_two_chunks_is_one_emoji(wire: Wire) -> None:
    halves = [_content("a fox: \ud83e"), _content("\udd8a!")]
    wire.server.will(sending(*halves, *ANSWER.chunks()[-2:], "[DONE]"))
    assert (await wire.answer()).text == "a fox: 🦊!"


async def test_tool_call_without_id_or_arguments_is_accepted(wire: Wire) -> None:
    call = {"index": 0, "type": "function", "function": {"name": "list", "arguments": ""}}
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
    wire.server.will(sending(chunk, *ServerAnswer().chunks()[1:], "[DONE]"))
    (made,) = (await wire.answer()).tool_calls
    assert (made.name, made.args) == ("list", {})
    assert made.id


# Servers that speak it --------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["ollama", "vllm", "llamacpp", "lmstudio"])
async def test_local_server_gets_only_supported_fields(provider: str) -> None:
    async with openai_server() as server:
        client = OpenAICompatible(base_url=server.url, provider=provider)
        thought = ServerAnswer(thinking="I must.", calls=(("c1", "read_file", "{}"),))
        server.will(answering(thought), answering(ANSWER))
        model = f"{provider}:qwen3:8b"
        pdf = MediaPart("application/pdf", "media://sha256-" + "b" * 64, 5, "x.pdf")
        hello = (user("Hello", pdf),)
        builder = AnswerBuilder(model)
        media = {pdf.handle: b"%PDF-"}
        async for delta in client.stream(
            ModelRequest(model, hello, tools=(READ,), thinking_level="high", media=media)
        ):
            builder.add(delta)
        message = builder.build()
        assert [type(part).__name__ for part in message.parts] == ["ThinkingPart", "ToolCallPart"]
        rounds = (*hello, message, tool_result("c1", "content"))
        async for _ in client.stream(ModelRequest(model, rounds, tools=(READ,), media=media)):
            pass
        await client.aclose()
    first, second = server.requests
    assert first.body["model"] == "qwen3:8b"
    assert "cannot be shown to this model" in first.messages[0]["content"]
    assert "I must." in str(second.messages[1])
    assert server.refused == []


# Time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [0, 2])
async def test_silent_server_times_out(words: int) -> None:
    async with openai_server() as server:
        server.will(hanging(ANSWER.chunks()[:words]))
        builder = AnswerBuilder(MODEL)
        for idle_s in (0.1, 1, 10):
            client = OpenAICompatible(base_url=server.url, stream_idle_timeout_s=idle_s)
            with pytest.raises(ModelUnavailable, match="sent no further byte for"):
                await Wire(client, server).fill(builder)
            await client.aclose()
            if not words or builder.partial().text:
                break  # on a busy machine the first words may come too late, too
        assert builder.partial().text == ANSWER.text[: 7 if words else 0]


async def test_refused_connection_raises_unavailable_with_the_address() -> None:
    with reserved_port() as port:
        url = f"http://127.0.0.1:{port}/v1"
        client = OpenAICompatible(base_url=url)
        with pytest.raises(ModelUnavailable, match=f"no connection to {url}"):
            await anext(client.stream(ModelRequest(MODEL, HELLO)))
        await client.aclose()


async def test_cancelled_call_raises_cancelled_error(wire: Wire) -> None:
    wire.server.will(hanging())
    task = asyncio.create_task(wire.answer())
    async with asyncio.timeout(60):
        while not wire.server.requests:  # noqa: ASYNC110 - the server sets no event for it
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        await wire.server.is_idle.wait()


def _content(text: str) -> Chunk:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}
