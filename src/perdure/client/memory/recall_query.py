"""Search a store: return the texts, summaries and facts that match a question best."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache

from perdure.client.memory import embedding, knowledge
from perdure.client.memory.statements import Wanted, statements_in
from perdure.errors import WrongArgument
from perdure.memory.episodes import agent_in
from perdure.memory.hits import MemoryHit, hit_of
from perdure.memory.knowledge import agent_subject
from perdure.memory.question import Question, question_of
from perdure.memory.ranking import Having, Scope, Size, SumsOf, ranking
from perdure.memory.sums import PlainSums
from perdure.models.embedders.protocol import Embedder, EmbedderName
from perdure.session.entries import Entry
from perdure.session.notes import AgentBound, SessionStarted
from perdure.stores.search.index_keys import session_key, subject_key
from perdure.stores.search.recall_plan import Asked
from perdure.stores.session_store import SessionStore


async def recall_in(
    store: SessionStore,
    embedder: Embedder | EmbedderName | None,
    text: str,
    wanted: Wanted,
    limit: int,
    *,
    now: int,
) -> list[MemoryHit]:
    """Implement ``Memory.recall`` for the question `text` at `now`. Units: Unix milliseconds.

    In a store of session files, a recall finds a summary only if it also finds a text of the same
    session.
    """
    question, vectors = _asked(text, now), None
    if embedder is not None:
        asked = await embedding.resolved(embedder)
        vectors = embedding.TextVectors(store, asked, embedding.QUESTION_TIMEOUT_S)
        meaning = await vectors.meaning_after_new_texts(text)
        question = question._replace(meaning=meaning)
    is_indexed = store.capabilities.erase  # else each file would be read for its summaries
    streams = None if is_indexed else ()
    statements = await statements_in(store, question, wanted, now, vectors, streams=streams)
    found: list[MemoryHit] = []
    if set(wanted.kinds).isdisjoint(("text", "episode")):
        statements.rank_alone()
    else:
        scope, told = await _allowed(store, wanted), list[tuple[Size, Sequence[Having]]]()

        def beside(size: Size, having: Sequence[Having], allows: Callable[[str], bool]) -> None:
            told.append((size, having))
            statements.beside(size, having, allows)

        rank = ranking(question, scope, limit, _sums(), beside=beside)
        model = None if question.meaning is None else question.meaning.model
        texts = await store.search.recall(Asked(question.words, rank, model))
        found += [hit_of(question, each) for each in texts if "text" in wanted.kinds]
        if not is_indexed and told:
            streams = list(dict.fromkeys(each.found.stream for each in texts))
            statements = await statements_in(store, question, wanted, now, None, streams=streams)
            statements.beside(*told[-1], lambda _session: True)
    found += statements.hits(limit)
    return sorted(found, key=lambda hit: -hit.score)[:limit]


def _asked(text: str, now: int) -> Question:
    asked = question_of(text, now)
    if not asked.names:
        raise WrongArgument(
            f"the question holds no word to look for: {text!r:.60}", argument="question"
        )
    return asked


async def _sessions_of(store: SessionStore, agent: str) -> frozenset[str]:
    """Return the sessions of `agent`, and the sessions with the knowledge of `agent`.

    The agent of a session is its newest agent.
    """
    notes = await store.notes_of_all((SessionStarted.kind, AgentBound.kind))
    by_session: dict[str, list[Entry]] = {}
    for note in notes:
        by_session.setdefault(note.stream, []).append(note)
    own = frozenset(name for name, found in by_session.items() if agent_in(found) == agent)
    return own | await knowledge.files_of(store, agent_subject(agent))


async def _allowed(store: SessionStore, wanted: Wanted) -> Scope:
    """Return the sessions that the recall is allowed to search."""
    within = wanted.within
    only = None if wanted.sessions is None else frozenset(wanted.sessions)
    subjects: tuple[str | None, ...] = (within.subject,)
    if within.agent is not None:
        own = await _sessions_of(store, within.agent)
        only = own if only is None else only & own
    if (learned := wanted.agent or within.agent) is not None:
        subjects += (agent_subject(learned),)
    return Scope(
        subjects=tuple(map(subject_key, subjects)) if within.name == "subject" else None,
        only=None if only is None else tuple(map(session_key, only)),
        but=tuple(map(session_key, wanted.without)),
    )


@cache
def _sums() -> SumsOf:
    """Return the class that computes sums, with numpy if it is installed."""
    try:
        return importlib.import_module("perdure.memory.arrays").ArraySums
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        return PlainSums
