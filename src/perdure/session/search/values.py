"""What is asked of a search, and what it gives back."""

from __future__ import annotations

from typing import Literal

import msgspec

from perdure.session.ids import EntryId, StreamId

SearchRole = Literal[
    "system", "context", "user", "assistant", "tool", "summary", "custom", "title", "label"
]
"""Who said it: the role of a message, or what else the words are.

``summary``: of a compaction or a branch; ``custom``: a message of an extension.
"""

HITS = 20
"""Hits that are given back where nobody says how many."""

MOST_RANKED = 1_000
"""Of the entries that fit a query, the newest so many are ranked; older ones are not given back."""


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for, and where.

    `text` is the query (see ``query.sought_in``). Of the filters each that is set must fit: the
    role is one of `roles`, the entry lies in the log of one of `sessions`, it calls or answers for
    one of `tools`, it is from `since` or later and before `until`, it is on the current branch of
    its session (`is_on_branch` True) or on none (False).
    Units: `since` and `until` are Unix milliseconds.
    """

    text: str
    roles: tuple[SearchRole, ...] = ()
    sessions: tuple[StreamId, ...] = ()
    tools: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    is_on_branch: bool | None = None
    limit: int = HITS


class Hit(msgspec.Struct, frozen=True):
    """An entry that fits a query.

    `stream` is the session whose log holds it, also where forks share it. `entry` is None for the
    title a session was created with. `about` is what a label is on. `is_on_branch`: it, or what it
    is about, is on the branch that `stream` goes on from; true of titles.
    Units: `at` is Unix milliseconds.
    Shape: the greater `score`, the better; it compares the hits of one search only. `marks` are
    the places in `snippet` (first character, and the one behind the last) where the query fits.
    """

    stream: StreamId
    entry: EntryId | None
    about: EntryId | None
    role: SearchRole
    at: int
    snippet: str
    marks: tuple[tuple[int, int], ...]
    score: float
    is_on_branch: bool
