"""The memory of a namespace, which recalls texts of earlier sessions, facts and episodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from perdure.client.amounts import amount
from perdure.client.clock import Outside
from perdure.client.session_fields import entry_cursor_place, require_subject, require_text
from perdure.errors import WrongArgument
from perdure.memory.episodes import Episode, episodes_in
from perdure.memory.extraction import Extractor
from perdure.memory.knowledge import agent_subject
from perdure.memory.reports import ImportedFacts, ImportedFolder
from perdure.memory.scope import MemoryFilter, ScopeName
from perdure.models.embedders.protocol import Embedder, EmbedderName, check_embedder
from perdure.session.argument_checks import takes_all_declared
from perdure.session.clock import ms_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, IdempotencyKey, entry_place
from perdure.session.memory.facts import Fact
from perdure.session.memory.kinds import (
    EpisodeRecorded,
    FactRemembered,
    FactsCaptured,
    FactsDue,
    SaidBy,
)
from perdure.stores.access.lazy_modules import Later
from perdure.stores.session_store import SessionStore

if TYPE_CHECKING:
    from perdure.client.memory import capture as capturing
    from perdure.client.memory import (
        embedding,
        fact_lines,
        fact_writes,
        knowledge,
        recall_query,
        statements,
    )
    from perdure.engine import episodes as noted
    from perdure.memory import hits
else:
    hits = Later("perdure.memory.hits")
    noted = Later("perdure.engine.episodes")
    capturing = Later("perdure.client.memory.capture")
    embedding = Later("perdure.client.memory.embedding")
    fact_lines = Later("perdure.client.memory.fact_lines")
    fact_writes = Later("perdure.client.memory.fact_writes")
    knowledge = Later("perdure.client.memory.knowledge")
    recall_query = Later("perdure.client.memory.recall_query")
    statements = Later("perdure.client.memory.statements")

Source = Entry | str
"""An entry that a fact comes from, or its id."""

_EPISODE_KINDS = (EpisodeRecorded.kind, FactsDue.kind, FactsCaptured.kind)
"""Kinds of the entries that episodes are read from."""

T = TypeVar("T", Fact, Episode)

RECALLED = 10
"""Maximum number of hits that a recall returns by default."""


@takes_all_declared
class Memory:
    """The stored memory of a namespace. `Store.memory` makes it.

    If `subject` names a person, a call covers this person's data. If `subject` is None, a call
    covers only data without a subject. With `agent`, a call covers only the data of this agent.
    ``scope="agent"`` covers one agent for every subject; ``scope="namespace"`` covers everything.
    """

    def __init__(
        self,
        backend: SessionStore,
        outside: Outside,
        embedder: Embedder | EmbedderName | None = None,
    ) -> None:
        self.backend = backend
        self.outside = outside
        self.embedder = embedder

    async def recall(  # noqa: PLR0913 - each is an option of its own
        self,
        question: str,
        *,
        limit: int = RECALLED,
        subject: str | None = None,
        agent: str | None = None,
        scope: ScopeName = "subject",
        sessions: Sequence[str] | None = None,
        without: Sequence[str] = (),
        knowledge_of: str | None = None,
        kinds: Sequence[hits.RecallKind] = ("text", "episode", "fact"),
    ) -> list[hits.MemoryHit]:
        """Return the texts and facts that match `question`, best first (see docs/guides/memory.md).

        Finds messages of users, assistants and tools on all branches, summaries of episodes, and
        facts that are true now; `kinds` selects among these. The score of a text also depends on
        the words near the text and, with an embedder (`with_embedder`), on the meaning. With
        `sessions`, only these sessions and the facts from them are searched; `without` excludes
        sessions. With `agent`, only this agent's sessions and facts are searched; the scope "agent"
        covers every subject. `scope` "namespace" searches all subjects. `knowledge_of` adds the
        knowledge folders of an agent, and excludes facts of other agents. numpy (extra ``memory``)
        makes recalls in a large store several times faster, with the same hits.
        Raises: SearchIndexDamaged; Unsupported; EmbedderUnavailable; ConfigError if the embedder is
        not set up; ValueError if `limit` is negative. Raises WrongArgument for an empty question,
        for a `subject` with another scope than "subject", or for the scope "agent" without `agent`.
        """
        amount("limit", limit)
        require_text("knowledge_of", knowledge_of)
        within = _scope(subject, agent, scope)
        wanted = statements.Wanted(kinds, within, sessions, without, knowledge_of)
        now = self.outside.clock.now_ms()
        return await recall_query.recall_in(
            self.backend, self.embedder, question, wanted, limit, now=now
        )

    def with_embedder(self, embedder: Embedder | EmbedderName | None) -> Memory:
        """Return this memory with an embedder: its recalls also find texts with similar meaning.

        The embedder is ``static:FOLDER``, ``minilm:FOLDER``, PROVIDER:MODEL, or an object with
        `model` and the async method `embed`. None: no embedder. Raises: ConfigError; WrongArgument.
        """
        if embedder is not None:
            check_embedder(embedder)
        return Memory(self.backend, self.outside, embedder)

    async def embed(self, *, is_only: bool = False) -> int:
        """Compute the missing vectors of all texts with the embedder; return their number.

        Recalls and turns continue during the call. Call `embed` after you change the embedder or
        import sessions. After a kill, a new call continues. `is_only` removes the vectors of other
        embedders. Durable: each batch is stored before the next begins. Raises:
        EmbedderUnavailable; ConfigError; WrongArgument without an embedder; Unsupported in a store
        of session files; StoreReadOnly; StoreFull.
        """
        return await embedding.embed_all(self.backend, self.embedder, is_only=is_only)

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
        idempotency_key: IdempotencyKey | None = None,
    ) -> Fact:
        """Store a fact about `subject` (default: the subject of its `source`).

        `source` are the entries (or ids) that state the fact: if all are erased, so is the fact.
        `agent` limits the fact to one agent. The fact is true from `valid_from` until `valid_to`; a
        time without a zone is local. If a stored fact has the same text, agent, `said_by` and
        times, that fact gets `source` and is returned. A repeated call with the same
        `idempotency_key` returns the first call's fact. Durable: the fact is stored. Raises:
        SecretPasted if the text looks like a credential; EntryNotFound if a source does not exist;
        WrongArgument; LimitExceeded; IdempotencyMismatch; Unsupported in a store of session files.
        """
        require_subject(subject)
        return await fact_writes.remember_once(
            self.backend,
            self.outside,
            _new_fact(text, source, said_by, valid_from, valid_to, agent=agent),
            subject,
            idempotency_key,
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
        idempotency_key: IdempotencyKey | None = None,
    ) -> Fact:
        """Replace the text of a fact; `Fact.history` contains the earlier text.

        Without `source`, the sources do not change; the other arguments describe the new text.
        Durable: everything is stored on return. Raises: FactNotFound; the errors of `remember`.
        """
        return await fact_writes.correct(
            self.backend,
            self.outside,
            EntryId(fact_id),
            _new_fact(text, source, said_by, valid_from, valid_to),
            idempotency_key,
        )

    async def forget(self, fact_id: str, *, by: str | None = None) -> None:
        """End a fact, and permanently erase its text and the text of earlier versions.

        Forgetting cannot be undone; backups and exports do not change. The certificate of the
        erasure contains `by`. Durable: see `Store.erase`. Raises: FactNotFound.
        """
        await fact_writes.forget(self.backend, self.outside, EntryId(fact_id), by)

    async def fact(self, fact_id: str) -> Fact:
        """Return one fact, even if it is no longer valid. Raises: FactNotFound."""
        return await fact_writes.find_fact(self.backend, EntryId(fact_id))

    async def facts(
        self,
        *,
        subject: str | None = None,
        agent: str | None = None,
        scope: ScopeName = "subject",
        include_past: bool = False,
        limit: int | None = None,
        after: Fact | str | None = None,
    ) -> list[Fact]:
        """List the facts of a scope that are valid now, newest first.

        `include_past` adds facts that were or will be valid. Forgotten facts are never listed.
        `after` is a fact or its `cursor`; the list begins after this fact.
        Raises: ValueError when `limit` is negative; WrongArgument for scope "agent" without agent.
        """
        amount("limit", limit)
        within = _scope(subject, agent, scope)
        now = self.outside.clock.now_ms()
        found = await fact_writes.facts_in(self.backend, within)
        found = [fact for fact in found if include_past or fact.is_valid_at(now)]
        return _page(found, after, limit, "fact", lambda fact: (fact.at, *entry_place(fact.id)))

    async def capture(self, episode: Episode, extractor: Extractor) -> list[Fact]:
        """Store the facts that `extractor` finds in `episode`; return the new facts.

        The facts get the episode's subject and agent; their sources are entries of the episode. A
        fact is skipped if it is known, was forgotten, or looks like a credential. A repeated call,
        also after a crash, stores no fact twice. `ModelExtractor` asks a model. Durable: every fact
        is stored on return. Raises: the errors of `extractor`; WrongArgument for a fact without a
        source in the episode; Unsupported in a store of session files.
        """
        return await capturing.capture(self.backend, self.outside, episode, extractor)

    async def import_folder(
        self,
        folder: str | os.PathLike[str],
        *,
        subject: str | None = None,
        agent: str | None = None,
    ) -> ImportedFolder:
        """Index the Markdown and text files below `folder`, so that `recall` finds their passages.

        The passages belong to `subject`, or to the agent `agent` (for every subject). A repeated
        call indexes new and changed files, and erases the passages of deleted files. Links in the
        folder are not followed; `ImportedFolder.problems` lists unreadable files. Durable: every
        file is stored when this returns. Raises: WrongArgument for a folder that cannot be read,
        and for `subject` with `agent`; Unsupported in a store of session files.
        """
        owner = _owner(subject, agent)
        return await knowledge.index_folder(self.backend, self.outside, Path(folder), owner)

    async def import_facts(
        self,
        file: str | os.PathLike[str],
        *,
        subject: str | None = None,
        agent: str | None = None,
    ) -> ImportedFacts:
        """Remember the facts of a file of JSON lines: text, subject, agent, from, to.

        `subject` and `agent` are the defaults of the lines. Facts that are already stored are not
        stored again. Invalid lines do not stop the import; `ImportedFacts.problems` lists them.
        Durable: all facts are stored when this returns. Raises: FormatError if the file cannot be
        read; LimitExceeded if it is too large; Unsupported in a store of session files.
        """
        require_subject(subject)
        return await fact_lines.import_lines(
            self.backend, self.outside, Path(file), subject=subject, agent=agent
        )

    async def index(self) -> int:
        """Record the episodes that are missing; return the number of recorded episodes.

        An imported session gets an episode up to its newest entry, and another when it has grown. A
        session that ended without an episode gets one. Durable: recorded episodes are stored.
        """
        store, clock = self.backend, self.outside.clock
        return await noted.record_open_ends(store, clock) + await noted.record_imports(store, clock)

    async def episodes(
        self,
        *,
        subject: str | None = None,
        agent: str | None = None,
        scope: ScopeName = "subject",
        session: str | None = None,
        limit: int | None = 50,
        before: datetime | None = None,
        after: Episode | str | None = None,
    ) -> list[Episode]:
        """List the episodes of a scope; the episode that ended last comes first.

        If `session` is given, all its episodes are listed, whatever the subject of the session.
        `before` selects episodes that ended earlier. `after` is an episode or its `cursor`; the
        list begins after this episode. Raises: SessionNotFound; ValueError if `limit` is negative;
        WrongArgument for a bad scope.
        """
        amount("limit", limit)
        within = _scope(subject, agent, scope)
        await noted.record_open_ends(self.backend, self.outside.clock)
        found = await _recorded(self.backend, within, session)
        if before is not None:
            found = [episode for episode in found if episode.ended_at < ms_of(before)]
        return _page(found, after, limit, "episode", lambda it: (it.ended_at, it.session, it.last))


def _page(
    found: list[T],
    after: T | str | None,
    limit: int | None,
    listed: str,
    place: Callable[[T], tuple[int, str, int]],
) -> list[T]:
    """Return the first `limit` items of `found` that follow `after`, the latest first."""
    if after is not None:
        cursor = after if isinstance(after, str) else after.cursor
        behind = entry_cursor_place(cursor, listed)
        found = [each for each in found if place(each) < behind]
    return sorted(found, key=place, reverse=True)[:limit]


def _new_fact(
    text: str,
    source: Source | Sequence[Source] | None,
    said_by: SaidBy,
    valid_from: datetime | None,
    valid_to: datetime | None,
    *,
    agent: str | None = None,
) -> FactRemembered:
    return FactRemembered(
        text=text,
        agent=agent,
        sources=fact_writes.source_ids(source),
        said_by=said_by,
        valid_from=None if valid_from is None else ms_of(valid_from),
        valid_to=None if valid_to is None else ms_of(valid_to),
    )


async def _recorded(
    store: SessionStore, within: MemoryFilter, session: str | None
) -> list[Episode]:
    """Return the episodes of `session`, whatever its subject, or else the episodes in `within`."""
    if session is None:
        entries = await store.notes_of_all(_EPISODE_KINDS)
        chosen = within.subject if within.name == "subject" else None
        listed = await store.sessions(limit=None, scope="all", subject=chosen)
        infos = {info.id: info for info in listed}
        return [each for each in episodes_in(entries, infos) if within.covers(each)]
    entries = await fact_writes.own_notes(store, session, _EPISODE_KINDS)
    infos = {each.stream: (await store.state(each.stream)).info for each in entries}
    found = episodes_in(entries, infos)
    return [each for each in found if within.agent in (None, each.agent)]


def _owner(subject: str | None, agent: str | None) -> str | None:
    """Return the subject under which the knowledge of `subject` or of `agent` is stored."""
    require_subject(subject)
    require_text("agent", agent)
    if subject is not None and agent is not None:
        raise WrongArgument("knowledge belongs to a subject or to an agent", argument="agent")
    return subject if agent is None else agent_subject(agent)


def _scope(subject: str | None, agent: str | None, scope: ScopeName) -> MemoryFilter:
    require_subject(subject)
    require_text("agent", agent)
    if scope == "agent" and agent is None:
        raise WrongArgument('scope="agent" needs an agent', argument="agent")
    if scope != "subject" and subject is not None:
        raise WrongArgument(f'scope="{scope}" covers every subject', argument="subject")
    return MemoryFilter(subject, agent, scope)
