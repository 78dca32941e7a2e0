"""Extracts facts from sessions that ended, in the background, once for each end of a session.

The commit that ends a session records that facts are due; the commit of the facts records that the
facts are captured. A crash between the two commits therefore loses no facts, and stores no fact
twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from perdure.client.agents.agent import Agent
from perdure.client.agents.turn_config import guarded_cost
from perdure.client.conversation.authority import authority_of, is_in_force
from perdure.client.store import Store
from perdure.engine.turns.lease import Claim, LeaseHolder, leading
from perdure.engine.turns.recovery import spent_in
from perdure.errors import (
    ConfigError,
    Erased,
    HeadConflict,
    LeaseHeld,
    PerdureError,
    SessionNotFound,
    StoreError,
)
from perdure.memory.episodes import Episode
from perdure.models.prices import Cost, in_dollars
from perdure.models.protocol import ModelClient
from perdure.secrets.mask import log_failure, mask_secrets
from perdure.session.codec import new_side, readable
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import StreamId, entry_id
from perdure.session.memory.kinds import FactRemembered, FactsCaptured, FactsDue
from perdure.session.memory.open_entries import unclosed
from perdure.session.messages import Usage
from perdure.stores.access.lazy_modules import Later
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore

if TYPE_CHECKING:
    from perdure.client.memory import capture, fact_writes
else:
    capture = Later("perdure.client.memory.capture")
    fact_writes = Later("perdure.client.memory.fact_writes")

_log = logging.getLogger(__name__)

_LONGEST_S = 600.0
"""Time limit for extracting one episode's facts: closing a runtime waits for this work."""

_PROBLEM = 500
"""Maximum number of stored characters of the reason why an extraction failed."""


class ExtractionModels(msgspec.Struct, frozen=True):
    """The parts of a runtime that extraction uses: model clients for sessions, prices, budgets."""

    client: Callable[[Agent, StreamId], ModelClient]
    cost: Cost
    limit_of: Callable[[Agent], int]


