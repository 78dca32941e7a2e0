from __future__ import annotations

from collections.abc import Iterable

from perdure.session.search.parts.builder import Part, Text, make_part, texts_in
from perdure.session.search.parts.comparison import differing, is_same
from perdure.session.search.parts.occurrences import pack_frequencies, pack_places
from perdure.session.search.parts.pages import Page, everything, pages_of
from tests.fakes.parts import text

TEXTS = [text(number, f"tide number{number}", "#ruser") for number in range(10, 50)]
PART = make_part(TEXTS)


def by_position(texts: Iterable[Text]) -> dict[int, Text]:
    return {each.position: each for each in texts}


def with_postings(part: Part, exchanged: dict[str, str]) -> Part:
    kept = {each.key: each for page in part.pages for each in everything(page.body)}
    changed = [
        each._replace(posting=kept[exchanged.get(key, key)].posting) for key, each in kept.items()
    ]
    return part._replace(pages=tuple(pages_of(changed)))


def test_unchanged_index_part_has_no_differences() -> None:
    assert differing(PART, by_position(TEXTS)) == set()


def test_changed_texts_are_reported() -> None:
    expected = by_position(TEXTS)
    expected[12] = text(12, "tide moon", "#ruser")
    expected[13] = expected[13]._replace(at=1)
    expected[14] = text(14, "tide number14", "#rtool")
    del expected[15]
    lengths = PART._replace(said=(PART.said[0]._replace(length=9), *PART.said[1:]))

    assert differing(PART, expected) == {12, 13, 14, 15}
    assert differing(lengths, by_position(TEXTS)) == {10}


def test_texts_with_wrong_postings_are_reported() -> None:
    wrong = with_postings(PART, {"number20": "number21"})

    assert differing(wrong, by_position(TEXTS)) == {20, 21}


def test_all_texts_of_unreadable_part_are_reported() -> None:
    for pages in ((), (Page("a", b"x"),)):
        assert differing(PART._replace(pages=pages), by_position(TEXTS)) == set(range(10, 50))


def test_order_of_filter_keys_is_ignored() -> None:
    text = Text(1, 2, ("a",), ("#n1", "#s1", "#ruser"), 5)
    again = next(iter(texts_in(make_part([text]))))

    assert again.filters != text.filters
    assert is_same(again, text)
    assert not is_same(again, text._replace(filters=("#n1", "#s1")))
    assert not is_same(again, text._replace(place=6))
    assert not is_same(again, None)


def test_wrong_word_frequencies_in_an_index_part_are_reported() -> None:
    texts = [text(number, "tide " * (1 + number % 3) + f"number{number}") for number in range(40)]
    part = make_part(texts)

    def changed(key: str, values: bytes) -> Part:
        kept = [each for page in part.pages for each in everything(page.body)]
        others = [each._replace(values=values) if each.key == key else each for each in kept]
        return part._replace(pages=tuple(pages_of(others)))

    assert differing(changed("number7", pack_frequencies([(0, 2)])), by_position(texts)) == {7}
    wrong = [(number, 4 if number == 8 else 1 + number % 3) for number in range(40) if number % 3]
    assert differing(changed("tide", pack_frequencies(wrong)), by_position(texts)) == {8}
    moved = pack_places([99 if number == 9 else number for number in range(40)])
    assert differing(changed("#sown", moved), by_position(texts)) == {9}
    for cut in (b"\x80", b"\x01"):
        assert differing(changed("#sown", cut), by_position(texts)) == set(range(40))
    assert differing(changed("tide", b"\xff\x7f"), by_position(texts)) == set(range(40))
