"""Computes the state of sessions, users and apps from stored changes and snapshots."""

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
"""The metadata of a session of the store."""

SNAPSHOT: Final = "adk.state"
"""Type of the notes that store the whole state; also the alias of the newest of these notes."""
CHANGE: Final = "adk.state.change"
"""`Note.note_type` of a change of the state of a user or an app."""

CREATED_AT: Final = "created_at"
"""Metadata key of the session's creation time; a session that is created again has a new time.

Units: Unix seconds.
"""

INITIAL_STATE: Final = "state"
"""Metadata key of the state that the session was created with, as JSON text."""

SNAPSHOT_AFTER: Final = 64
"""Number of events or changes after which the whole state is stored again."""

_logger = logging.getLogger(__name__)


class ScopedChanges(msgspec.Struct, frozen=True):
    """Changes of the state of a session, its user and its app; the keys have no scope prefix."""

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
    """Split `state` into session, user and app state; omit temporary keys."""
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
    """Return the state that a session was created with, split into session, user and app."""
    given = metadata.get(INITIAL_STATE)
    return changes_of(json.loads(given) if isinstance(given, str) else {})


def created_at(metadata: Metadata) -> float:
    """Return when a session was created. Units: Unix seconds."""
    given = metadata.get(CREATED_AT)
    return given if isinstance(given, int | float) else 0.0


def merged(session: Fields, user: Fields, app: Fields) -> Fields:
    """Merge the three states into the one that an agent sees; copy all values."""
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
    """Return `state` as JSON data; values that are not JSON become text, as in the ADK."""
    try:
        return cast("Fields", to_jsonable_python(dict(state)))
    except (PydanticSerializationError, ValueError):
        _logger.warning("some values of the state are not JSON: their text is stored")
        return cast("Fields", to_jsonable_python(dict(state), serialize_unknown=True))
