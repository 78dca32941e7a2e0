"""The marker of an ADK session: the state of the store from which the session was read.

The ADK's own services store the marker in a private attribute of `Session`. An ADK release without
that attribute adds it or rejects it. Without a marker, the time of the newest event detects a stale
session, as in ADK services that store no marker.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from google.adk.sessions import Session

ATTRIBUTE: Final = "_storage_update_marker"


def marker_of(session: Session) -> str | None:
    """Return the marker of `session`, or None."""
    return getattr(session, ATTRIBUTE, None)


def mark(session: Session, marker: str) -> None:
    """Store `marker` in `session`."""
    with suppress(AttributeError, TypeError, ValueError):  # what pydantic raises for a refusal
        setattr(session, ATTRIBUTE, marker)


def marker_at(created_at: float, head: int) -> str:
    """Return the marker of an ADK session that was read at `head`."""
    return f"{created_at}/{head}"
