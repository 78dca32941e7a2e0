"""The contract of every `ModelClient`, independent of its service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import pytest

from perdure.errors import (
    ContextOverflow,
    MalformedResponse,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from perdure.models.protocol import (
    Delta,
    ModelClient,
    ModelRequest,
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolDeclaration,
    UsageUpdate,
)
from perdure.models.scenario import ErrorCode
from perdure.models.stream import AnswerBuilder
from perdure.session.messages import Message, StopReason, assistant, tool_call, tool_result, user
from tests.fakes.model_backends import BACKENDS, SECRET, Backend
from tests.fakes.plans import Plan
from tests.fakes.samples import ALL_ONLY, case

READ = ToolDeclaration(
    "read_file", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}}
)
ERRORS: dict[ErrorCode, type[ModelError]] = {
    "rate_limited": RateLimited,
    "model_unavailable": ModelUnavailable,
    "context_overflow": ContextOverflow,
    "model_refused": ModelRefused,
    "malformed_response": MalformedResponse,
}


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    async with BACKENDS[request.param]() as made:
        yield made


def request_of(backend: Backend, *messages: Message) -> ModelRequest:
    return ModelRequest(
        backend.model, messages or (user("Hello"),), system="Be brief.", tools=(READ,)
    )


async def deltas(backend: Backend, plan: Plan, *messages: Message) -> list[Delta]:
    stream = backend.client(plan).stream(request_of(backend, *messages))
    return [delta async for delta in stream if not isinstance(delta, UsageUpdate)]


async def answer(backend: Backend, plan: Plan, *messages: Message) -> Message:
    stream = backend.client(plan).stream(request_of(backend, *messages))
    return await fill(AnswerBuilder(backend.model), stream)


async def fill(builder: AnswerBuilder, stream: AsyncIterator[Delta]) -> Message:
    async for delta in stream:
        builder.add(delta)
    return builder.build()


def closing(client: ModelClient, request: ModelRequest) -> aclosing[Any]:
    """Close the stream at the end of the block."""
    return aclosing(cast("Any", client.stream(request)))


async def test_text_deltas_concatenate_to_full_text(backend: Backend) -> None:
    text = "The quick brown fox.\n\n  Jumps — over 12 lazy dogs.\n"
    got = await deltas(backend, Plan(text=text))
    texts = [delta.text for delta in got if isinstance(delta, TextDelta)]
    assert len(texts) > 3
    assert "".join(texts) == text


async def test_answer_ends_with_exactly_one_stream_end(backend: Backend) -> None:
    got = await deltas(backend, Plan(text="yes"))
    assert [isinstance(delta, StreamEnd) for delta in got] == [False] * (len(got) - 1) + [True]


async def test_request_is_not_sent_before_first_delta_is_read(backend: Backend) -> None:
    stream = backend.client(Plan(text="yes")).stream(request_of(backend))
    await asyncio.sleep(0)
    assert backend.calls == 0
    await anext(stream)
    assert backend.calls == 1
    await cast("Any", stream).aclose()


async def test_reasoning_deltas_arrive_before_text_deltas(backend: Backend) -> None:
    got = await deltas(backend, Plan(text="42", thinking="Six times seven is what?"))
    thoughts = [delta.text for delta in got if isinstance(delta, ThinkingDelta)]
    assert "".join(thoughts) == "Six times seven is what?"
    assert [type(delta) for delta in got[: len(thoughts)]] == [ThinkingDelta] * len(thoughts)


async def test_parallel_calls_arrive_whole_and_in_order(backend: Backend) -> None:
    calls = (
        ("call_a", "read_file", {"path": "some/rather/long/path.txt"}),
        ("call_b", "read_file", {"path": "Ünïcode \u2028 “quoted”", "lines": [1, 2, 3]}),
        ("call_c", "read_file", dict[str, object]()),
    )
    message = await answer(backend, Plan(text="Looking.", calls=calls))
    assert [(c.id, c.name, c.args) for c in message.tool_calls] == [*calls]
    assert message.text == "Looking."
    assert message.stop_reason == "tool_calls"


async def test_first_tool_call_delta_contains_id_and_name(backend: Backend) -> None:
    calls = (("call_a", "read_file", {"path": "x" * 40}), ("call_b", "read_file", {"path": "y"}))
    got = await deltas(backend, Plan(calls=calls))
    by_index: dict[int, list[ToolCallDelta]] = {}
    for delta in got:
        if isinstance(delta, ToolCallDelta):
            by_index.setdefault(delta.index, []).append(delta)
    for pieces, (call_id, name, args) in zip(by_index.values(), calls, strict=True):
        assert (pieces[0].id, pieces[0].name) == (call_id, name)
        assert not any(piece.id or piece.name for piece in pieces[1:])
        assert json.loads("".join(piece.json for piece in pieces)) == args


async def test_answer_with_any_text_arrives_unchanged(backend: Backend) -> None:
    for text in (
        "🦊 → 狐 שועל",
        "line\u2028separator\u0085and\x00zero",
        "e\u0301 is é",
        "'\"\\{}\t",
    ):
        with case(text):
            assert (await answer(backend, Plan(text=text, chunk_chars=1))).text == text


async def test_usage_counts_each_token_once(backend: Backend) -> None:
    message = await answer(backend, Plan(text="yes"))
    assert message.usage is not None
    assert (message.usage.input_tokens, message.usage.cache_read_tokens) == (100, 30)
    assert (message.usage.output_tokens, message.usage.total_tokens) == (20, 150)


async def test_finish_reason_is_reported(backend: Backend) -> None:
    reasons: tuple[StopReason, ...] = ("stop", "length", "content_filter")
    for reason in reasons:
        with case(reason):
            message = await answer(backend, Plan(text="as far as I", stop_reason=reason))
            assert message.stop_reason == reason


async def test_empty_answer_is_valid(backend: Backend) -> None:
    message = await answer(backend, Plan())
    assert (message.parts, message.stop_reason) == ((), "stop")


async def test_failure_before_the_answer_raises_the_expected_error(
    backend: Backend,
) -> None:
    for code, error in ERRORS.items():
        with case(code):
            with pytest.raises(ModelError) as raised:
                await deltas(backend, Plan(text="never", error=code))
            assert isinstance(raised.value, error)
            assert raised.value.model == backend.model


async def test_text_received_before_an_error_is_kept(backend: Backend) -> None:
    for code, error in ERRORS.items():
        with case(code):
            builder = AnswerBuilder(backend.model)
            client = backend.client(Plan(text="the beginning of", error=code, after_words=True))
            with pytest.raises(error):
                await fill(builder, client.stream(request_of(backend)))
            assert builder.partial().text == "the beginning of"


async def test_rate_limit_reports_retry_delay(backend: Backend) -> None:
    with pytest.raises(RateLimited) as raised:
        await deltas(backend, Plan(error="rate_limited", retry_after_s=7))
    assert raised.value.retry_after_s == 7


async def test_error_is_one_line_and_contains_no_api_key(backend: Backend) -> None:
    for code in ERRORS:
        with case(code):
            with pytest.raises(ModelError) as raised:
                await deltas(backend, Plan(error=code))
            assert "\n" not in str(raised.value)
            assert SECRET not in str(raised.value)


async def test_client_does_not_retry_a_failed_call(backend: Backend) -> None:
    before = backend.calls
    with pytest.raises(ModelUnavailable):
        await deltas(backend, Plan(error="model_unavailable"))
    assert backend.calls <= before + 1


async def test_truncated_stream_raises_unavailable(backend: Backend) -> None:
    builder = AnswerBuilder(backend.model)
    client = backend.client(Plan(text="half an ans", ends="cut"))
    with pytest.raises(ModelUnavailable):
        await fill(builder, client.stream(request_of(backend)))
    assert builder.partial().text == "half an ans"


async def test_model_call_ends_immediately_if_its_task_is_cancelled(backend: Backend) -> None:
    started = asyncio.Event()
    client = backend.client(Plan(text="and then", ends="hang"))

    async def listen() -> None:
        async with closing(client, request_of(backend)) as stream:
            async for _ in stream:
                started.set()

    task = asyncio.create_task(listen())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await backend.all_ended()


async def test_model_call_ends_immediately_if_its_stream_is_closed(backend: Backend) -> None:
    client = backend.client(Plan(text="and then", ends="hang"))
    async with closing(client, request_of(backend)) as stream:
        await anext(stream)
    await backend.all_ended()


async def test_client_works_after_failures_and_cancelled_calls(backend: Backend) -> None:
    with pytest.raises(ModelError):
        await deltas(backend, Plan(error="model_unavailable"))
    async with closing(backend.client(Plan(text="a", ends="hang")), request_of(backend)) as stream:
        await anext(stream)
    assert (await answer(backend, Plan(text="still here"))).text == "still here"


@pytest.mark.all_only
async def test_one_client_serves_concurrent_calls(backend: Backend) -> None:
    plan = Plan(text="the same answer for everybody " * 5)
    answers = await asyncio.gather(*(answer(backend, plan) for _ in range(10)))
    assert {message.text for message in answers} == {plan.text}


@pytest.mark.full_only
@pytest.mark.parametrize("size", [1_000_000, pytest.param(5_000_000, marks=ALL_ONLY)])
@pytest.mark.all_only
async def test_answer_of_several_megabytes_arrives_whole(backend: Backend, size: int) -> None:
    text = "0123456789abcde\n" * (size // 16)
    message = await answer(backend, Plan(text=text, chunk_chars=20_000))
    assert message.text == text


async def test_conversation_with_tools_is_accepted(backend: Backend) -> None:
    message = await answer(
        backend,
        Plan(text="It says 1 and 2."),
        user("Read both."),
        assistant(
            "Reading.",
            tool_call("c1", "read_file", {"path": "1"}),
            tool_call("c2", "read_file", {"path": "2"}),
        ),
        tool_result("c1", "one"),
        tool_result("c2", "no such file", is_error=True),
    )
    assert message.text == "It says 1 and 2."


async def test_model_info_is_returned_for_any_name_without_a_request(backend: Backend) -> None:
    for model in ["", ":", "x", "nobody:nothing", "openai:é\x00" * 20]:
        with case(model):
            info = backend.client(Plan()).info(model)
            assert info.model == model
            assert backend.calls == 0
