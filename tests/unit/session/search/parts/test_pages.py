from __future__ import annotations

import random

import pytest

from perdure.session.search.parts.codes import code_of
from perdure.session.search.parts.pages import (
    DAMAGE,
    PAGE_BYTES,
    Kept,
    beginning,
    everything,
    is_word,
    kept_in,
    pages_of,
    role_key,
)
from perdure.stores.search.index_keys import tool_key

CHANCE = random.Random(3)
KEPT = [
    Kept("#agent", b"", b"12"),
    Kept("#user", b"", b""),
    *[Kept(f"w{number:03}", code_of(200 + number), bytes([number])) for number in range(250)],
    Kept("x", code_of(450), CHANCE.randbytes(70_000)),
    Kept("x1", code_of(451), b"1"),
]
PAGES = list(pages_of(KEPT))


def test_stored_data_is_found_by_key() -> None:
    for page in PAGES:
        for each in everything(page.body):
            assert kept_in(page.body, each.key) == each
    assert [each for page in PAGES for each in everything(page.body)] == KEPT
    assert kept_in(PAGES[0].body, "#usex") is None
    assert kept_in(PAGES[-1].body, "y") is None


def test_index_pages_are_small_except_for_large_postings() -> None:
    large = [page for page in PAGES if len(page.body) > 2 * PAGE_BYTES]

    assert [page.first for page in large] == ["x"]
    assert [page.first for page in PAGES] == sorted(page.first for page in PAGES)
    assert len(PAGES) > 3


def test_words_and_filter_keys_are_on_separate_pages() -> None:
    assert all(len({is_word(k.key) for k in everything(page.body)}) == 1 for page in PAGES)


def test_keys_with_common_prefix_are_found_together() -> None:
    found = [each for page in PAGES for each in beginning(page.body, "w03")]

    assert [each.key for each in found] == [f"w03{number}" for number in range(10)]
    odd = [
        each
        for page in PAGES
        for each in beginning(page.body, "w03", lambda key: int(key[-1]) % 2 == 1)
    ]
    assert odd == found[1::2]


def test_invalid_index_page_raises_damage() -> None:
    for body in (b"", b"x", PAGES[0].body[:-9]):
        with pytest.raises(DAMAGE):
            everything(body)


@pytest.mark.parametrize("name", ["read", "", "s p a c e", "a\nb", "\ud800"])
def test_filter_keys_are_never_treated_as_words(
    name: str,
) -> None:
    for key in (role_key("user"), tool_key(name)):
        assert not is_word(key)
        (page,) = pages_of([Kept(key, b"", b"1")])
        assert kept_in(page.body, key) == Kept(key, b"", b"1")
    assert tool_key(name) not in (role_key(name), tool_key(name + "x"))
