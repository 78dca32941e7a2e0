"""Index parts of names and ids, for lists of the sessions whose name contains a query.

A part is a few characters, case-folded, that start at some position of a name or id. Any substring
of a name is the beginning of one of the name's parts. The sessions whose name contains a query are
therefore neighbours in an ordered index. ``session.info.is_found`` then checks each session that
the index found.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.session.info import SessionInfo, stored_name

PART_CHARACTERS = 8
"""Longer parts leave fewer sessions to read for a long query, but take more space each."""

MOST_CHARACTERS = 256
"""A longer name has no parts: every query reads its session."""

LONG_NAME = b""
"""The part of every session with such a name."""

MOST_SOUGHT = 8
"""Number of parts of a query to look up; the rarest is used."""

FEW = 64
"""Number of sessions that a query reads first: those of its part if so few, else the newest."""

GROWTH = 4
"""Growth factor of the number of sessions per round."""


def parts_of(info: SessionInfo) -> frozenset[bytes]:
    """Return the parts of the session's id and stored name; none if no list shows the session."""
    if info.kind != "session" or info.status == "erased":
        return frozenset()
    name = stored_name(info).casefold()
    parts = _parts_in(info.id.casefold())
    parts |= _parts_in(name) if len(name) <= MOST_CHARACTERS else {LONG_NAME}
    return frozenset(parts)


def is_renamed(before: SessionInfo, after: SessionInfo) -> bool:
    """Whether `parts_of` may differ between two states of a session. Cheap."""
    return (
        before.first_text != after.first_text
        or before.title != after.title
        or (before.status == "erased") != (after.status == "erased")
    )


def sought_parts(query: str | None) -> list[bytes]:
    """Return the prefixes by which to look up parts.

    Every name or id that contains `query` has a part for each prefix. The result is empty if
    `query` does not restrict the sessions.
    """
    sought = (query or "").casefold()
    places = [*range(0, max(1, len(sought) - PART_CHARACTERS + 1), PART_CHARACTERS)]
    places = [*places[: MOST_SOUGHT - 1], max(0, len(sought) - PART_CHARACTERS)]
    return [_stored(sought[at : at + PART_CHARACTERS]) for at in dict.fromkeys(places) if sought]


def end_of(part: bytes) -> bytes:
    """Return the end of the range of all parts that begin with `part`."""
    return part + b"\xff"


def rounds() -> Iterator[int]:
    """Yield how many sessions each round of a query reads; the number grows with every round."""
    reach = FEW
    while True:
        yield reach
        reach *= GROWTH


def _parts_in(text: str) -> set[bytes]:
    return {_stored(text[at : at + PART_CHARACTERS]) for at in range(len(text))}


def _stored(part: str) -> bytes:
    return part.encode("utf-8", "surrogatepass")
