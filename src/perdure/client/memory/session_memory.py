"""The working memory of a session: the texts and facts that are recalled for each turn."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from perdure.client.clock import Outside
from perdure.client.memory.handle import Memory
from perdure.client.memory.knowledge import FolderWatch
from perdure.client.memory.recall import recall_anyway
from perdure.engine.turns.config import MemoryConfig
from perdure.errors import (
    ConfigError,
    PerdureError,
    SessionError,
    StoreError,
    Unsupported,
    WrongArgument,
)
from perdure.memory.episodes import summary_of
from perdure.memory.hits import MemoryHit, Why
from perdure.memory.knowledge import agent_subject, source_of
from perdure.memory.ranking import MEANT
from perdure.models.embedders.protocol import Embedder
from perdure.secrets.mask import log_failure
from perdure.session.clock import minute
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.memory.facts import Fact
from perdure.session.memory.kinds import ContextRecalled, RecalledText, RecallReason
from perdure.session.search.searchable import searchable_of
from perdure.stores.access.lazy_modules import Later
from perdure.stores.session_store import SessionStore

if TYPE_CHECKING:
    from perdure.client.memory import embedding
else:
    embedding = Later("perdure.client.memory.embedding")

T = TypeVar("T")

_log = logging.getLogger(__name__)

_QUESTION = 2_000
"""A recall uses at most this many characters, from the start of the message, as its question."""


class SessionMemory:
    """Implements ``engine.turns.environment.WorkingMemory`` for one session and its subject."""

    def __init__(
        self,
        backend: SessionStore,
        outside: Outside,
        session: StreamId,
        config: MemoryConfig,
        *,
        agent: str,
        working_dir: Path,
        on_embedder: Callable[[Embedder, int], None] = lambda _embedder, _dimension: None,
    ) -> None:
        self._backend = backend
        self._outside = outside
        self._session = session
        self._agent = agent
        self._config = config
        self._on_embedder = on_embedder
        self._folders = FolderWatch(backend, outside, config.knowledge, working_dir)
        self._memory = Memory(backend, outside)
        self.max_tokens = config.max_working_tokens

    async def recall(self, message: str) -> ContextRecalled | None:
        """Return texts of earlier sessions and facts that match `message`; None if there are none.

        A failed recall does not fail the turn: the result contains the error.
        """
        question, problems = message[:_QUESTION], list[str]()
        if self._config.knowledge:
            problems += await self._tried(self._follow(), problems)
        found = await self._tried(self._embedder(), problems)
        embedder = found[0] if found else None
        texts = await self._tried(self._texts(question, embedder, problems), problems)
        near = None if problems else embedder
        facts = await self._tried(self._facts(question, near, problems), problems)
        if embedder is not None and embedder.dimension:
            self._on_embedder(embedder, embedder.dimension)
        problem = "; ".join(problems) or None
        if not (texts or facts or problem):
            return None
        return ContextRecalled(self._outside.random(8).hex(), tuple(texts), tuple(facts), problem)

    async def _tried(self, recall: Awaitable[list[T]], problems: list[str]) -> list[T]:
        try:
            return await recall
        except (WrongArgument, Unsupported):
            return []  # the message holds no word, or the store has no such memory
        except (StoreError, SessionError, ConfigError) as error:
            _problem(str(error), problems)
            return []
        except Exception as error:  # noqa: BLE001 - a turn does not fail with its memory
            log_failure(_log, error, "a recall failed")
            problems.append(f"a recall failed ({type(error).__name__})")
            return []

    async def _subject(self) -> str | None:
        return (await self._backend.state(self._session)).header.subject

    async def texts(self, recalled: ContextRecalled) -> list[str]:
        """Return the recalled texts, facts first, omitting texts that no longer exist."""
        found: list[str] = []
        for fact in recalled.facts:
            with suppress(PerdureError):  # forgotten meanwhile
                found.append(_fact_text(await self._memory.fact(fact)))
        for text in recalled.texts:
            with suppress(PerdureError):  # erased meanwhile
                entry = await self._backend.entry(text.session, text.entry)
                found += _said_texts(entry, text)
        return found

    async def _follow(self) -> list[str]:
        """Index the changes in the knowledge folders; return the problems that occurred."""
        return await self._folders.follow(agent_subject(self._agent))

    async def _embedder(self) -> list[embedding.MeasuredEmbedder]:
        """Return a list with the agent's embedder; the list is empty if the agent uses none."""
        chosen = self._config.embedder
        if chosen is None or chosen == "program":
            return []
        if not (self._config.episodic_top_k or self._config.semantic_top_k):
            return []
        found = await embedding.resolved(chosen)
        return [embedding.MeasuredEmbedder(found)]

    async def _texts(
        self, question: str, embedder: Embedder | None, problems: list[str]
    ) -> list[RecalledText]:
        if not self._config.episodic_top_k:
            return []
        hits, problem = await recall_anyway(
            self._memory.with_embedder(embedder),
            question,
            limit=self._config.episodic_top_k,
            subject=await self._subject(),
            without=[self._session],
            knowledge_of=self._agent,
            kinds=("text", "episode"),
        )
        if problem is not None:
            _problem(problem, problems)
        return [_reference(hit) for hit in hits if _is_about(hit)]

    async def _facts(
        self, question: str, embedder: Embedder | None, problems: list[str]
    ) -> list[EntryId]:
        """Return the facts that match the question, best first, then the newest other facts."""
        limit, subject = self._config.semantic_top_k, await self._subject()
        if not limit:
            return []
        best: list[EntryId] = []
        with suppress(WrongArgument):  # the message holds no word
            hits, problem = await recall_anyway(
                self._memory.with_embedder(embedder),
                question,
                limit=limit,
                subject=subject,
                knowledge_of=self._agent,
                kinds=("fact",),
            )
            best = [hit.entry_id for hit in hits]
            if problem is not None:
                _problem(problem, problems)
        if len(best) < limit:
            newest = await self._memory.facts(subject=subject)
            best += [fact.id for fact in newest if fact.agent in (None, self._agent)]
        return list(dict.fromkeys(best))[:limit]


