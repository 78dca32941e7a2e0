"""Capture facts from episodes with an extractor, for example one that asks a model."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Annotated, Any, cast

from msgspec import Meta

from perdure.bounds.callbacks import run_callback
from perdure.client.clock import Outside
from perdure.client.memory.fact_writes import facts_in, remember
from perdure.errors import EntryNotFound, LimitExceeded, SecretPasted, WrongArgument
from perdure.memory.episodes import Episode
from perdure.memory.extraction import ExtractedFact, Extractor, extraction_request, facts_in_answer
from perdure.memory.scope import MemoryFilter
from perdure.models.catalogue import require_model_name
from perdure.models.protocol import ModelClient, streaming
from perdure.models.stream import AnswerBuilder
from perdure.session.argument_checks import takes_all_declared
from perdure.session.entries import Entry
from perdure.session.memory.facts import Fact
from perdure.session.memory.kinds import FactRemembered
from perdure.session.messages import MESSAGE, Usage
from perdure.stores.session_store import SessionStore

_log = logging.getLogger(__name__)

LEFT_OUT = (SecretPasted, EntryNotFound, LimitExceeded)
"""If storing a fact raises one of these errors, only this fact is skipped."""


@takes_all_declared
class ModelExtractor:
    """Asks a model to list the facts in an episode, for `Memory.capture`.

    `client` is a model client; `model` is the model that it calls, as ``provider:name``.
    `usage` is the token usage of the newest call; None before the first answer.
    """

    def __init__(
        self,
        client: ModelClient,
        model: str,
        *,
        max_output_tokens: Annotated[int, Meta(ge=1)] = 2_000,
    ) -> None:
        require_model_name(model)
        self._client = client
        self._model = model
        self._max_output_tokens = max_output_tokens
        self.usage: Usage | None = None

    def __repr__(self) -> str:
        return f"<ModelExtractor {self._model!r}>"

    async def extract(
        self, episode: Episode, entries: Sequence[Entry], known: Sequence[Fact]
    ) -> list[ExtractedFact]:
        """Return the facts that the model finds in `entries`. Raises: ModelError."""
        request = extraction_request(self._model, entries, known, self._max_output_tokens)
        builder = AnswerBuilder(self._model)
        async with streaming(self._client, request) as deltas:
            async for delta in deltas:
                builder.add(delta)
        answer = builder.build()
        self.usage = answer.usage
        return facts_in_answer(self._model, answer.text, entries)


async def capture(
    store: SessionStore, outside: Outside, episode: Episode, extractor: Extractor
) -> list[Fact]:
    """Store the facts that `extractor` finds in `episode`.

    Raises: the errors of `Memory.capture`.
    """
    stored: list[Fact] = []
    for new in await found_facts(store, episode, extractor, episode.agent):
        key = f"capture:{hashlib.sha256(f'{episode.id} {new.text}'.encode()).hexdigest()}"
        try:
            fact = await remember(store, outside, new, episode.subject, key=key)
        except LEFT_OUT as error:
            _log.warning("a fact was not captured: %s", error)
            continue
        stored.append(fact)
    return stored


async def found_facts(
    store: SessionStore, episode: Episode, extractor: Any, agent: str | None
) -> list[FactRemembered]:
    """Return the facts of `agent` that `extractor` finds in `episode`, except known facts.

    Raises: the errors of `Memory.capture`.
    """
    entries = [
        entry
        for entry in await store.entries(
            episode.session, episode.first - 1, episode.last - episode.first + 1
        )
        if entry.kind == MESSAGE and not entry.is_erased
    ]
    if not entries:
        return []
    of_subject = await facts_in(store, MemoryFilter(episode.subject))
    known = [fact for fact in of_subject if fact.agent in (None, agent)]
    extract = getattr(extractor, "extract", extractor)
    found = await run_callback(extract, episode, entries, known)
    allowed, texts = {entry.id for entry in entries}, {fact.text for fact in known}
    new: dict[str, FactRemembered] = {}
    for each in cast("Sequence[ExtractedFact]", found):
        if not each.sources or not allowed.issuperset(each.sources):
            raise WrongArgument(
                "an extracted fact needs sources in its episode", argument="sources"
            )
        if each.text not in texts:
            new[each.text] = FactRemembered(each.text, agent, each.sources, each.said_by)
    return list(new.values())
