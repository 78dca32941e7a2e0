"""Facts and summaries of episodes as statements, which a recall ranks together with texts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from perdure.client.memory import fact_writes
from perdure.client.memory.embedding import TextVectors
from perdure.errors import SessionNotFound
from perdure.memory.episodes import Summary, summaries_in
from perdure.memory.hits import MemoryHit, RecallKind, said_at, statement_hit
from perdure.memory.question import Question
from perdure.memory.ranking import Having, Size
from perdure.memory.scope import MemoryFilter
from perdure.memory.statements import Statement, StatementRanking
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, entry_place
from perdure.session.memory.facts import Fact
from perdure.session.memory.kinds import EpisodeRecorded
from perdure.stores.search.index_keys import session_key
from perdure.stores.session_store import SessionStore


class Wanted(NamedTuple):
    """Selects facts and summaries for a recall; the fields are arguments of ``Memory.recall``."""

    kinds: Collection[RecallKind]
    within: MemoryFilter
    sessions: Collection[str] | None = None
    without: Collection[str] = ()
    agent: str | None = None


class Statements:
    """The facts and summaries that a recall can find.

    The function `beside` ranks the facts and summaries.
    """

    def __init__(
        self, question: Question, found: Sequence[Fact | Summary], near: Sequence[float | None]
    ) -> None:
        self._question = question
        self._found = found
        self.beside = StatementRanking(
            question,
            [
                Statement(each.text, said_at(each), _session_of(each), nearness)
                for each, nearness in zip(found, near, strict=True)
            ],
        )

    def rank_alone(self) -> None:
        """Rank the facts when there are no texts to rank."""
        self.beside(Size(), [Having()] * len(self._question.words), lambda _session: False)

    def hits(self, limit: int) -> list[MemoryHit]:
        """Return the best `limit` of the ranked statements."""
        return [
            statement_hit(self._question, self._found[each.number], each)
            for each in self.beside.best[:limit]
        ]


async def statements_in(
    store: SessionStore,
    question: Question,
    wanted: Wanted,
    now: int,
    vectors: TextVectors | None,
    *,
    streams: Sequence[StreamId] | None = None,
) -> Statements:
    """Return the statements that a recall at `now` can find; `vectors` help to rank the statements.

    The statements include summaries of sessions outside the scope, which the ranking omits. With
    `streams`, only summaries of these sessions are read.
    Units: Unix milliseconds. Raises: EmbedderUnavailable.
    """
    found: list[Fact | Summary] = []
    if "fact" in wanted.kinds and store.capabilities.erase:  # other stores have no facts
        facts = await fact_writes.facts_in(store, wanted.within)
        found += [fact for fact in facts if fact.is_valid_at(now) and _is_wanted(fact, wanted)]
    if "episode" in wanted.kinds:
        agent = wanted.within.agent
        notes = await _episodes_in(store, streams)
        found += [each for each in summaries_in(notes) if agent in (None, each.agent)]
    found.sort(key=said_at)
    near: Sequence[float | None] = [None] * len(found)
    if vectors is not None and question.meaning is not None:
        near = await vectors.nearness(question.meaning, [each.text for each in found])
    return Statements(question, found, near)


async def _episodes_in(store: SessionStore, streams: Sequence[StreamId] | None) -> Sequence[Entry]:
    if streams is None:
        return await store.notes_of_all((EpisodeRecorded.kind,))
    found: list[Entry] = []
    for stream in streams:
        with suppress(SessionNotFound):  # erased meanwhile
            found += await fact_writes.own_notes(store, stream, (EpisodeRecorded.kind,))
    return found


def _is_wanted(fact: Fact, wanted: Wanted) -> bool:
    sources = {entry_place(source)[0] for source in fact.sources}
    if wanted.agent is not None and fact.agent not in (None, wanted.agent):
        return False
    if wanted.sessions is not None and sources.isdisjoint(wanted.sessions):
        return False
    return not sources or not sources <= set(wanted.without)


def _session_of(each: Fact | Summary) -> str | None:
    return None if isinstance(each, Fact) else session_key(each.session)
