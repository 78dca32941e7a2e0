"""Names of the sessions in which a store keeps sessions, state and memory of the ADK."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

SESSION: Final = "adk"
"""Prefix of the ids of sessions: ``adk:app:user:session``."""
APP_STATE: Final = "adk-app"
USER_STATE: Final = "adk-user"
MEMORY: Final = "adk-memory"
"""Prefixes of the ids of what belongs to an app, or to a user of an app."""

_READABLE = re.compile(r"(?!h\.)[A-Za-z0-9._@-]{1,40}")


def stored_id(kind: str, *names: str) -> str:
    """Return the session id of `names`, such as an app, a user and a session.

    Shape: different names never get the same id. A name that is too long, or has other characters
    than letters, digits and ``._@-``, is replaced by its hash.
    """
    return ":".join((kind, *map(_part, names)))


def id_prefix(kind: str, *names: str) -> str:
    """Return the beginning of all ids of `kind` whose names begin with `names`."""
    return f"{stored_id(kind, *names)}:"


def subject_of(app_name: str, user_id: str) -> str:
    """Return the subject of a user's sessions: what is erased, and remembered, together."""
    return f"{_part(app_name)}:{user_id}"


def _part(name: str) -> str:
    if _READABLE.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:24]
    return f"h.{base64.urlsafe_b64encode(digest).decode('ascii')}"
