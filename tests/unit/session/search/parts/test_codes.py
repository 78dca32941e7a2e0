from __future__ import annotations

import pytest

from perdure.session.search.parts.codes import (
    MOST_WORDS,
    code_of,
    codes_in,
    codes_of,
    counter,
    length_of,
    number_of,
    ranges_of,
)
from perdure.session.search.parts.pages import DAMAGE
from perdure.session.search.query import Phrase

MANY = 14_000

EDGES = [
    *((0, 0), (3, 190), (192, 192), (200, 12_000), (300, 310), (192, 12_479), (12_480, 13_000)),
    *((20_000, 700_000), (12_480, 798_911), (798_912, 900_000), (191, 192), (100, 900_000)),
]
"""Numbers of the first and last word with a prefix; their codes have one to four bytes."""


def test_frequent_words_have_shorter_sorted_codes() -> None:
    words = [f"w{number:05}" for number in range(MANY)]
    codes = codes_of({word: MANY - number for number, word in enumerate(words)})

    sizes = [len(codes[word]) for word in words]
    assert sizes == [1] * 192 + [2] * 192 * 64 + [3] * (MANY - 192 * 65)
    assert len(set(codes.values())) == MANY
    for size in (1, 2, 3):
        same = [word for word in words if len(codes[word]) == size]
        assert same == sorted(same, key=codes.__getitem__)


@pytest.mark.parametrize("first", [0, 191, 192, 12_479, 12_480, 798_911, 798_912, MOST_WORDS - 3])
def test_word_numbers_are_restored_from_their_codes(first: int) -> None:
    codes = [code_of(number) for number in range(first, first + 3)]

    assert [number_of(code) for code in codes] == list(range(first, first + 3))
    assert codes_in(b"".join(codes)) == codes
    assert length_of(b"".join(codes)) == 3
    assert sorted(codes, key=lambda code: (len(code), code)) == codes


@pytest.mark.parametrize("number", [-1, 2**31])
def test_number_outside_the_code_range_raises_damage(number: int) -> None:
    with pytest.raises(DAMAGE):
        code_of(number)


@pytest.mark.parametrize("begin", [b"", b"\xc0", b"\xff\xff"])
def test_splitting_damaged_text_into_codes_loses_no_byte(begin: bytes) -> None:
    assert b"".join(codes_in(begin + b"\1\2\xc0\xff")) == begin + b"\1\2\xc0\xff"


def test_codes_of_words_with_a_common_prefix_form_one_range() -> None:
    codes = codes_of({"ant": 9, "bee": 9, "bear": 9, "cat": 9})

    (found,) = ranges_of([codes["bee"], codes["bear"]])
    assert (found.first, found.last) == (codes["bear"], codes["bee"])


def said(codes: dict[str, bytes], text: str) -> bytes:
    return b"".join(codes[word] for word in text.split())


def test_overlapping_occurrences_of_a_phrase_are_counted() -> None:
    codes = codes_of({f"f{number}": 1000 for number in range(190)} | {"a": 9, "b": 9, "by": 3})
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


def test_words_with_a_common_code_prefix_are_counted_separately() -> None:
    codes = {"a": b"\1", "b": b"\1\xc0", "c": b"\1\xc0\xff"}
    text = said(codes, "b a c a b b a")

    found = {word: counter(Phrase((word,)), codes, {}).count_in(text) for word in codes}
    assert found == {"a": 3, "b": 3, "c": 1}
    assert counter(Phrase(("a", "b")), codes, {}).count_in(text) == 1
    assert counter(Phrase(("b", "a")), codes, {}).count_in(text) == 2


@pytest.mark.parametrize(("first", "last"), EDGES)
def test_prefix_search_counts_only_words_in_the_code_range(first: int, last: int) -> None:
    some = sorted(
        {number + more for number in (first, last) for more in (-65, -64, -1, 0, 1, 64, 65)}
    )
    codes = {f"w{number}": code_of(number) for number in some if number >= 0}
    between = [code for code in codes.values() if first <= number_of(code) <= last]
    ranges = {"w": ranges_of([code_of(first), *between, code_of(last)])}

    count_in = counter(Phrase(("w",), is_prefix=True), codes, ranges).count_in
    after = counter(Phrase(("w0", "w"), is_prefix=True), {"w0": b"\0"}, ranges).count_in

    for code in codes.values():
        assert count_in(code) == (code in between)
        assert after(b"\0" + code) == (code in between)
    text = b"".join(codes.values())
    assert count_in(text) == len(between)
