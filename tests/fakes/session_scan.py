"""A search of session files without an index; a search with an index must find the same."""

from __future__ import annotations

from pathlib import Path

from perdure.codecs.operator.codec import OPERATOR
from perdure.codecs.pi.codec import PI
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.folder import Folder
from perdure.stores.jsonl.search.positions import catch_up
from perdure.stores.jsonl.search.unindexed import Search
from perdure.stores.jsonl.session_index import SessionIndex


def scanned(folder: Path, dialect: str, query: SearchQuery) -> list[Hit]:
    """Return the hits of a scan of every file."""
    shelf = SessionIndex(Folder(folder, is_synced=False), PI if dialect == "pi" else OPERATOR)
    feed = Feed(shelf.folder)

    search = Search(shelf, feed, lambda: catch_up(shelf, feed), query)
    while search.step():
        pass
    return search.hits()


def in_order(hits: list[Hit]) -> list[Hit]:
    """Sort hits by score. Title hits of equal score are in the order of their sessions."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.stream if hit.role == "title" else ""))
