"""The tables of the index: texts that are loose, and parts; one made of the other, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perdure.session.search.parts.builder import Part, Said, Text, texts_in
from perdure.session.search.parts.codes import MOST_WORDS
from perdure.session.search.parts.pages import DAMAGE, Page
from perdure.session.search.parts.postings import MOST_TEXTS
from perdure.session.search.phrase_text import join_terms
from perdure.stores.sqlite.rows import Row, Tables

_ADD_LOOSE = "INSERT INTO search_loose VALUES (?, ?, ?, ?, ?, ?)"
_ADD_TEXT = "INSERT INTO search_text VALUES (?, ?, ?, ?, ?)"
_ADD_PART = "INSERT INTO search_part VALUES (?, ?, ?, ?, ?, ?)"
_ADD_PAGE = "INSERT INTO search_page VALUES (?, ?, ?)"

_COUNT = """
SELECT count(*), coalesce(sum(length), 0) FROM search_loose WHERE namespace = ? AND length <= ?
"""

_LOOSE = """
SELECT n, at, filters, said, length FROM search_loose
WHERE namespace = ? AND length <= ? ORDER BY n LIMIT ?
"""

_SAID = "SELECT n, at, length, said FROM search_text WHERE id >= ? AND id < ? ORDER BY id"
_PAGES = "SELECT first, body FROM search_page WHERE part = ? ORDER BY first"

_PLACE = "SELECT id FROM search_text WHERE n = ?"

_REMOVE_LOOSE = "DELETE FROM search_loose WHERE namespace = ? AND n = ?"

# Those of no namespace are the work of a stranger, and stand in the way of others.
_PARTS = """
SELECT no FROM search_part
WHERE namespace = ? OR NOT EXISTS (SELECT 1 FROM namespace AS a WHERE a.no = search_part.namespace)
"""

_FIRST_TEXT = "SELECT min(id) FROM search_text WHERE id >= ?"

_IS_PART = "SELECT 1 FROM search_part WHERE no = ?"

_POSITIONS = "SELECT n FROM search_text WHERE id >= ? AND id < ? ORDER BY id"

_NEXT_PART = "SELECT coalesce(max(no), 0) + 1 FROM search_part"


def loose_count(tables: Tables, namespace: int) -> tuple[int, int]:
    """How many texts are in no part, and how many words they are, but for what is too long."""
    count, words = tables.row(_COUNT, namespace, MOST_WORDS) or (0, 0)
    return count, words


def loose_texts(tables: Tables, namespace: int, most: int) -> list[Text]:
    """The first loose texts, as far as they make one part."""
    texts: list[Text] = []
    size = 0
    for row in tables.rows(_LOOSE, namespace, MOST_WORDS, most):
        size += row[4]
        if size > MOST_WORDS:
            break
        texts.append(loose_text(row))
    return texts


def loose_text(row: Row) -> Text:
    """The text in a row: its position and time, its filters and its words.

    Raises: ValueError for a row on a damaged page.
    """
    if not (isinstance(row[2], str) and isinstance(row[3], str)):
        raise ValueError("a row of texts that are in no part is damaged")
    return Text(row[0], row[1], row[3].split(), row[2].split())


def homeless_texts(tables: Tables) -> Iterator[int]:
    """The positions of texts whose part is not there. Costs a look for each part of the file."""
    for number in _homeless_parts(tables):
        first = number * MOST_TEXTS
        for (position,) in list(tables.rows(_POSITIONS, first, first + MOST_TEXTS)):
            yield position


def _homeless_parts(tables: Tables) -> Iterator[int]:
    place = tables.value(_FIRST_TEXT, -(2**62))
    while place is not None:
        number = place // MOST_TEXTS
        if tables.value(_IS_PART, number) is None:
            yield number
        place = tables.value(_FIRST_TEXT, (number + 1) * MOST_TEXTS)


def part_of(tables: Tables, number: int) -> Part:
    """The part of that number."""
    first = number * MOST_TEXTS
    said = tuple([Said(*row) for row in tables.rows(_SAID, first, first + MOST_TEXTS)])
    return Part(said, tuple([Page(*row) for row in tables.rows(_PAGES, number)]))


# ---------------------------------------------------------------- writing


def add_loose(tables: Tables, namespace: int, texts: Iterable[Text]) -> None:
    """Add `texts` that are in no part."""
    rows = (
        (
            *(namespace, text.position, text.at, len(text.words)),
            *(" ".join(text.filters), join_terms(text.words)),
        )
        for text in texts
    )
    tables.run_many(_ADD_LOOSE, rows)


def remove_loose(tables: Tables, namespace: int, positions: Iterable[int]) -> None:
    """Take loose texts out."""
    tables.run_many(_REMOVE_LOOSE, ((namespace, position) for position in positions))


def add_part(tables: Tables, namespace: int, part: Part) -> None:
    """Add a part, under a number that no part of the file has."""
    number = int(tables.value(_NEXT_PART))
    ats = [said.at for said in part.said]
    head = (number, len(part.said), part.said[-1].position, min(ats), max(ats), namespace)
    tables.run(_ADD_PART, head)
    first = number * MOST_TEXTS
    tables.run_many(_ADD_TEXT, ((place, *said) for place, said in enumerate(part.said, first)))
    tables.run_many(_ADD_PAGE, ((number, *page) for page in part.pages))


def clear_tables(tables: Tables, namespace: int) -> None:
    """Take everything of `namespace` out."""
    own = [row[0] for row in tables.rows(_PARTS, namespace)]
    for number in (*own, *_homeless_parts(tables)):
        _remove_part(tables, number)
    tables.run("DELETE FROM search_loose WHERE namespace = ?", (namespace,))


def forget_texts(tables: Tables, namespace: int, positions: Sequence[int]) -> bool:
    """Take out what stands at `positions`; the other texts of their parts are loose then.

    False where the index is damaged: then all of it has to go.
    """
    places = [tables.value(_PLACE, position) for position in positions]
    parts = sorted({place // MOST_TEXTS for place in places if place is not None})
    try:
        for number in parts:
            _take_apart(tables, namespace, number, frozenset(positions))
    except DAMAGE:
        return False
    remove_loose(tables, namespace, positions)
    return True


def _take_apart(tables: Tables, namespace: int, number: int, gone: frozenset[int]) -> None:
    texts = list(texts_in(part_of(tables, number)))
    _remove_part(tables, number)
    add_loose(tables, namespace, (text for text in texts if text.position not in gone))


def _remove_part(tables: Tables, number: int) -> None:
    first = number * MOST_TEXTS
    tables.run("DELETE FROM search_text WHERE id >= ? AND id < ?", (first, first + MOST_TEXTS))
    tables.run("DELETE FROM search_page WHERE part = ?", (number,))
    tables.run("DELETE FROM search_part WHERE no = ?", (number,))
