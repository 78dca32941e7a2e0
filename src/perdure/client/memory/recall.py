"""A recall that works without vectors if its embedder fails."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from perdure.client.memory.handle import Memory
from perdure.errors import ConfigError, EmbedderUnavailable, Unsupported
from perdure.memory.hits import RECALL_KINDS, MemoryHit, RecallKind
from perdure.memory.scope import ScopeName


class RecalledHits(NamedTuple):
    """The hits of a recall, and why the embedder failed; None if it did not fail."""

    hits: list[MemoryHit]
    problem: str | None


async def recall_anyway(  # noqa: PLR0913 - as Memory.recall
    memory: Memory,
    question: str,
    *,
    limit: int,
    subject: str | None = None,
    agent: str | None = None,
    scope: ScopeName = "subject",
    without: Collection[str] = (),
    knowledge_of: str | None = None,
    kinds: Sequence[RecallKind] = RECALL_KINDS,
) -> RecalledHits:
    """Recall, but only by words if the embedder is down or not set up, or the store has no vectors.

    Raises: the errors of ``Memory.recall`` for a memory without an embedder.
    """

    async def recalled(by: Memory) -> list[MemoryHit]:
        return await by.recall(
            question,
            limit=limit,
            subject=subject,
            agent=agent,
            scope=scope,
            without=list(without),
            knowledge_of=knowledge_of,
            kinds=kinds,
        )

    try:
        return RecalledHits(await recalled(memory), None)
    except (EmbedderUnavailable, ConfigError, Unsupported) as error:
        hits = await recalled(memory.with_embedder(None))
        return RecalledHits(hits, str(error))
