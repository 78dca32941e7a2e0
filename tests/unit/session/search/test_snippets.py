"""The snippet of a text and its marks."""

from __future__ import annotations

import pytest

from perdure.session.search.query import sought_in
from perdure.session.search.snippets import LENGTH, Snippet, snippet_of


def snippet(text: str, query: str) -> Snippet:
    return snippet_of(text, sought_in(query).phrases)


def marked(found: Snippet) -> list[str]:
    return [found.text[first:last] for first, last in found.marks]


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("The tide table", "tide", ["tide"]),
        ("Tide, TIDE, tides", "tide", ["Tide", "TIDE"]),
        ("tide tides", "tid*", ["tide", "tides"]),
        ("foo_bar(x) foobar", "foo_bar", ["foo_bar"]),
        ("foo bar baz", '"foo bar" "bar baz"', ["foo bar baz"]),
        ("Crème brûlée", "creme brulee", ["Crème", "brûlée"]),
        ("cre\u0300me", "crème", ["cre\u0300me"]),
        ("我们选择了酒店", "选择", ["选择"]),
        ("b only", "a OR b", ["b"]),
        ("x" * 200, "x" * 200, ["x" * LENGTH]),
        ("nothing here", "a", []),
    ],
)
def test_search_snippet_marks_its_matches(text: str, query: str, expected: list[str]) -> None:
    assert marked(snippet(text, query)) == expected


def test_snippet_contains_the_text_around_the_match() -> None:
    found = snippet("filler words " * 50 + "needle " + "more words " * 50, "needle")

    assert found.text.startswith("…") and found.text.endswith("…")  # noqa: PT018 - one thing: it is cut on both sides
    assert found.text[1:].startswith(("filler", "words"))
    assert len(found.text) <= LENGTH + 2
    assert marked(found) == ["needle"]


def test_snippet_shows_the_place_with_most_different_phrases() -> None:
    text = "tide " * 30 + "filler " * 60 + "tide and moon " + "filler " * 60

    assert "moon" in marked(snippet(text, "tide moon"))


def test_snippet_marks_match_after_white_space_is_collapsed() -> None:
    found = snippet("a \n\n tide\t\ttable\n b", '"tide table"')

    assert found == Snippet("a tide table b", ((2, 12),))


def test_end_of_a_text_is_not_cut_off() -> None:
    found = snippet("word " * 100 + "end\n\n", "end")

    assert found.text.endswith("end ") or found.text.endswith("end")


def test_snippet_without_match_is_start_of_text() -> None:
    assert snippet("beginning " * 50, "a").text.startswith("beginning")
    assert snippet("", "a") == Snippet("", ())


@pytest.mark.parametrize("word", ["needle", "n\u00e9\u00e9dle"])
def test_snippet_marks_a_phrase_that_spans_two_slices(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.session.search.snippets._SLICE", 8)
    for before in range(20):
        found = snippet(f"{'x ' * before}{word} in {word} hay", f'"{word} in {word}"')
        assert marked(found) == [f"{word} in {word}"]
