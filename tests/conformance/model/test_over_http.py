"""How every HTTP client handles servers that are busy, broken, slow or verbose."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator
from typing import get_args

import pytest

from perdure.bounds.limits import InputLimits
from perdure.errors import (
    ContextOverflow,
    CredentialsRefused,
    MalformedResponse,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from perdure.models.protocol import ModelRequest, TextDelta, ThinkingLevel, ToolDeclaration
from perdure.models.stream import AnswerBuilder
from perdure.session.messages import (
    MediaPart,
    Message,
    ToolResultPart,
    assistant,
    tool_call,
    tool_result,
    user,
)
from tests.fakes.model_backends import HTTP_BACKENDS, PATIENT_S, SECRET, HttpBackend, Waits
from tests.fakes.model_server import (
    Chunk,
    Handler,
    breaking_off,
    failing,
    hanging,
    mute,
    paced,
    plain,
    sending,
)
from tests.fakes.plans import Plan
from tests.fakes.samples import ALL_ONLY

HELLO = (user("Hello"),)
READ = ToolDeclaration(
    "read_file", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}}
)
PNG = MediaPart("image/png", "media://sha256-" + "a" * 64, 4, "x.png")
PDF = MediaPart("application/pdf", "media://sha256-" + "b" * 64, 5, "x.pdf")
VIDEO = MediaPart("video/x-unheard-of", "media://sha256-" + "c" * 64, 5, "x.xyz")
MEDIA = {PNG.handle: b"\x89PNG", PDF.handle: b"%PDF-", VIDEO.handle: b"video"}


@pytest.fixture(params=HTTP_BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[HttpBackend]:
    async with HTTP_BACKENDS[request.param]() as made:
        yield made


async def answer(backend: HttpBackend, plan: Plan, request: ModelRequest | None = None) -> Message:
    return await fill(AnswerBuilder(backend.model), backend, plan, request)


async def fill(
    builder: AnswerBuilder, backend: HttpBackend, plan: Plan, request: ModelRequest | None = None
) -> Message:
    async for delta in backend.client(plan).stream(request or ModelRequest(backend.model, HELLO)):
        builder.add(delta)
    return builder.build()


async def failure(backend: HttpBackend, handler: Handler) -> ModelError:
    client = backend.client(Plan())
    backend.server.will(handler)
    with pytest.raises(ModelError) as raised:
        async for _ in client.stream(ModelRequest(backend.model, HELLO)):
            pass
    return raised.value


# Errors ------------------------------------------------------------------------------------------


STATUSES: dict[int, type[ModelError]] = {
    400: ModelRefused,
    401: CredentialsRefused,
    402: CredentialsRefused,
    403: CredentialsRefused,
    404: ModelRefused,
    408: ModelUnavailable,
    413: ContextOverflow,
    422: ModelRefused,
    429: RateLimited,
    500: ModelUnavailable,
    502: ModelUnavailable,
    503: ModelUnavailable,
    504: ModelUnavailable,
    529: ModelUnavailable,
}


async def test_http_status_determines_the_error_class(
    backend: HttpBackend,
) -> None:
    for count, (status, expected) in enumerate(STATUSES.items(), start=1):
        error = await failure(backend, failing(status, "so it is", retry_after="0"))
        assert (status, type(error)) == (status, expected)
        assert error.reason.startswith(f"HTTP {status}: so it is")
        assert len(backend.server.requests) == count


async def test_html_error_page_becomes_one_line(backend: HttpBackend) -> None:
    page = b"<html>\n<h1>502 Bad Gateway</h1>\n" + b"<p>nginx</p>\n" * 5_000
    error = await failure(backend, failing(502, body=page))
    assert isinstance(error, ModelUnavailable)
    assert "\n" not in str(error)
    assert len(str(error)) < 600


async def test_api_key_is_never_in_errors_or_logs(
    backend: HttpBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        error = await failure(backend, failing(401, f"the key {SECRET} is not valid"))
        await answer(backend, Plan(text="yes"))
    assert SECRET not in f"{error!r} {error.facts()} {error.__cause__!r}"
    assert SECRET not in caplog.text


async def test_invalid_http_response_raises_malformed_response(backend: HttpBackend) -> None:
    for kind, body in (
        ("text/html", b"{}"),
        ("application/json", b"{}"),
        ("text/event-stream", b""),
    ):
        error = await failure(backend, plain(kind, body))
        assert (kind, type(error)) == (kind, MalformedResponse)


async def test_disconnect_before_answer_raises_unavailable(
    backend: HttpBackend,
) -> None:
    assert isinstance(await failure(backend, breaking_off([])), ModelUnavailable)


async def test_text_received_before_a_disconnect_is_kept(backend: HttpBackend) -> None:
    builder = AnswerBuilder(backend.model)
    with pytest.raises(ModelUnavailable):
        await fill(builder, backend, Plan(text="half an ans", thinking="hm", ends="cut"))
    assert builder.partial().text == "half an ans"


# Time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HTTP_BACKENDS)
async def test_silent_server_times_out(name: str) -> None:
    async with HTTP_BACKENDS[name](stream_idle_timeout_s=0.2) as backend:
        error = await failure(backend, hanging())
        assert isinstance(error, ModelUnavailable)
        assert "sent no further byte for 0.2 s (stream_idle_timeout_s)" in str(error)
        await backend.all_ended()


@pytest.mark.parametrize("name", HTTP_BACKENDS)
async def test_expired_first_byte_timeout_raises_unavailable(
    name: str,
) -> None:
    async with HTTP_BACKENDS[name]() as backend:
        client = backend.client(Plan())
        backend.server.will(mute())
        request = ModelRequest(backend.model, HELLO, first_byte_timeout_s=0.2)
        with pytest.raises(
            ModelUnavailable, match=r"sent no byte for 0\.2 s \(first_byte_timeout_s"
        ):
            await anext(client.stream(request))
        await backend.all_ended()


@pytest.mark.parametrize("name", HTTP_BACKENDS)
async def test_first_byte_timeout_is_not_applied_after_the_first_byte(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch, PATIENT_S)
    async with HTTP_BACKENDS[name]() as backend:
        client = backend.client(Plan())
        # The headers come at once, the words much later.
        late = paced(backend.events(Plan(text="late")), lambda: waits.last(PATIENT_S / 2))
        backend.server.will(late)
        request = ModelRequest(backend.model, HELLO, first_byte_timeout_s=PATIENT_S / 4)
        words = [d.text async for d in client.stream(request) if isinstance(d, TextDelta)]
        assert "".join(words) == "late"
        backend.server.will(hanging())
        request = ModelRequest(backend.model, HELLO, stream_idle_timeout_s=0.2)
        with pytest.raises(ModelUnavailable, match=r"no further byte for 0\.2 s"):
            await anext(client.stream(request))


@pytest.mark.parametrize("name", HTTP_BACKENDS)
async def test_slow_answer_of_a_server_does_not_time_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, plan = Waits(monkeypatch, PATIENT_S), Plan(text="drop by drop " * 4, chunk_chars=5)
    async with HTTP_BACKENDS[name]() as backend:
        client = backend.client(plan)
        # Together the pauses exceed the allowed silence.
        backend.server.will(paced(backend.events(plan), lambda: waits.last(PATIENT_S / 2)))
        request = ModelRequest(backend.model, HELLO)
        words = [d.text async for d in client.stream(request) if isinstance(d, TextDelta)]
        assert "".join(words) == plan.text


async def test_call_cancelled_before_answer_ends_immediately(backend: HttpBackend) -> None:
    client = backend.client(Plan())
    backend.server.will(hanging())
    stream = client.stream(ModelRequest(backend.model, HELLO))

    async def first() -> None:
        await anext(stream)

    task = asyncio.create_task(first())
    async with asyncio.timeout(60):
        while not backend.calls:  # noqa: ASYNC110 - the server sets no event for it
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await backend.all_ended()


# Size --------------------------------------------------------------------------------------------


@pytest.mark.all_only
async def test_huge_thought_and_huge_arguments_arrive(backend: HttpBackend) -> None:
    args = {"text": "0123456789abcdef" * 60_000}
    plan = Plan(
        thinking="step by step " * 40_000,
        calls=(("call_a", "read_file", args),),
        chunk_chars=20_000,
    )
    message = await answer(backend, plan)
    assert [call.args for call in message.tool_calls] == [args]
    assert message.stop_reason == "tool_calls"


@pytest.mark.parametrize("pieces", [500, pytest.param(2_000, marks=ALL_ONLY)])
@pytest.mark.all_only
async def test_answer_in_thousands_of_pieces_arrives(backend: HttpBackend, pieces: int) -> None:
    text = "0123456789" * (pieces // 10)
    assert (await answer(backend, Plan(text=text, chunk_chars=1))).text == text


async def test_answer_over_the_size_limit_raises_malformed_response(
    backend: HttpBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [InputLimits(model_answer_bytes=3_000)]
    monkeypatch.setattr("perdure.bounds.limits._in_force", few)
    long_answer = backend.handler(Plan(text="word " * 2_000))
    for handler in (long_answer, failing(500, body=b"x" * 9_000)):
        error = await failure(backend, handler)
        assert isinstance(error, MalformedResponse)
        assert error.reason.startswith("the answer exceeds limits.model_answer_bytes = 3,000;")


async def test_compressed_answer_raises_malformed_response(backend: HttpBackend) -> None:
    error = await failure(backend, failing(200, body=b"x", content_encoding="gzip"))
    assert isinstance(error, MalformedResponse)
    assert error.reason == "the answer is compressed ('gzip'), which was not asked for"


# Requests ----------------------------------------------------------------------------------------


async def test_every_level_of_thinking_is_accepted(backend: HttpBackend) -> None:
    for level in get_args(ThinkingLevel):
        request = ModelRequest(
            backend.model, HELLO, thinking_level=level, tools=(READ,), max_output_tokens=3_000
        )
        assert (await answer(backend, Plan(text="yes"), request)).text == "yes"
    assert backend.server.refused == []


async def test_pictures_documents_and_other_media_are_accepted(
    backend: HttpBackend,
) -> None:
    shown = Message("tool", (ToolResultPart("c1", "a picture", media=(PNG,)),))
    request = ModelRequest(
        backend.model,
        (user("What are these?", PNG, PDF, VIDEO), assistant(tool_call("c1", "read_file")), shown),
        tools=(READ,),
        media=MEDIA,
    )
    assert (await answer(backend, Plan(text="A fox."), request)).text == "A fox."
    assert backend.server.refused == []


async def test_request_with_reasoning_of_the_same_model_is_accepted(
    backend: HttpBackend,
) -> None:
    plan = Plan(thinking="I must read.", calls=(("call_a", "read_file", {"path": "x"}),))
    first = ModelRequest(backend.model, HELLO, tools=(READ,), thinking_level="high")
    message = await answer(backend, plan, first)
    steered = (*HELLO, message, tool_result("call_a", "content"), user("Be quick."))
    for messages in (steered[:-1], steered):
        request = ModelRequest(backend.model, messages, tools=(READ,), thinking_level="high")
        assert (await answer(backend, Plan(text="Done."), request)).text == "Done."
    assert backend.server.refused == []


@pytest.mark.parametrize("level", ["off", "high"])
async def test_request_with_tool_calls_of_another_process_is_accepted(
    backend: HttpBackend, level: ThinkingLevel
) -> None:
    calls = (tool_call("call_a", "read_file"), tool_call("call_b", "read_file"))
    request = ModelRequest(
        backend.model,
        (
            *HELLO,
            assistant("Reading.", *calls, model=backend.model),
            tool_result("call_a", "content"),
            tool_result("call_b", "gone", is_error=True),
        ),
        tools=(READ,),
        thinking_level=level,
    )
    assert (await answer(backend, Plan(text="Done."), request)).text == "Done."
    assert backend.server.refused == []


async def test_request_with_tool_calls_of_another_model_is_accepted(
    backend: HttpBackend,
) -> None:
    plan = Plan(thinking="I must read.", calls=(("call_a", "read_file", {"path": "x"}),))
    theirs = await answer(backend, plan)
    other = assistant(*theirs.tool_calls, model="another:model")
    request = ModelRequest(
        backend.model,
        (*HELLO, other, tool_result("call_a", "content")),
        tools=(READ,),
        thinking_level="high",
    )
    assert (await answer(backend, Plan(text="Done."), request)).text == "Done."
    assert backend.server.refused == []


async def test_fake_servers_reject_the_same_requests_as_the_services(
    backend: HttpBackend,
) -> None:
    unanswered = (user("x"), assistant(tool_call("c1", "read_file")), user("y"))
    with pytest.raises(ModelRefused, match="HTTP 400"):
        await answer(backend, Plan(text="yes"), ModelRequest(backend.model, unanswered))
    assert len(backend.server.refused) == 1


@pytest.mark.parametrize("count", [12, pytest.param(60, marks=ALL_ONLY)])
async def test_garbled_stream_gives_answer_or_model_error(backend: HttpBackend, count: int) -> None:
    chance = random.Random(20_261_121)
    plan = Plan(
        text="Reading both.", thinking="I must.", calls=(("c1", "read_file", {"path": "x"}),)
    )
    outcomes: set[str] = set()
    for _ in range(count):
        whole = [garbled(chance, event) for event in backend.events(plan)]
        if chance.random() < 0.2:
            chance.shuffle(whole)
        backend.server.will(sending(*whole, is_ended=chance.random() < 0.7))
        outcomes.add(await outcome(backend))
    assert {"answered", "MalformedResponse"} <= outcomes


def garbled(chance: random.Random, event: Chunk | str) -> str:
    """Return `event` unchanged, or sometimes with a part removed, duplicated or changed."""
    text = event if isinstance(event, str) else json.dumps(event)
    kind: object = None if isinstance(event, str) else event.get("type")
    if chance.random() < 0.15:
        place = chance.randrange(len(text))
        put = chance.choice(["", "null", "{", '"', "9", "\\ud83e", text[:place]])
        text = text[:place] + put + text[place + chance.randrange(12) :]
    return f"event: {kind}\ndata: {text}" if isinstance(kind, str) else text


async def outcome(backend: HttpBackend) -> str:
    """Return ``answered``, or the name of the error."""
    builder = AnswerBuilder(backend.model)
    try:
        async for delta in backend.asking.stream(ModelRequest(backend.model, HELLO)):
            builder.add(delta)
        builder.build()
    except ModelError as error:
        builder.partial()
        return type(error).__name__
    return "answered"
