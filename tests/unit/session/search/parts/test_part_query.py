from __future__ import annotations

from perdure.session.search.parts.blocks import block_rows
from perdure.session.search.parts.builder import make_part
from perdure.session.search.parts.lookup import READ_AT_ONCE
from perdure.session.search.parts.pages import everything
from perdure.session.search.parts.part_query import Asked, PartAnswer
from perdure.session.search.query import sought_in
from tests.fakes.parts import fitting, found_in, text


def test_lookup_keys_of_a_query_include_words_and_filters() -> None:
    asked = Asked(sought_in('tide "old moon ri"* NOT "x y"'), [["#ruser", "#rtool"], []])

    assert asked.keys == sorted(["tide", "old", "moon", "x", "y", "#ruser", "#rtool"])
    assert asked.prefixes == ["ri"]


def test_blocks_without_the_phrase_are_skipped() -> None:
    said = ["b x a x c x x x x b a c"] * 400
    said[7], said[300] = "x x x a b c", "a b x b c"
    texts = [text(number, words) for number, words in enumerate(said)]
    part = make_part(texts)
    codes = {kept.key: kept.code for page in part.pages for kept in everything(page.body)}
    asked = Asked(sought_in('"a b c"'), [])
    kept = {each.key: each for page in part.pages for each in everything(page.body)}
    answer = PartAnswer(asked, len(said), {key: kept[key] for key in asked.keys}, {})

    found, _ = found_in([part], '"a b c"')

    assert found == fitting(texts, '"a b c"')
    assert [each.position for each in found] == [7]
    assert answer.texts == list(range(400))
    assert [answer.may_be_in(part.said[number].codes) for number in (6, 7, 300)] == [
        *(False, True, False),
    ]
    assert answer.may_be_in(b"".join(codes[word] for word in ("c", "a", "b", "c")))


def test_phrase_search_skips_blocks_without_all_words() -> None:
    said = [("a x b x x" if number % 2 else "c x b x x") + " x" * 7 for number in range(4_000)]
    said[7], said[2_000], said[3_900] = "x x a b c", "a b x b c", "c b a"
    texts = [text(number, words) for number, words in enumerate(said)]
    part = make_part(texts)
    blocks = list(block_rows(part.said))

    found, read = found_in([part], '"a b c"')

    assert found == fitting(texts, '"a b c"')
    assert [each.position for each in found] == [7]
    assert len(blocks) > 10
    assert read <= 3 * max(block.texts for block in blocks)


def test_frequent_phrase_reads_only_newest_blocks() -> None:
    texts = [text(number, "x a b x x x x x x x x x") for number in range(8_000)]
    parts = [make_part(texts[:4_000]), make_part(texts[4_000:])]
    most = max(block.texts for part in parts for block in block_rows(part.said))

    found, read = found_in(parts, '"a b"', most=20)

    assert found == fitting(texts, '"a b"')[:20]
    assert read <= READ_AT_ONCE + most
