"""State of sessions, users and apps: computed from its changes, with snapshots."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec
from google.adk.sessions import State
from pydantic_core import PydanticSerializationError, to_jsonable_python

Fields = dict[str, Any]
Metadata = Mapping[str, object]
"""Of a session of the store."""

SNAPSHOT: Final = "adk.state"
"""`Note.note_type` of the whole state, and the alias of the newest one."""
CHANGE: Final = "adk.state.change"
"""`Note.note_type` of a change of the state of a user or an app."""

CREATED_AT: Final = "created_at"
"""Metadata: when it was created. A session that was deleted and created again has another time.

Units: Unix seconds.
"""

INITIAL_STATE: Final = "state"
"""Metadata: the JSON text of the state that the session was created with."""

SNAPSHOT_AFTER: Final = 64
"""Entries after which the whole state is stored again."""

_logger = logging.getLogger(__name__)


class ScopedChanges(msgspec.Struct, frozen=True):
    """Changes of the state, separated by owner, with keys that have no scope prefix."""

    session: Fields
    user: Fields
    app: Fields


class WholeState(msgspec.Struct, frozen=True):
    """The content of the note that stores the whole state of a session."""

    state: Fields
    updated_at: float


class StateFold(msgspec.Struct):
    """A state computed up to entry `head`; `since` counts the entries after the newest snapshot.

    Units: `updated_at` is Unix seconds, as in the ADK.
    """

    head: int
    values: Fields
    updated_at: float = 0.0
    since: int = 0


def changes_of(state: Mapping[str, Any]) -> ScopedChanges:
    """Return the changes in `state`, separated by scope, without temporary changes."""
    changes = ScopedChanges({}, {}, {})
    for key, value in state.items():
        if key.startswith(State.APP_PREFIX):
            changes.app[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            changes.user[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            changes.session[key] = value
    return changes


def initial_changes(metadata: Metadata) -> ScopedChanges:
    """Return the state that a session was created with, by scope."""
    given = metadata.get(INITIAL_STATE)
    return changes_of(json.loads(given) if isinstance(given, str) else {})


def created_at(metadata: Metadata) -> float:
    """Return when a session was created. Units: Unix seconds."""
    given = metadata.get(CREATED_AT)
    return given if isinstance(given, int | float) else 0.0


def merged(session: Fields, user: Fields, app: Fields) -> Fields:
    """Return the state that an agent sees, as new objects."""
    shown = {key: _copied(value) for key, value in session.items()}
    shown.update((State.APP_PREFIX + key, _copied(value)) for key, value in app.items())
    shown.update((State.USER_PREFIX + key, _copied(value)) for key, value in user.items())
    return shown


def _copied(value: Any) -> Any:
    """Return a deep copy of JSON data; for small data this is faster than encoding and decoding."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in cast("Fields", value).items()}
    if isinstance(value, list):
        return [_copied(each) for each in cast("list[Any]", value)]
    return value


def jsonable(state: Mapping[str, Any]) -> Fields:
    """Return `state` as JSON data; other values become text, as in the ADK's own services."""
    try:
        return cast("Fields", to_jsonable_python(dict(state)))
    except (PydanticSerializationError, ValueError):
        _logger.warning("some values of the state are not JSON: their text is stored")
        return cast("Fields", to_jsonable_python(dict(state), serialize_unknown=True))
