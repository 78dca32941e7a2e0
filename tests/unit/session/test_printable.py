"""Text without control characters for terminals."""

from __future__ import annotations

import json

import pytest

from perdure.session.printable import json_escaped, safe


@pytest.mark.parametrize(
    "control",
    ["\x1b", "\x00", "\r", "\x7f", "\x9b", "\u061c", "\u200f", "\u202e", "\u2069", "\u2028"],
)
def test_safe_text_shows_each_control_as_a_replacement_character(control: str) -> None:
    assert safe(f"a{control}b") == "a\ufffdb"


def test_safe_text_keeps_letters_joiners_tabs_and_lines() -> None:
    text = "æ 漢字 עברית 👩\u200d💻 é\n\tindented"
    assert safe(text) == text


def test_escaped_json_has_same_values_and_no_control_characters() -> None:
    value = {"a\x9b": "\x1b\x7f\u202e\u061c\u2028 é"}
    document = json_escaped(json.dumps(value, ensure_ascii=False))
    assert json.loads(document) == value
    assert document.replace("é", "e").isascii()
    assert document.isprintable()
