"""Erased words in the files of a store: in plain bytes, and in compressed pages of an index.

A search of bytes does not see words in compressed pages, so this module reads the index through
SQLite. Pages that the index no longer reads can remain in free space of the file. Collect the pages
with the word before an erasure (`pages_with`), and pass them to `leaks_in` afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from tests.fakes.parts import words_of
from tests.fakes.raw_database import raw_database

_SQLITE = b"SQLite format 3\0"
_PIECE = 400
"""Number of bytes at the start of a page that SQLite always stores without a gap."""


def leaks_in(place: Path, word: str, gone: Collection[bytes] = ()) -> list[str]:
    """Return the files at `place` that contain the word in any form, or one of the pages `gone`."""
    sought = [word.encode(), word.encode("utf-16-le"), word.encode().hex().encode()]
    sought += [page[:_PIECE] for page in gone]
    return [
        file.name
        for file in _files(place)
        if any(each in content for content in [file.read_bytes()] for each in sought)
        or _pages_in(file, word)
    ]


def pages_with(place: Path, word: str) -> list[bytes]:
    """Return the compressed pages that contain the word, from all indexes at `place`."""
    return [page for file in _files(place) for page in _pages_in(file, word)]


def _files(place: Path) -> Iterator[Path]:
    for file in [place, *place.rglob("*")]:
        if file.is_file():
            yield file


def _pages_in(file: Path, word: str) -> list[bytes]:
    with file.open("rb") as content:
        if content.read(len(_SQLITE)) != _SQLITE:
            return []
    with raw_database(file) as db:
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'search_page'").fetchall():
            return []
        pages = [row[0] for row in db.execute("SELECT body FROM search_page").fetchall()]
    return [page for page in pages if any(word.lower() in key for key in words_of([page]))]
