"""The session ids of a source: possible ids in order, first its own.

They are computed from the source alone, so that its session is found again whatever other sessions
exist.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import count

from perdure.session.ids import StreamId, stream_id

_LONGEST_BASE = 120  # leaves room for the number within the 128 characters of an id


def session_ids(format: str, foreign: str | None, first_line: bytes) -> Iterator[StreamId]:
    """Yield without end the ids under which a source of `format` may be, or become, a session.

    `foreign` is the session id in the source; `first_line` distinguishes sources without one.
    Shape: the foreign id itself if it is valid, else one made of the digest of either; then the
    same with ``.2``, ``.3`` and so on, in case it belongs to something else.
    """
    base = _valid(foreign) or f"{format}-{_digest(foreign, first_line)}"
    yield StreamId(base)
    for number in count(2):
        yield StreamId(f"{base[:_LONGEST_BASE]}.{number}")


def _valid(foreign: str | None) -> str | None:
    try:
        return None if foreign is None else stream_id(foreign)
    except ValueError:
        return None


def _digest(foreign: str | None, first_line: bytes) -> str:
    told = first_line if foreign is None else foreign.encode()
    return hashlib.sha256(told).hexdigest()[:24]
