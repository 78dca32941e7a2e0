"""What a new entry says of itself: kind, lane, time, foreign id, what it hangs on."""

from __future__ import annotations

import re

from perdure.errors import InvalidEntry
from perdure.session.codec import BODIES
from perdure.session.entries import LEAF, Lane, NewEntry
from perdure.session.messages import MESSAGE, MESSAGE_VERSION

_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")
TIMES = range(-(2**53), 2**53)
"""Whole numbers that every JSON reader keeps exact."""

_VERSIONS = range(1, 2**31)

_LANES: dict[str, Lane] = {kind: body.lane for kind, body in BODIES.items()}
_LANES[MESSAGE] = "tree"

_WELL_FORMED = frozenset(
    [(MESSAGE, "tree", MESSAGE_VERSION)]
    + [(kind, body.lane, body.version) for kind, body in BODIES.items()]
)
"""Kind, lane and version of nearly every entry, which then need no second look."""


def check_form(new: NewEntry) -> None:
    """Check what an entry says of itself, whatever its body.

    Raises: InvalidEntry.
    """
    if new.at is not None and new.at not in TIMES:
        raise InvalidEntry(f"its time {new.at} is out of range")
    if new.alias is not None and not is_text(new.alias):
        raise InvalidEntry(f"{new.alias!r} cannot be a foreign id")
    if new.lane == "tree" and new.about is not None:
        raise InvalidEntry("an entry of the tree has a parent and is about nothing")
    if new.lane == "side" and new.parent is not LEAF and new.parent is not None:
        raise InvalidEntry("a side entry has no parent")
    if (new.kind, new.lane, new.v) not in _WELL_FORMED:
        _check_kind(new)


def _check_kind(new: NewEntry) -> None:
    if not _KIND.fullmatch(new.kind):
        raise InvalidEntry(f"{new.kind!r} cannot be a kind: use a-z, 0-9 and _, at most 64")
    if new.v not in _VERSIONS:
        raise InvalidEntry(f"{new.v} cannot be the version of a kind")
    if new.lane not in ("tree", "side"):
        raise InvalidEntry(f"there is no lane {new.lane!r}")
    known = _LANES.get(new.kind, new.lane)
    if new.lane != known:
        raise InvalidEntry(f"a {new.kind} entry is of the {known} lane, not of the {new.lane} lane")


def is_text(text: object) -> bool:
    """Whether `text` can be a name that is kept: a text that is not empty, and has an encoding."""
    try:
        return isinstance(text, str) and bool(text.encode())
    except UnicodeEncodeError:
        return False
