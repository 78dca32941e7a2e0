"""The memory of a namespace: recall of earlier sessions, facts, and episodes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from perdure.client.amounts import amount
from perdure.client.clock import Outside
from perdure.client.session_fields import require_subject
from perdure.engine.episodes import record_imports, record_open_ends
from perdure.errors import WrongArgument
from perdure.memory.episodes import Episode, agent_in, episode_of
from perdure.memory.extraction import Extractor
from perdure.memory.hits import MemoryHit, hit_of
from perdure.memory.question import question_of
from perdure.memory.ranking import Scope, SumsOf, ranking
from perdure.memory.scope import MemoryFilter, ScopeName
from perdure.memory.sums import PlainSums
from perdure.session.argument_checks import takes_all_declared
from perdure.session.clock import ms_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.memory.facts import Fact
from perdure.session.memory.kinds import EpisodeRecorded, SaidBy
from perdure.session.notes import AgentBound, SessionStarted
from perdure.stores.access.lazy_modules import Later
from perdure.stores.search.index_keys import session_key, subject_key
from perdure.stores.session_store import SessionStore

if TYPE_CHECKING:
    from perdure.client.memory import capture as capturing
    from perdure.client.memory import fact_writes
else:
    capturing = Later("perdure.client.memory.capture")
    fact_writes = Later("perdure.client.memory.fact_writes")

Source = Entry | str
"""An entry that a fact comes from, or its id."""

RECALLED = 10
"""Default number of hits."""


@takes_all_declared
class Memory:
    """What is remembered in a namespace. `Store.memory` makes it.

    Scope: a call sees what belongs to `subject`, the person it is about; without one, only what
    has no subject. With `agent`, it sees only what belongs to that agent. ``scope="agent"`` covers
    one agent of every subject, ``scope="namespace"`` everything.
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
        agent: str | None = None,
        scope: ScopeName = "subject",
        sessions: Sequence[str] | None = None,
        without: Sequence[str] = (),
    ) -> list[MemoryHit]:
        """Return what earlier sessions say about `question`, best first; docs/guides/memory.md.

        Finds messages of users, assistants and tools on every branch; a text counts with its
        neighbours in the session. With `sessions` only those are searched, never those `without`.
        With `agent` only sessions of that agent are searched, with the scope "agent" those of every
        subject. `scope` "namespace" searches the sessions of all subjects. With numpy (extra
        ``memory``) a recall in a large store is several times faster; the hits are the same.
        Raises: SearchIndexDamaged; Unsupported; WrongArgument for an empty question, for a subject
        with a wider scope, and for the scope "agent" without an agent; ValueError when `limit` is
        negative.
        """
        amount("limit", limit)
        if scope != "subject" and subject is not None:
            raise WrongArgument(
                f'the scope "{scope}" recalls what belongs to every subject: leave out `subject`, '
                'or use the scope "subject"',
                argument="subject",
            )
        if scope == "agent" and agent is None:
            raise WrongArgument('the scope "agent" needs an `agent`', argument="agent")
        asked = question_of(question, self.outside.clock.now_ms())
        if not asked.names:
            raise WrongArgument(
                f"the question holds no word to look for: {question!r:.60}", argument="question"
            )
        among = None if sessions is None else frozenset(sessions)
        if agent is not None:
            own = await _sessions_of(self.backend, agent)
            among = own if among is None else among & own
        allowed = Scope(
            subjects=(subject_key(subject),) if scope == "subject" else None,
            only=None if among is None else tuple(map(session_key, among)),
            but=tuple(map(session_key, without)),
        )
        rank = ranking(asked, allowed, limit, _sums())
        found = await self.backend.search.recall(asked.words, rank)
        return [hit_of(asked, each) for each in found]

    def __repr__(self) -> str:
        return f"<Memory of namespace {self.backend.namespace!r}>"

    async def remember(
        self,
        text: str,
        *,
        subject: str | None = None,
        agent: str | None = None,
        source: Source | Sequence[Source] | None = None,
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
        said_by: SaidBy = "person",
        idempotency_key: str | None = None,
    ) -> Fact:
        """Store a fact about `subject`; without one, about the subject of its `source`.

        `source` are the entries that say so, or their ids: if all of them are erased, so is the
        fact. `agent` limits it to one agent. It is true from `valid_from` until `valid_to`; a time
        without a zone is local. Repeating a call with its `idempotency_key` returns the first fact.
        Durable: when this returns.
        Raises: SecretPasted for text that looks like a credential; EntryNotFound; WrongArgument;
        LimitExceeded; IdempotencyMismatch; Unsupported in a store of session files.
        """
        require_subject(subject)
        return await fact_writes.remember(
            self.backend,
            self.outside,
            fact_writes.NewFact(
                text=text,
                sources=fact_writes.source_ids(source),
                said_by=said_by,
                valid_from=None if valid_from is None else ms_of(valid_from),
                valid_to=None if valid_to is None else ms_of(valid_to),
            ),
            subject=subject,
            agent=agent,
            key=idempotency_key,
        )

    async def correct(
        self,
        fact_id: str,
        text: str,
        *,
        source: Source | Sequence[Source] | None = None,
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
        said_by: SaidBy = "person",
        idempotency_key: str | None = None,
    ) -> Fact:
        """Replace what the fact says; `Fact.history` keeps the earlier text.

        Without `source`, the sources stay; the other arguments are those of the new text.
        Durable: when this returns. Raises: FactNotFound; and as `remember`.
        """
        return await fact_writes.correct(
            self.backend,
            self.outside,
            EntryId(fact_id),
            fact_writes.NewFact(
                text=text,
                sources=fact_writes.source_ids(source),
                said_by=said_by,
                valid_from=None if valid_from is None else ms_of(valid_from),
                valid_to=None if valid_to is None else ms_of(valid_to),
            ),
            idempotency_key,
        )

    async def forget(self, fact_id: str, *, by: str | None = None) -> None:
        """End a fact and permanently erase its text, that of earlier versions too.

        `by` names the requester in the certificate (`Store.erasures`).
        Durable: as `Store.erase`. Raises: FactNotFound.
        """
        await fact_writes.forget(self.backend, self.outside, EntryId(fact_id), by)

    async def fact(self, fact_id: str) -> Fact:
        """Return one fact, also if it is no longer valid. Raises: FactNotFound."""
        return await fact_writes.find_fact(self.backend, EntryId(fact_id))

    async def facts(
        self,
        *,
        subject: str | None = None,
        agent: str | None = None,
        scope: ScopeName = "subject",
        include_past: bool = False,
        limit: int | None = None,
    ) -> list[Fact]:
        """List the facts of a scope that are valid now, newest first.

        `include_past` adds those that are not valid yet, or no longer. Forgotten facts are gone.
        Raises: ValueError when `limit` is negative; WrongArgument for a scope that lacks its agent.
        """
        amount("limit", limit)
        within = _scope(subject, agent, scope)
        now = self.outside.clock.now_ms()
        found = [
            fact
            for fact in await fact_writes.facts_in(self.backend, within)
            if include_past or fact.is_valid_at(now)
        ]
        found.sort(key=lambda fact: (fact.at, fact.id), reverse=True)
        return found[:limit]

    async def capture(self, episode: Episode, extractor: Extractor) -> list[Fact]:
        """Store the facts that `extractor` finds in `episode`; return the new ones.

        They belong to the episode's subject and agent, and come from its entries. A text that is
        known already, was forgotten, or looks like a credential is left out. A repeated call, also
        after a crash, stores no fact twice. `ModelExtractor` asks a model.
        Durable: each fact, when this returns. Raises: what `extractor` raises; WrongArgument for a
        fact without a source in the episode; Unsupported in a store of session files.
        """
        return await capturing.capture(self.backend, self.outside, episode, extractor)

    async def index(self) -> int:
        """Record the episodes that are missing; return their number.

        An imported session gets one up to its newest entry, and another one once it has grown. A
        session that ended without one gets its own. Durable: each, when this returns.
        """
        clock = self.outside.clock
        return await record_open_ends(self.backend, clock) + await record_imports(
            self.backend, clock
        )

    async def episodes(
        self,
        *,
        subject: str | None = None,
        agent: str | None = None,
        scope: ScopeName = "subject",
        session: str | None = None,
        limit: int | None = 50,
        before: datetime | None = None,
    ) -> list[Episode]:
        """List the episodes of a scope, the latest end first.

        With `session` those of that session, whatever its subject. `before` selects those that
        ended earlier. Raises: SessionNotFound; ValueError when `limit` is negative; WrongArgument.
        """
        amount("limit", limit)
        within = _scope(subject, agent, scope)
        await record_open_ends(self.backend, self.outside.clock)
        if session is None:
            entries = await self.backend.notes_of_all((EpisodeRecorded.kind,))
            chosen = subject if scope == "subject" else None
            listed = await self.backend.sessions(limit=None, scope="all", subject=chosen)
            infos = {info.id: info for info in listed}
        else:
            entries = await fact_writes.own_notes(self.backend, session, (EpisodeRecorded.kind,))
            infos = {each.stream: (await self.backend.state(each.stream)).info for each in entries}
        until = None if before is None else ms_of(before)
        found = [
            episode
            for entry in entries
            if (info := infos.get(entry.stream)) is not None
            and (episode := episode_of(entry, info)) is not None
            and (session is not None or within.covers(episode))
            and (agent is None or episode.agent == agent)
            and (until is None or episode.ended_at < until)
        ]
        found.sort(key=lambda each: (each.ended_at, each.session, each.last), reverse=True)
        return found[:limit]


async def _sessions_of(store: SessionStore, agent: str) -> frozenset[str]:
    """Return the sessions whose newest agent is `agent`."""
    notes = await store.notes_of_all((SessionStarted.kind, AgentBound.kind))
    by_session: dict[str, list[Entry]] = {}
    for note in notes:
        by_session.setdefault(note.stream, []).append(note)
    return frozenset(name for name, found in by_session.items() if agent_in(found) == agent)


@cache
def _sums() -> SumsOf:
    """Return the sums with numpy if it is installed."""
    try:
        return importlib.import_module("perdure.memory.arrays").ArraySums
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        return PlainSums


def _scope(subject: str | None, agent: str | None, scope: ScopeName) -> MemoryFilter:
    require_subject(subject)
    if scope == "agent" and agent is None:
        raise WrongArgument('scope="agent" needs an agent', argument="agent")
    if scope != "subject" and subject is not None:
        raise WrongArgument(f'scope="{scope}" covers every subject', argument="subject")
    return MemoryFilter(subject, agent, scope)
