from __future__ import annotations

import random

from perdure.session.search.parts.builder import make_part, pair_key, texts_in
from perdure.session.search.parts.pages import PAIR, everything
from tests.fakes.parts import text

WORDS = ("tide", "tides", "moon", "a", "b", "été", "店", "x1")


def keys_of(count: int) -> set[str]:
    part = make_part(text(number, "a b", "#ruser") for number in range(count))
    return {kept.key for page in part.pages for kept in everything(page.body)}


def test_texts_come_back_in_the_order_of_their_positions() -> None:
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


def test_pairs_are_kept_of_frequent_words_only() -> None:
    assert keys_of(3) == {"#ruser", "#sown", "a", "b"}
    assert keys_of(30) == {"#ruser", "#sown", "a", "b", pair_key("a", "b")}


def test_pair_key_is_short_and_depends_on_order() -> None:
    assert pair_key("a", "b") != pair_key("b", "a")
    assert pair_key("a", "b").startswith(PAIR)
    assert len(pair_key("tide", "店").encode()) == 3
