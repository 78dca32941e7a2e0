"""The memory of a namespace: recall what was said in earlier sessions."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Literal

from perdure.client.amounts import amount
from perdure.client.clock import Outside
from perdure.errors import WrongArgument
from perdure.memory.hits import MemoryHit, hit_of
from perdure.memory.question import question_of
from perdure.memory.ranking import Scope, SumsOf, ranking
from perdure.memory.sums import PlainSums
from perdure.session.argument_checks import takes_all_declared
from perdure.stores.search.index_keys import session_key, subject_key
from perdure.stores.session_store import SessionStore

RECALLED = 10
"""Default number of hits."""

MemoryScope = Literal["subject", "namespace"]
"""Whose sessions are recalled: those of one subject, or those of every subject."""


@takes_all_declared
class Memory:
    """What was said in the sessions of a store. `Store.memory` makes it.

    Scope: a recall finds what belongs to `subject`; without one, only sessions without a subject.
    """

    def __init__(self, backend: SessionStore, outside: Outside) -> None:
        self.backend = backend
        self.outside = outside

    async def recall(
        self,
        question: str,
        *,
        limit: int = RECALLED,
        subject: str | None = None,
        scope: MemoryScope = "subject",
        sessions: Sequence[str] | None = None,
        without: Sequence[str] = (),
    ) -> list[MemoryHit]:
        """Return what earlier sessions say about `question`, best first; docs/guides/memory.md.

        Finds messages of users, assistants and tools on every branch; a text counts with its
        neighbours in the session. With `sessions` only those are searched, never those `without`.
        `scope` "namespace" searches the sessions of all subjects. With numpy (extra ``memory``) a
        recall in a large store is several times faster; the hits are the same.
        Raises: SearchIndexDamaged; Unsupported; WrongArgument for an empty question, and for a
        subject with the scope "namespace"; ValueError when `limit` is negative.
        """
        amount("limit", limit)
        if scope == "namespace" and subject is not None:
            raise WrongArgument(
                'the scope "namespace" recalls what belongs to every subject: leave out `subject`, '
                'or use the scope "subject"',
                argument="subject",
            )
        asked = question_of(question, self.outside.clock.now_ms())
        if not asked.names:
            raise WrongArgument(
                f"the question holds no word to look for: {question!r:.60}", argument="question"
            )
        allowed = Scope(
            subjects=None if scope == "namespace" else (subject_key(subject),),
            only=None if sessions is None else tuple(map(session_key, sessions)),
            but=tuple(map(session_key, without)),
        )
        rank = ranking(asked, allowed, limit, _sums())
        found = await self.backend.search.recall(asked.words, rank)
        return [hit_of(asked, each) for each in found]


@cache
def _sums() -> SumsOf:
    """Return the sums with numpy if it is installed."""
    try:
        return importlib.import_module("perdure.memory.arrays").ArraySums
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        return PlainSums
