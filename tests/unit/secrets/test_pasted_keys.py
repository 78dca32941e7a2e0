"""Policies for credentials that a user pastes."""

from __future__ import annotations

import pytest

from perdure.errors import SecretPasted
from perdure.secrets.pasted_keys import apply_paste_policy

TOKEN = "ghp_" + "a1B2c3D4" * 5


def test_text_is_unchanged_under_paste_policy_warn() -> None:
    found = apply_paste_policy(f"use {TOKEN}", "warn", "the message")
    assert found.text == f"use {TOKEN}"
    assert found.kinds == ("github-token",)


def test_redaction_removes_credential() -> None:
    assert TOKEN not in apply_paste_policy(f"use {TOKEN}", "redact", "the message").text


def test_rejection_of_a_pasted_key_does_not_show_the_key() -> None:
    with pytest.raises(SecretPasted, match="the variable 'x'") as refused:
        apply_paste_policy(f"use {TOKEN}", "refuse", "the variable 'x'")
    assert TOKEN not in str(refused.value)
    assert TOKEN not in repr(refused.value.facts())


def test_secret_reference_in_pasted_text_is_accepted() -> None:
    assert apply_paste_policy("password: {{secrets.DB}}", "refuse", "here").kinds == ()
