"""The marker of an ADK session, which identifies the state of the store at the time of the read.

The ADK's own services store the marker in a private attribute of `Session`. If a release of the ADK
lacks the private attribute, setting the attribute either adds it or fails, and the failure is
ignored. Without a marker, a session is stale if its newest event is older than the newest event in
the store. If sessions have no markers, the ADK's own services compare the times of events.
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
    """Return the marker for an ADK session that was read when its log ended at `head`."""
    return f"{created_at}/{head}"
