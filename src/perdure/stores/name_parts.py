"""Compute parts of names and ids, for an index that finds sessions whose name contains a query.

A part is a few characters, case-folded, that start at some position of a name or id. Any substring
of a name is the beginning of one of the name's parts. So all sessions whose name contains a query
are next to each other in an ordered index of the parts. ``session.info.is_found`` checks each
session that the index found.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.session.info import SessionInfo, stored_name

PART_CHARACTERS = 8
"""Length of a part. Longer parts need more space, but a long query then reads fewer sessions."""

MOST_CHARACTERS = 256
"""Maximum length of a name with parts. Every query reads the sessions with a longer name."""

LONG_NAME = b""
"""The part of every session whose name is longer than `MOST_CHARACTERS`."""

MOST_SOUGHT = 8
"""Maximum number of parts of a query to look up; the rarest of these parts is used."""

FEW = 64
"""Number of sessions that a query reads first.

If at most this many sessions have the part that a query looks up, the query reads these sessions,
otherwise the newest sessions.
"""

GROWTH = 4
"""Factor by which the number of sessions to read grows with each round."""


def parts_of(info: SessionInfo) -> frozenset[bytes]:
    """Return the parts of the session's id and stored name; none if no list shows the session."""
    if info.kind != "session" or info.status == "erased":
        return frozenset()
    name = stored_name(info).casefold()
    parts = _parts_in(info.id.casefold())
    parts |= _parts_in(name) if len(name) <= MOST_CHARACTERS else {LONG_NAME}
    return frozenset(parts)


def is_renamed(before: SessionInfo, after: SessionInfo) -> bool:
    """Return True if `parts_of` may differ between two states of a session; a cheap check."""
    return (
        before.first_text != after.first_text
        or before.title != after.title
        or (before.status == "erased") != (after.status == "erased")
    )


def sought_parts(query: str | None) -> list[bytes]:
    """Return the beginnings of parts to look up for `query`.

    If a name or id contains `query`, each returned text is the beginning of a part of this name or
    id. The result is empty if `query` does not restrict the sessions.
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
