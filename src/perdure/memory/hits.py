"""The results of a recall."""

from __future__ import annotations

import msgspec

from perdure.session.ids import EntryId, StreamId
from perdure.session.search.values import SearchRole


class Why(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a text was recalled.

    `terms` are the words of the question that it contains, `neighbours` those that only the texts
    around it in its session contain. `speaker`: the only person that the question names said it.
    `date`: how near its time is to the time that the question names, from 0 to 1. `time`: the
    question asks when, and it names a time. `vector`: the similarity of its meaning, if an embedder
    was used.
    """

    terms: tuple[str, ...] = ()
    neighbours: tuple[str, ...] = ()
    speaker: bool = False
    date: float = 0.0
    time: bool = False
    vector: float | None = None


class MemoryHit(msgspec.Struct, frozen=True):
    """A recalled text.

    `text` is the whole text of the entry, or of a long one the passage that fits best.
    Units: `at` is Unix milliseconds: when it was said, else when it was stored. Shape: a higher
    `score` is better; scores are comparable within one recall only.
    """

    session_id: StreamId
    entry_id: EntryId
    role: SearchRole
    text: str
    score: float
    at: int
    why: Why
    author: str | None = None
    is_passage: bool = False
