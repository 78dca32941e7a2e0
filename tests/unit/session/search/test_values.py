"""The values of a search are plain data."""

from __future__ import annotations

import msgspec

from perdure.session.ids import EntryId, StreamId
from perdure.session.search.values import HITS, MOST_RANKED, Hit, SearchQuery


def test_query_without_filters_matches_everything() -> None:
    query = SearchQuery(text="word")

    assert (query.roles, query.sessions, query.tools) == ((), (), ())
    assert (query.since, query.until, query.is_on_branch) == (None, None, None)
    assert query.limit == HITS <= MOST_RANKED


def test_search_hit_survives_a_json_round_trip() -> None:
    hit = Hit(StreamId("s"), EntryId("s/1"), None, "user", 1, "a word", ((2, 6),), 0.5, True)

    assert msgspec.json.decode(msgspec.json.encode(hit), type=Hit) == hit
