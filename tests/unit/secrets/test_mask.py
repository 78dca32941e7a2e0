"""Masking of secrets in displayed values."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.secrets.mask import MASK, log_failure, mask_secrets, masked_value

KEY = "sk-ant-" + "a1b2c3d4" * 5


def test_text_without_secrets_is_returned_unchanged() -> None:
    text = "def token(): return 1"
    assert mask_secrets(text) is text


def test_every_secret_of_a_text_is_masked() -> None:
    shown = mask_secrets(f"first {KEY}, then Authorization: Bearer {KEY}z and again {KEY}")
    assert KEY not in shown
    assert shown.startswith(f"first {MASK}, then")


def test_value_of_a_secret_field_is_always_masked() -> None:
    value = {"password": "plain", "n": 1, "list": [{"api_key": "abcdefgh"}], "note": "fine"}
    assert masked_value(value) == {
        "password": MASK,
        "n": 1,
        "list": [{"api_key": MASK}],
        "note": "fine",
    }


def test_secret_in_the_name_of_a_field_is_masked() -> None:
    assert KEY not in str(masked_value({KEY: 1}))


def test_reference_to_a_secret_is_not_masked() -> None:
    assert masked_value({"password": "{{secrets.DB}}"}) == {"password": "{{secrets.DB}}"}


@settings(max_examples=50)
@given(st.text(max_size=40), st.text(max_size=40))
def test_api_key_in_text_is_always_masked(before: str, after: str) -> None:
    text = f"{before} {KEY} {after}"
    assert KEY not in mask_secrets(text)


def test_logged_failure_masks_keys_in_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise RuntimeError(f"refused {KEY}")
    except RuntimeError as error:
        log_failure(logging.getLogger("perdure.test"), error, "the client of %s failed", "p:m")
    assert "the client of p:m failed\nTraceback" in caplog.text
    assert f"RuntimeError: refused {MASK}" in caplog.text
    assert KEY not in caplog.text
