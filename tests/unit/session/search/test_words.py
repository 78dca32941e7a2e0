"""Words: where they begin and end, and what they are compared as."""

from __future__ import annotations

import pytest

from perdure.session.search.words import LONGEST, Word, terms, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n-_*\"'", []),
        ("The tide_table, v2.0", ["the", "tide", "table", "v2", "0"]),
        ("src/perdure/app.py", ["src", "perdure", "app", "py"]),
        ("Crème BRÛLÉE", ["creme", "brulee"]),
        ("cre\u0300me", ["creme"]),
        ("Straße", ["strasse"]),
        ("İstanbul", ["istanbul"]),
        ("ΣΊΣΥΦΟΣ", ["σισυφοσ"]),
        ("酒店a1酒", ["酒", "店", "a1", "酒"]),
        ("がぎ", ["が", "ぎ"]),
        ("か\u3099", ["が"]),
        ("ﾊﾞｽ", ["バ", "ス"]),
        ("한국어", ["한", "국", "어"]),
        ("اَلْكِتَـابُ", ["الكتاب"]),
        ("שָׁלוֹם", ["שלום"]),
        ("👩🏽\u200d💻 ok✅", ["👩", "💻", "ok", "✅"]),
        ("co\u00adop ½ ﬁn \uff21\uff11", ["coop", "1", "2", "fin", "a1"]),
        ("a\ud800b", ["a", "b"]),
        ("\U0001f3fd \ufe0f \u200d", []),
        ("x" * 130, ["x" * LONGEST, "x" * LONGEST, "xx"]),
        ("é" * 65, ["e" * LONGEST, "e"]),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def test_an_emoji_of_a_later_unicode_version_is_a_word() -> None:
    assert terms("\U0001faff\U0001f9ff") == ["\U0001faff", "\U0001f9ff"]


def test_words_know_where_they_stand() -> None:
    assert list(words("Ab, é店 ½")) == [
        Word("ab", 0, 2),
        Word("e", 4, 5),
        Word("店", 5, 6),
        Word("1", 7, 8),
        Word("2", 7, 8),
    ]
