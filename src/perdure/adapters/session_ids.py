"""Converts the ids of other programs, which can be any text, to session ids."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from itertools import count

_LEGAL = re.compile(r"(?!h:)[A-Za-z0-9._:@-]*")
_LONGEST = 128

_PART = re.compile(r"(?!h\.)[A-Za-z0-9._@-]{1,40}")


def session_id_of(prefix: str, foreign_id: str) -> str:
    """Return ``prefix:foreign_id``, with a hash in place of a `foreign_id` that is not valid.

    Shape: different ids of one `prefix` never get the same session id. A hash begins with ``h:``; a
    `foreign_id` that itself begins with ``h:`` is hashed, too.
    """
    readable = f"{prefix}:{foreign_id}"
    if foreign_id and len(readable) <= _LONGEST and _LEGAL.fullmatch(foreign_id):
        return readable
    digest = hashlib.sha256(foreign_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{prefix}:h:{digest}"


def session_ids_of(prefix: str, foreign_id: str, second: int = 1) -> Iterator[str]:
    """Yield the id of `session_id_of`, then ids for later sessions of `foreign_id`, without end.

    Shape: each later id begins with `prefix` and a number; the numbers start at `second`.
    """
    yield session_id_of(prefix, foreign_id)
    for number in count(second):
        yield session_id_of(f"{prefix}{number}", foreign_id)


def id_part(name: str) -> str:
    """Return `name`, or its hash if needed, as one part of a colon-separated id.

    Shape: two different names never result in the same part. A part has at most 40 characters.
    """
    if _PART.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:24]
    return f"h.{base64.urlsafe_b64encode(digest).decode('ascii')}"
