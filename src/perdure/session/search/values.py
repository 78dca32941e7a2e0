"""The arguments and results of a search."""

from __future__ import annotations

from typing import Literal

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.session.ids import EntryId, StreamId

SearchRole = Literal[
    "system", "context", "user", "assistant", "tool", "summary", "custom", "title", "label"
]
"""The author of a text: the role of a message, or the type of another text.

``summary`` is the summary of a compaction or a branch; ``custom`` is a message of an extension.
"""

HITS = 20
"""Maximum number of hits that a search returns by default."""

MOST_RANKED = 1_000
"""Only this many matching entries, the newest, are ranked; older matches are not returned."""


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query and filters of a search.

    `text` is the query (see ``query.sought_in``). A match must pass all filters that are set. The
    author of a match is one of `roles`. Only the logs of `sessions` are searched. A match contains
    a call or a result of one of `tools`. The time of a match is at or after `since` and before
    `until`. If `is_on_branch` is True, only entries on the current branch of their session match;
    if it is False, only the other entries match.
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


class Hit(ShortRepr, frozen=True):
    """A matching entry.

    `stream` is the session whose log contains the entry, even if forks share the entry. `entry` is
    None if the hit is the title given when the session was created. `about` is the entry to which a
    label belongs. `is_on_branch` is True if the entry, or for a label the labelled entry, is on the
    current branch of `stream`. If the hit is a title, `is_on_branch` is always True.
    Units: `at` is Unix milliseconds.
    Shape: a higher `score` is better; scores are comparable within one search only. `marks` are the
    matches in `snippet`. Each mark contains the index of the first character of a match, and the
    index after its last character.
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
