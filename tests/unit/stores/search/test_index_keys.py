"""The keys under which the filters of a search find a text."""

from __future__ import annotations

from perdure.session.ids import StreamId
from perdure.session.search.searchable import Searchable
from perdure.session.search.values import SearchQuery
from perdure.stores.scan import Found
from perdure.stores.search.index_keys import author_key, filters_of, subject_key, text_of


def test_text_and_matching_query_have_the_same_filter_keys() -> None:
    stream, tool = StreamId("s p a c e"), "t\udc80 ool" * 100
    found = Found(7, stream, 1, None, Searchable("user", "Some words", (tool,)), None)

    text = text_of(found)

    wanted = SearchQuery(text="x", sessions=(stream,), roles=("user",), tools=(tool,))
    assert text.filters[:-1] == [key for group in filters_of(wanted) for key in group]
    assert text.filters[-1] == subject_key(None)
    assert list(text.words) == ["some", "words"]
    assert all(" " not in key and len(key) < 40 for key in text.filters)
    other = SearchQuery(text="x", sessions=(StreamId("other"),))
    assert filters_of(other)[0] != filters_of(wanted)[0]


def test_filter_keys_of_a_text_include_subject_author_and_cues() -> None:
    what = Searchable("user", "Did you see it last week?", author="Ana María")
    text = text_of(Found(7, StreamId("s"), 1, None, what, "p 1"))

    keys = [subject_key("p 1"), author_key("ana"), author_key("maria"), "#c7"]
    assert list(text.filters[2:]) == keys
    assert subject_key("p 1") != subject_key("p 2") != subject_key(None)
