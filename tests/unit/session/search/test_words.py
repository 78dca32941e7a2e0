"""Words: their boundaries and their folded form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.session.search.words import LONGEST, Word, folded_runs, stands_for_ascii, terms, words
from tests.fakes.samples import case


def test_text_is_split_into_the_expected_terms() -> None:
    for text, expected in [
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
    ]:
        with case((text, expected)):
            assert terms(text) == expected


def test_emoji_of_a_later_unicode_version_is_a_word() -> None:
    assert terms("\U0001faff\U0001f9ff") == ["\U0001faff", "\U0001f9ff"]


def test_search_words_have_their_positions_in_the_text() -> None:
    assert list(words("Ab, é店 ½")) == [
        Word("ab", 0, 2),
        Word("e", 4, 5),
        Word("店", 5, 6),
        Word("1", 7, 8),
        Word("2", 7, 8),
    ]


def test_non_ascii_characters_that_fold_to_ascii_are_recognized() -> None:
    assert all(map(stands_for_ascii, "éßﬁ½①\uff21\u00ad\u200d\u0301\u212a\u017f"))
    assert not any(map(stands_for_ascii, "—“”…™✓а店가あ\xa0\u2028"))


@given(st.text())
def test_every_search_word_occurs_in_the_normalized_text(text: str) -> None:
    folded = folded_runs(text)
    written = text.encode().lower().decode()  # which leaves all but ASCII as it is
    assert all(term in folded or (term.isascii() and term in written) for term in terms(text))


@given(st.text(alphabet=st.characters(min_codepoint=128)))
def test_text_without_ascii_look_alikes_gives_no_ascii_words(
    text: str,
) -> None:
    if any(term.isascii() for term in terms(text)):
        assert any(map(stands_for_ascii, text))


@given(
    st.text(
        "ab1 _-.\u00e9\u0301\u4e16\u754c\u304b\u3099\uac00\u11a8\ufb01\u00bd\u3002", max_size=80
    )
)
def test_sliced_text_and_whole_text_have_the_same_words(text: str) -> None:
    whole = terms(text), list(words(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perdure.session.search.words._SLICE", 3)
        assert (terms(text), list(words(text))) == whole
    assert [word.term for word in whole[1]] == whole[0]


LATIN = st.characters(max_codepoint=0x17F) | st.sampled_from("“”—ß\u2019\u0301\u0327\u2028")


@given(st.lists(LATIN, max_size=20).map("".join), st.sampled_from([1, 2, LONGEST, LONGEST + 1]))
def test_splitting_with_and_without_positions_gives_the_same_words(text: str, times: int) -> None:
    assert terms(text * times) == [word.term for word in words(text * times)]


def test_latin_character_folds_identically_next_to_another_script() -> None:
    for code in range(256):
        with case(code):
            assert terms(f"a{chr(code)}b 店") == [*terms(f"a{chr(code)}b"), "店"]
