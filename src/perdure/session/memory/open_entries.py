"""Find entries that wait for another entry of their stream, such as unanswered questions.

Stores add each open entry to a list in the commit that appends the entry. The time to find all open
entries of a namespace therefore depends only on the number of open entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.session.entries import Entry
from perdure.session.flows.kinds import FlowRequestClosed, FlowRequested
from perdure.session.ledger import TurnRefused, TurnRequested, TurnStarted
from perdure.session.memory.kinds import EpisodeRecorded, FactsCaptured, FactsDue
from perdure.session.notes import Answer, Question, QuestionWithdrawn, SessionEnded

OPENING = (Question.kind, SessionEnded.kind, FactsDue.kind, TurnRequested.kind, FlowRequested.kind)
"""Kinds of entries that wait for another entry."""

CLOSING = (
    Answer.kind,
    QuestionWithdrawn.kind,
    EpisodeRecorded.kind,
    FactsCaptured.kind,
    TurnStarted.kind,
    TurnRefused.kind,
    FlowRequestClosed.kind,
)
"""Kinds of entries that close a waiting entry; the `about` of each refers to that entry."""

OPEN_KINDS = (*OPENING, *CLOSING)
"""Kinds of the entries that `unclosed` must receive."""


def opened_and_closed(entries: Iterable[Entry], stream: str) -> Iterator[tuple[bool, int]]:
    """Yield the entries of `stream` that are opened or closed when `entries` are appended to it.

    Shape: each pair contains True for an opened entry or False for a closed entry, and the seq of
    this entry. The pairs are in the order of `entries`.
    """
    own = f"{stream}/"
    for entry in entries:
        if entry.kind in OPENING and entry.lane == "side" and not entry.is_erased:
            yield True, entry.seq
        elif entry.kind in CLOSING and entry.about is not None and entry.about.startswith(own):
            yield False, int(entry.about[len(own) :])


def unclosed(notes: Iterable[Entry], kind: str) -> list[Entry]:
    """Return the entries of `kind` in `notes` that no other entry in `notes` closes.

    `notes` must contain all entries of the kinds `OPEN_KINDS`. An entry closes only entries of its
    own stream.
    """
    notes = tuple(notes)
    closed = {(note.stream, note.about) for note in notes if note.kind in CLOSING}
    return [each for each in notes if each.kind == kind and (each.stream, each.id) not in closed]
