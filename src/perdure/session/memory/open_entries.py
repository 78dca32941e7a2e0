"""Entries that wait for another entry of their stream: questions, and ends without an episode.

Stores list them in the commit that appends one, so that finding all of a namespace costs only what
is found.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.session.entries import Entry
from perdure.session.memory.kinds import EpisodeRecorded
from perdure.session.notes import Answer, Question, QuestionWithdrawn, SessionEnded

OPENING = (Question.kind, SessionEnded.kind)
"""Kinds of the entries that wait for another."""

CLOSING = (Answer.kind, QuestionWithdrawn.kind, EpisodeRecorded.kind)
"""Kinds of the entries that the entry they are about waits for."""

OPEN_KINDS = (*OPENING, *CLOSING)
"""Kinds of the entries that `unclosed` needs."""


def unclosed(notes: Iterable[Entry], kind: str) -> list[Entry]:
    """Return the entries of `kind` among `notes` (of `OPEN_KINDS`) that no other note closes."""
    notes = tuple(notes)
    closed = {note.about for note in notes if note.kind in CLOSING}
    return [note for note in notes if note.kind == kind and note.id not in closed]
