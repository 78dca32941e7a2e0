"""The parts of names and ids by which a list finds the sessions that a query is contained in.

A part is a few characters from some place of a name or an id on, in folded case. A text that is
contained in a name is the beginning of one of its parts, so the sessions with a query in their name
are one range of an ordered index. ``session.info.is_found`` decides about each of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.session.info import SessionInfo

PART_CHARACTERS = 8
"""Longer parts leave fewer sessions to read for a long query, and take more space each."""

MOST_CHARACTERS = 256
"""A longer name is in no part: its session is read by every query."""

LONG_NAME = b""
"""The part of every session with such a name."""

MOST_SOUGHT = 8
"""Parts of a query that are looked up; the one that fewest names have is used."""

FEW = 64
"""Sessions that a query reads at first: those of its part if they are so few, else the newest."""

GROWTH = 4
"""How many times more it reads in each further round."""


def parts_of(info: SessionInfo) -> frozenset[bytes]:
    """The parts of the session's id and name; none where lists never show it."""
    if info.kind != "session" or info.status == "erased":
        return frozenset()
    name = info.name.casefold()
    parts = _parts_in(info.id.casefold())
    parts |= _parts_in(name) if len(name) <= MOST_CHARACTERS else {LONG_NAME}
    return frozenset(parts)


def is_renamed(before: SessionInfo, after: SessionInfo) -> bool:
    """Whether `parts_of` may differ between two moments of a session. Costs nothing to ask."""
    return (
        before.first_text != after.first_text
        or before.title != after.title
        or (before.status == "erased") != (after.status == "erased")
    )


def sought_parts(query: str | None) -> list[bytes]:
    """What a name or id with `query` in it has a part with each of at its beginning.

    Empty where `query` leaves nothing out.
    """
    sought = (query or "").casefold()
    places = [*range(0, max(1, len(sought) - PART_CHARACTERS + 1), PART_CHARACTERS)]
    places = [*places[: MOST_SOUGHT - 1], max(0, len(sought) - PART_CHARACTERS)]
    return [_stored(sought[at : at + PART_CHARACTERS]) for at in dict.fromkeys(places) if sought]


def end_of(part: bytes) -> bytes:
    """Behind every part that begins with `part`."""
    return part + b"\xff"


def rounds() -> Iterator[int]:
    """How many sessions each round of a query reads."""
    reach = FEW
    while True:
        yield reach
        reach *= GROWTH


def _parts_in(text: str) -> set[bytes]:
    return {_stored(text[at : at + PART_CHARACTERS]) for at in range(len(text))}


def _stored(part: str) -> bytes:
    return part.encode("utf-8", "surrogatepass")
