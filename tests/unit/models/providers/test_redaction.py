"""No key appears in a text that is shown or stored."""

from __future__ import annotations

import pytest

from perdure.models.providers.classify import MAX_CHARS, redact_text


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-proj-abc123DEF456ghi789.",
        "Incorrect API key provided: sk-pro**********************i789.",
        "invalid x-api-key: abcdef0123456789",
        "Authorization: Bearer abc.def-ghi_jkl789",
        '{"authorization": "Bearer abcdef789"}',
        '{"api_key": "abcdef789"}',
        "GET https://host/v1?key=abcdef789&x=1",
        "https://user:abcdef789@host/v1 refused",
        "AIzaSyA-abcdef789 is not valid",
        "gsk_abcdef789abcdef789 expired",
    ],
)
def test_text_that_looks_like_a_key_is_removed(text: str) -> None:
    shown = redact_text(text)
    assert "789" not in shown
    assert "[redacted]" in shown


def test_known_secret_is_removed_in_any_form() -> None:
    assert (
        redact_text("hunter2 is wrong, hunter2!", ["hunter2"]) == "[redacted] is wrong, [redacted]!"
    )
    assert redact_text("all fine", ["", "x"]) == "all fine"


@pytest.mark.parametrize(
    "text",
    [
        "The model `gpt-5` does not exist.",
        "This model's maximum context length is 8192 tokens.",
        "key-value stores are fine, and so is a task-force",
        "no connection to http://127.0.0.1:9/v1/, or it broke",
    ],
)
def test_text_without_a_key_is_unchanged(text: str) -> None:
    assert redact_text(text) == text


def test_html_error_page_becomes_one_short_line() -> None:
    shown = redact_text("<html>\n  <body>\r\n" + "x" * 10_000)
    assert "\n" not in shown
    assert len(shown) == MAX_CHARS
    assert shown.startswith("<html> <body> xxx")
