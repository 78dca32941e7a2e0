"""Every failure of a model call is converted to an error class, which decides the next step."""

from __future__ import annotations

import json

import httpx2
import pytest
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelTimeoutError,
    UnexpectedModelBehavior,
    UserError,
)

from perdure.errors import (
    ContextOverflow,
    CredentialsRefused,
    MalformedResponse,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from perdure.models.providers.classify import is_overflow, model_error, used_and_limit
from tests.fakes.samples import case

MODEL = "openai:x"


def of_status(status: int, body: object = None, **headers: str) -> ModelError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return model_error(ModelHTTPError(status, "x", body, headers=named), MODEL)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, CredentialsRefused),
        (402, CredentialsRefused),
        (403, CredentialsRefused),
        (404, ModelRefused),
        (400, ModelRefused),
        (409, ModelRefused),
        (422, ModelRefused),
        (408, ModelUnavailable),
        (429, RateLimited),
        (500, ModelUnavailable),
        (502, ModelUnavailable),
        (503, ModelUnavailable),
        (504, ModelUnavailable),
        (529, ModelUnavailable),
        (413, ContextOverflow),
    ],
)
def test_error_class_is_determined_by_the_http_status(
    status: int, expected: type[ModelError]
) -> None:
    error = of_status(status, {"message": "so it is"})
    assert type(error) is expected
    assert error.reason == f"HTTP {status}: so it is"
    if isinstance(error, ModelRefused):
        assert error.status == status


OVERFLOWS = [
    "This model's maximum context length is 8192 tokens; your messages resulted in 9001 tokens.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
    "Please reduce the length of the messages or completion.",
    "Input is too long for requested model.",
    "prompt token count of 130000 exceeds the limit of 128000",
    "the request exceeds the available context size. try increasing the context size",
    "tokens to keep from the initial prompt is greater than the context length",
    "invalid params, context window exceeds limit (2013)",
    "Your request exceeded model token limit: 131072",
    "Prompt contains 9000 tokens, too large for model with 8000 maximum context length",
    "prompt too long; exceeded max context length by 5 tokens",
    "too many tokens: size limit exceeded by 3 tokens",
    "Range of input length should be [1, 98304]",
    "model_context_window_exceeded",
    "context_length_exceeded",
    "request_too_large",
]


def test_overflow_messages_are_recognized() -> None:
    for said in OVERFLOWS:
        for status in [400, 413, 500]:
            with case((said, status)):
                assert isinstance(of_status(status, {"message": said}), ContextOverflow)
                assert isinstance(of_status(status, {"error": {"message": said}}), ContextOverflow)
                assert isinstance(of_status(status, said), ContextOverflow)


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens: 50000 exceeds the limit of 8192",
        "Invalid value for 'temperature'",
        "Unknown tool name",
        "messages: text content blocks must be non-empty",
        "The image is too large",
    ],
)
def test_refusal_for_another_reason_is_not_an_overflow(said: str) -> None:
    assert not is_overflow(said)
    assert isinstance(of_status(400, {"message": said}), ModelRefused)


def test_error_for_too_many_tokens_a_minute_counts_as_a_rate_limit() -> None:
    error = of_status(429, {"message": "Too many tokens, please wait before trying again."})
    assert isinstance(error, RateLimited)


@pytest.mark.parametrize("status", [400, 413])
def test_refusal_without_message_counts_as_overflow(status: int) -> None:
    assert isinstance(of_status(status), ContextOverflow)
    assert isinstance(of_status(status, ""), ContextOverflow)


@pytest.mark.parametrize(
    ("said", "numbers"),
    [
        (OVERFLOWS[0], (9001, 8192)),
        (OVERFLOWS[2], (210_000, 200_000)),
        (OVERFLOWS[3], (1_200_000, 1_048_576)),
        (OVERFLOWS[7], (130_000, 128_000)),
        ("maximum context length is 8,192 tokens, requested 9,001 tokens", (9001, 8192)),
        ("too long", (None, None)),
    ],
)
def test_token_numbers_are_read_from_message(
    said: str, numbers: tuple[int | None, int | None]
) -> None:
    assert used_and_limit(said) == numbers
    error = of_status(413, {"message": said})
    assert isinstance(error, ContextOverflow)
    assert (error.used_tokens, error.limit_tokens) == numbers


