"""The displayed form of a call, and its hash."""

from __future__ import annotations

from typing import cast

from perdure.tools.approval import HEAD, content_fact, digest_of, shown_arguments

KEY = "ghp_" + "a1B2c3D4" * 5


def test_hash_equals_output_of_b2sum() -> None:
    expected = "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"
    assert content_fact(b"abc") == f"3 bytes, blake2b-256 {expected}"


def test_approval_digest_differs_for_different_arguments_or_facts() -> None:
    digests = {digest_of("h", {"a": "b"}), digest_of("i", {"a": "b"}), digest_of("h", {"a": "c"})}
    assert len(digests | {digest_of("h", None), digest_of(None, {})}) == 5
    assert digest_of("h", {"a": "1", "b": "2"}) == digest_of("h", {"b": "2", "a": "1"})


def test_displayed_arguments_mask_secrets_and_truncate_long_values() -> None:
    shown = shown_arguments({"path": "a", "token": KEY, "content": "y" * 5000, "n": [1, 2]})
    assert shown["path"] == "a"
    assert KEY not in str(shown)
    assert shown["n"] == [1, 2]
    content = cast("dict[str, object]", shown["content"])
    assert (content["bytes"], len(str(content["head"]))) == (5000, 1000)


def test_head_of_a_long_argument_shows_no_part_of_a_secret_at_its_end() -> None:
    for start in range(HEAD - len(KEY), HEAD):
        text = "y" * (start - 1) + " " + KEY + " y" * HEAD
        shown = cast("dict[str, object]", shown_arguments({"content": text})["content"])
        assert "ghp_" not in str(shown["head"])


def test_head_of_a_long_argument_with_the_name_of_a_secret_is_masked() -> None:
    for value in ("tulip77 " * 400, ["tulip77"] * 400):
        shown = cast("dict[str, object]", shown_arguments({"password": value})["password"])
        assert (shown["head"], isinstance(shown["bytes"], int)) == ("[redacted]", True)
