"""Ids of the sessions that store the ADK's sessions, state and memory."""

from __future__ import annotations

from typing import Final

from perdure.adapters.session_ids import id_part

SESSION: Final = "adk"
"""Prefix of the ids of sessions: ``adk:app:user:session``."""
APP_STATE: Final = "adk-app"
USER_STATE: Final = "adk-user"
MEMORY: Final = "adk-memory"
"""Prefix of the ids of sessions that store a user's memory.

`APP_STATE` and `USER_STATE` are the prefixes for the state of an app and of a user.
"""


def stored_id(kind: str, *names: str) -> str:
    """Return the session id for `names`, such as an app, a user and a session.

    Shape: different names never get the same id. A name that is too long, or contains characters
    other than letters, digits and ``._@-``, is replaced by its hash.
    """
    return ":".join((kind, *map(id_part, names)))


def id_prefix(kind: str, *names: str) -> str:
    """Return the common prefix of all ids of `kind` whose first names are `names`."""
    return f"{stored_id(kind, *names)}:"


def subject_of(app_name: str, user_id: str) -> str:
    """Return the subject of a user's sessions.

    Sessions of one subject are erased and searched together.
    """
    return f"{id_part(app_name)}:{user_id}"