@pytest.mark.parametrize(
    ("headers", "said", "seconds"),
    [
        ({"retry_after": "7"}, "slow", 7.0),
        ({"retry_after_ms": "1500"}, "slow", 1.5),
        ({}, "Please try again in 7.66s.", 7.66),
        ({}, "Please try again in 250ms.", 0.25),
        ({}, "Please try again in 2m.", 120.0),
        ({"retry_after": "3"}, "try again in 9s", 3.0),
        ({}, "slow", None),
        ({"retry_after": "soon"}, "slow", None),
    ],
)
def test_retry_delay_is_read_from_headers_or_message(
    headers: dict[str, str], said: str, seconds: float | None
) -> None:
    error = of_status(429, {"message": said}, **headers)
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == seconds


def test_exhausted_account_with_status_429_raises_model_refused() -> None:
    error = model_error(
        ModelHTTPError.for_category(
            ModelQuotaExceededError,
            status_code=429,
            model_name="x",
            body={"code": "insufficient_quota"},
        ),
        MODEL,
    )
    assert isinstance(error, ModelRefused)
    assert error.status == 429


def test_failed_connection_gives_unavailable_with_the_address() -> None:
    cause = httpx2.ConnectError("connection refused")
    wrapped = ModelConnectionError("x", "Connection error.")
    wrapped.__cause__ = cause
    for error in (wrapped, cause, httpx2.ReadError("")):
        made = model_error(error, MODEL, address="http://localhost:1/v1")
        assert isinstance(made, ModelUnavailable)
        assert "no connection to http://localhost:1/v1" in made.reason
    assert "connection refused" in model_error(wrapped, MODEL).reason


def test_request_timeout_becomes_model_unavailable() -> None:
    made = model_error(ModelTimeoutError("x", "Request timed out."), MODEL, address="http://h")
    assert isinstance(made, ModelUnavailable)
    assert made.reason == "http://h did not answer in time"


def test_undecodable_answer_counts_as_malformed() -> None:
    error = ModelAPIError("x", "Failed to decode")
    error.__cause__ = json.JSONDecodeError("bad", "{", 1)
    assert isinstance(model_error(error, MODEL), MalformedResponse)
    for odd in (TypeError("int"), AttributeError("x"), UnexpectedModelBehavior("odd")):
        assert isinstance(model_error(odd, MODEL), MalformedResponse)


def test_stream_without_content_counts_as_malformed() -> None:
    error = ModelAPIError("x", "Streamed response ended without a `finish_reason`")
    assert isinstance(model_error(error, MODEL), ModelUnavailable)
    for empty in (error, UnexpectedModelBehavior("ended without content")):
        made = model_error(empty, MODEL, has_begun=False)
        assert isinstance(made, MalformedResponse)
        assert "is the URL right?" in made.reason


def in_stream(message: str, type_: str | None = None) -> ModelError:
    body = {"message": message, "type": type_}
    error = ModelAPIError("x", message, body=body, provider_error_type=type_, in_stream=True)
    return model_error(error, MODEL)


def test_stream_errors_are_classified_by_message() -> None:
    assert isinstance(in_stream("something broke"), ModelUnavailable)
    assert isinstance(in_stream("no such tool", "invalid_request_error"), ModelRefused)
    assert isinstance(in_stream(OVERFLOWS[0], "invalid_request_error"), ContextOverflow)


def test_request_that_cannot_be_sent_counts_as_a_refusal() -> None:
    assert isinstance(model_error(UserError("video?"), MODEL), ModelRefused)


def test_model_error_of_perdure_is_passed_on_unchanged() -> None:
    error = ModelUnavailable(MODEL, "gone")
    assert model_error(error, MODEL) is error


def test_model_error_contains_no_given_secret() -> None:
    error = ModelHTTPError(401, "x", {"message": "wrong key: hunter2hunter2"})
    assert "hunter2" not in str(model_error(error, MODEL, ["hunter2hunter2"]))


def test_html_page_as_error_message_is_shortened() -> None:
    error = of_status(502, "<html>" + "x" * 1_000_000)
    assert len(error.reason) < 500