def _problem(problem: str, problems: list[str]) -> None:
    _log.warning("not all was recalled for a turn: %s", problem)
    problems.append(problem)


def _is_about(hit: MemoryHit) -> bool:
    why = hit.why
    return bool(why.terms or why.neighbours or why.date) or (why.vector or 0) >= MEANT


def _reference(hit: MemoryHit) -> RecalledText:
    end = hit.start + len(hit.text) if hit.is_passage else None
    return RecalledText(hit.session_id, hit.entry_id, hit.start, end, hit.score, _reasons(hit.why))


def _reasons(why: Why) -> tuple[RecallReason, ...]:
    found: dict[RecallReason, object] = {
        "words": why.terms,
        "neighbours": why.neighbours,
        "speaker": why.speaker,
        "date": why.date,
        "time": why.time,
        "vector": why.vector,
    }
    return tuple(reason for reason, value in found.items() if value)


def _fact_text(fact: Fact) -> str:
    kind = "Fact from a file" if fact.is_received else "Fact"
    return f"{kind}, {minute(fact.at)}: {fact.text}"


def _said_texts(entry: Entry, recalled: RecalledText) -> list[str]:
    if (summary := summary_of(entry)) is not None:
        text = summary.text[recalled.start : recalled.end]
        return [f"{minute(summary.at)}, summary of a session: {text}"]
    found = searchable_of(entry)
    if found is None:
        return []
    text = found.text[recalled.start : recalled.end]
    if (source := source_of(entry)) is not None:
        place = ", ".join(filter(None, (source.path, source.heading)))
        return [f"From the file {place}: {text}"]
    at = entry.at if found.said_at is None else found.said_at
    who = found.author or found.role
    return [f"{minute(at)}, {who}: {text}"]
