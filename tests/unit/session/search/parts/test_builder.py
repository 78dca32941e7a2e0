from __future__ import annotations

import random

from perdure.session.search.parts.builder import make_part, pair_key, texts_in
from perdure.session.search.parts.pages import PAIR, everything
from perdure.session.search.parts.postings import MOST_TEXTS, PLACES, bits, numbers
from tests.fakes.parts import found_in, text

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


def test_pairs_begin_where_the_words_are_adjacent_modulo_eight() -> None:
    said = [*["a b"] * 16, "c a", *["b"] * 3, "c c c c c c c a b a b"]

    part = make_part(text(number, words) for number, words in enumerate(said))

    kept = {each.key: each.posting for page in part.pages for each in everything(page.body)}
    ab = numbers(bits(kept[pair_key("a", "b")], len(said) * PLACES))
    assert ab == [*range(0, 16 * PLACES, PLACES), 20 * PLACES + 1, 20 * PLACES + 7]
    assert numbers(bits(kept[pair_key("b", "a")], len(said) * PLACES)) == [20 * PLACES]


def test_part_with_the_most_texts_finds_the_last_of_them() -> None:
    words = [f"{number % 7} a a b w{number}" for number in range(MOST_TEXTS)]
    words[-1] = "1 2 3 4 5 6 a b"

    part = make_part(text(number, said) for number, said in enumerate(words))

    assert [" ".join(each.words) for each in texts_in(part)] == words
    assert [each.position for each in found_in([part], '"6 a b"', most=9)[0]] == [MOST_TEXTS - 1]
    assert len(found_in([part], '"a b"', most=MOST_TEXTS)[0]) == MOST_TEXTS


def test_pairs_are_kept_of_frequent_words_only() -> None:
    assert keys_of(3) == {"#ruser", "#sown", "a", "b"}
    assert keys_of(30) == {"#ruser", "#sown", "a", "b", pair_key("a", "b")}


def test_pair_key_is_short_and_depends_on_order() -> None:
    assert pair_key("a", "b") != pair_key("b", "a")
    assert pair_key("a", "b").startswith(PAIR)
    assert len(pair_key("tide", "店").encode()) == 3