class Extraction:
    """Runs the extractors of the agents of one runtime, one episode at a time.

    Episodes of agents that the runtime does not know are skipped; another runtime that knows the
    agents extracts their facts.
    """

    def __init__(
        self, store: Store, claim: Callable[[StreamId], Claim], models: ExtractionModels
    ) -> None:
        self._store = store
        self._claim = claim
        self._models = models
        self._agents: dict[str, Agent] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_asked = False

    def know(self, agent: Agent) -> None:
        """Register `agent` if it has an extractor other than "program".

        The extractor of a registered agent runs after each session of the agent ends.
        """
        extractor = None if agent.memory is None else agent.memory.extractor
        if extractor is not None and extractor != "program":
            self._agents[agent.id] = agent

    def follow(self, agent: Agent) -> None:
        """Register `agent`, and extract the facts that are due."""
        self.know(agent)
        self.wake()

    def wake(self) -> None:
        """Extract the facts that are due, in the background."""
        if not self._agents:
            return
        self._is_asked = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def settle(self) -> None:
        """Extract all facts that are due, and wait until this is done."""
        self.wake()
        while self._task is not None and not self._task.done():
            await asyncio.wait((self._task,))

    async def stop(self) -> None:
        """Stop immediately; facts that were not captured stay due."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    # ------------------------------------------------------------ inside

    async def _run(self) -> None:
        while self._is_asked:
            self._is_asked = False
            try:
                for due in await self._store.backend.open_of_all(FactsDue.kind):
                    with suppress(LeaseHeld, SessionNotFound, Erased):  # another process has it
                        await self._extract_due(due)
            except PerdureError as error:
                log_failure(_log, error, "facts were not captured; they stay due")

    async def _extract_due(self, due: Entry) -> None:
        """Run the extractor of `due`, if the entry `due` and the session's agent are in force."""
        body, store = readable(due), self._store.backend
        agent = self._agents.get(body.agent) if isinstance(body, FactsDue) else None
        if agent is None or not await is_in_force(store, due):
            return
        if (await authority_of(store, due.stream)).agent is not None:
            return
        episodes = await self._store.memory.episodes(session=due.stream, limit=None)
        episode = next((each for each in episodes if each.id == due.about), None)
        if episode is None:
            return
        subject = (await store.state(due.stream)).header.subject
        stream = await fact_writes.require_stream(store, self._store.outside, subject)
        async with leading(self._claim(stream)) as leadership:
            notes = await store.notes(due.stream, (FactsDue.kind, FactsCaptured.kind))
            if due.id in {each.id for each in unclosed(notes, FactsDue.kind)}:
                await self._capture(leadership, stream, due, episode, agent)

    async def _capture(
        self, leadership: LeaseHolder, stream: StreamId, due: Entry, episode: Episode, agent: Agent
    ) -> None:
        """Store the facts in `episode`, or the reason why there are none, in one commit."""
        store, outside = self._store.backend, self._store.outside
        found, outcome = await self._found(episode, agent)
        while True:
            kept = await _entries_of(store, found)
            head = (await store.state(stream)).head
            ids = tuple(entry_id(stream, head + 1 + n) for n in range(len(kept)))
            outcome = msgspec.structs.replace(outcome, facts=ids)
            captured = Write(stream=due.stream, entries=(new_side(outcome, due.id),))
            facts = Write(stream=stream, entries=tuple(new for _, new in kept), expected_head=head)
            commit = Commit(writes=(facts, captured), at=outside.clock.now_ms())
            with suppress(HeadConflict):  # another fact was remembered meanwhile
                await leadership.commit(commit)
                break
        for fact, (new, _) in zip(ids, kept, strict=True):
            with suppress(PerdureError):  # a source was erased meanwhile, and so is the fact
                await fact_writes.require_alive(store, outside, fact, new.sources)

    async def _found(
        self, episode: Episode, agent: Agent
    ) -> tuple[list[FactRemembered], FactsCaptured]:
        """Return the facts in `episode`, and the outcome of the extraction.

        If the extraction fails, the outcome contains the error.
        """
        assert agent.memory is not None
        extractor, asked = agent.memory.extractor, None
        model = agent.model if extractor == "model" else None
        try:
            if model is not None:
                await self._require_budget(episode, agent)
                client = self._models.client(agent, episode.session)
                extractor = asked = capture.ModelExtractor(client, model)
            async with asyncio.timeout(_LONGEST_S):
                store = self._store.backend
                found = await capture.found_facts(store, episode, extractor, agent.id)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - an extractor must not end the others
            log_failure(_log, error, "the extractor of agent %r failed", agent.id)
            text = str(error) if isinstance(error, PerdureError) else type(error).__name__
            problem = mask_secrets(text)[:_PROBLEM]
            return [], FactsCaptured(problem=problem, model=model, usage=self._usage(asked, model))
        return found, FactsCaptured(model=model, usage=self._usage(asked, model))

    def _usage(self, asked: capture.ModelExtractor | None, model: str | None) -> Usage | None:
        if asked is None or asked.usage is None or model is None:
            return None
        cost = guarded_cost(self._models.cost)(model, asked.usage)
        return msgspec.structs.replace(asked.usage, cost_microcents=cost)

    async def _require_budget(self, episode: Episode, agent: Agent) -> None:
        """Raises: ConfigError if the session has spent its budget."""
        limit = self._models.limit_of(agent)
        spent = (await spent_in(self._store.backend, episode.session)).cost_microcents
        if limit and spent >= limit:
            raise ConfigError(f"the session has spent its budget of {in_dollars(limit)}")


async def _entries_of(
    store: SessionStore, found: Sequence[FactRemembered]
) -> list[tuple[FactRemembered, NewEntry]]:
    """Return each fact that can be stored, with the entry that stores it."""
    kept: list[tuple[FactRemembered, NewEntry]] = []
    for new in found:
        try:
            kept.append((new, await fact_writes.fact_entry(store, new)))
        except capture.LEFT_OUT as error:
            _log.warning("a fact was not captured: %s", error)
    return kept
