"""Session ids for the ids of other programs, which may be any text."""

from __future__ import annotations

import hashlib
import re

_LEGAL = re.compile(r"(?!h:)[A-Za-z0-9._:@-]*")
_LONGEST = 128


def session_id_of(prefix: str, foreign_id: str) -> str:
    """Return the session id of `foreign_id`: ``prefix:foreign_id``, or its hash if that is illegal.

    Shape: different ids of one `prefix` never get the same session id: a hash begins with ``h:``,
    and an id that begins with it is hashed, too.
    """
    readable = f"{prefix}:{foreign_id}"
    if foreign_id and len(readable) <= _LONGEST and _LEGAL.fullmatch(foreign_id):
        return readable
    digest = hashlib.sha256(foreign_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{prefix}:h:{digest}"
