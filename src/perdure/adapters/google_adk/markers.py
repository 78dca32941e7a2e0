"""The marker of an ADK session: which state of the store it was read from.

The ADK's own services keep it in a private attribute of `Session`. A release without that attribute
takes it as a new one, or refuses it: the time of the newest event then tells a stale session, as in
services of the ADK that keep no marker.
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
    """Keep `marker` in `session`."""
    with suppress(AttributeError, TypeError, ValueError):  # what pydantic raises for a refusal
        setattr(session, ATTRIBUTE, marker)


def marker_at(created_at: float, head: int) -> str:
    """Return the marker of an ADK session that was read at `head`."""
    return f"{created_at}/{head}"
