from __future__ import annotations

import pytest

from perdure.session.search.parts.codes import codes_of, counter, ranges_of
from perdure.session.search.query import Phrase

MANY = 3_000


def test_frequent_words_have_shorter_sorted_codes() -> None:
    codes = codes_of({f"w{number:05}": MANY - number for number in range(MANY)})

    sizes = [len(codes[f"w{number:05}"].encode()) for number in range(MANY)]
    assert (sizes[126], sizes[127], sizes[2046], sizes[2047]) == (1, 2, 2, 3)
    assert len(set(codes.values())) == MANY
    assert "\0" not in codes.values()
    for size in (1, 2, 3):
        same = [word for word in codes if len(codes[word].encode()) == size]
        assert sorted(same) == sorted(same, key=codes.__getitem__)


@pytest.mark.full_only
def test_words_beyond_the_surrogates_have_codes_too() -> None:
    codes = codes_of(dict.fromkeys(map(str, range(60_000)), 1))

    assert "".join(codes.values()).encode().decode() == "".join(codes.values())
    assert len(set(codes.values())) == len(codes)


def test_words_with_common_prefix_form_few_ranges() -> None:
    codes = codes_of({"ant": 9, "bee": 9, "bear": 9, "cat": 9})

    (found,) = ranges_of([codes["bee"], codes["bear"]])
    assert (found.first, found.last) == (codes["bear"], codes["bee"])


def said(codes: dict[str, str], text: str) -> bytes:
    return "".join(codes[word] for word in text.split()).encode()


def test_overlapping_phrases_are_counted() -> None:
    codes = codes_of({f"f{number}": 1000 for number in range(126)} | {"a": 9, "b": 9, "by": 3})
    text = said(codes, "a a a b by f7 a by")
    ranges = {"b": ranges_of([codes["b"], codes["by"]])}

    def count(*terms: str, is_prefix: bool = False) -> int:
        return counter(Phrase(terms, is_prefix), codes, ranges).count_in(text)

    assert count("a") == 4
    assert count("a", "a") == 2
    assert count("a", "b") == 1
    assert count("b", is_prefix=True) == 3
    assert count("a", "b", is_prefix=True) == 2
    assert count("nothing") == count("nothing", "b", is_prefix=True) == 0
    assert count("a", "c", is_prefix=True) == 0
