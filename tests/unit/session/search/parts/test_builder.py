from __future__ import annotations

import random

from perdure.session.search.parts.builder import make_part, texts_in
from perdure.session.search.parts.postings import MOST_TEXTS
from tests.fakes.parts import found_in, text

WORDS = ("tide", "tides", "moon", "a", "b", "été", "店", "x1")


def test_part_returns_its_texts_in_the_order_of_their_positions() -> None:
    chance = random.Random(1)
    texts = [
        text(number, " ".join(chance.choices(WORDS, k=chance.randrange(9))), "#n1", f"#s{number}")
        for number in range(-20, 40)
    ]

    part = make_part(chance.sample(texts, len(texts)))

    assert [said.length for said in part.said] == [len(each.words) for each in texts]
    assert [each._replace(filters=sorted(each.filters)) for each in texts_in(part)] == [
        each._replace(filters=sorted(each.filters)) for each in texts
    ]
    assert make_part(texts) == part


def test_last_text_of_a_full_index_part_is_found() -> None:
    words = [f"{number % 7} a a b w{number}" for number in range(MOST_TEXTS)]
    words[-1] = "1 2 3 4 5 6 a b"

    part = make_part(text(number, said) for number, said in enumerate(words))

    assert [" ".join(each.words) for each in texts_in(part)] == words
    assert [each.position for each in found_in([part], '"6 a b"', most=9)[0]] == [MOST_TEXTS - 1]
    assert len(found_in([part], '"a b"', most=MOST_TEXTS)[0]) == MOST_TEXTS
