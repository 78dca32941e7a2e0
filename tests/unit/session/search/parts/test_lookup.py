from __future__ import annotations

import random

from perdure.session.search.parts.builder import make_part
from perdure.session.search.parts.lookup import READ_AT_ONCE
from tests.fakes.parts import fitting, found_in, text
from tests.fakes.samples import case

WORDS = (
    *("tide", "tides", "ti", "moon", "a", "b", "c", "été", "店"),
    *(f"n{n}" for n in range(90)),
)
WEIGHTS = (*[20] * 9, *[1] * 90)
ROLES = ("#ruser", "#rtool")

CHANCE = random.Random(7)
TEXTS = [
    text(number * 3 - 40, " ".join(CHANCE.choices(WORDS, WEIGHTS, k=CHANCE.randrange(30))), role)
    for number, role in enumerate(CHANCE.choices(ROLES, k=360))
]
_MIXED = CHANCE.sample(TEXTS, len(TEXTS))
PARTS = [
    make_part(_MIXED[first:end]) for first, end in ((0, 150), (150, 151), (151, 240), (240, 360))
]
"""Index parts whose positions overlap."""

QUERIES = (
    *("a", '"a b"', '"a b c"', "ti*", '"a ti*"', "n1*", '"a a"', "a NOT b", 'a NOT "a b"', "zzz"),
    *('"a b" OR moon', "n5 n7", '"a b c tide"', '"n5 a"', "店", "a NOT n*", '"a a" NOT ti*'),
)


def test_index_lookup_finds_the_same_texts_as_a_scan() -> None:
    for query in QUERIES:
        with case(query):
            for filters in ((), [["#ruser"]], [[], ["#rtool", "#rother"]]):
                expected = fitting(TEXTS, query, filters)
                for most in (3, 40, 1_000):
                    assert found_in(PARTS, query, filters, most)[0] == expected[:most]


def test_lookup_reads_only_the_newest_matches() -> None:
    texts = [text(number, "tide") for number in range(4 * READ_AT_ONCE)]
    size = READ_AT_ONCE // 2
    parts = [make_part(texts[first : first + size]) for first in range(0, len(texts), size)]

    found, read = found_in(parts, "tide", most=1_000)

    assert found == fitting(texts, "tide")[:1_000]
    assert read == READ_AT_ONCE
