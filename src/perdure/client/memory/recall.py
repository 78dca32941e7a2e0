"""A recall that works without vectors if its embedder fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Required, TypedDict, Unpack

from perdure.client.memory.handle import Memory
from perdure.errors import ConfigError, EmbedderUnavailable, Unsupported
from perdure.memory.hits import MemoryHit, RecallKind
from perdure.memory.scope import ScopeName


class RecallOptions(TypedDict, total=False):
    """The arguments of ``Memory.recall``."""

    limit: Required[int]
    subject: str | None
    agent: str | None
    scope: ScopeName
    without: Sequence[str]
    knowledge_of: str | None
    kinds: Sequence[RecallKind]


async def recall_anyway(
    memory: Memory, question: str, **options: Unpack[RecallOptions]
) -> tuple[list[MemoryHit], str | None]:
    """Recall; also return the error of the embedder, or None.

    If the embedder is down or not set up, or if the store has no vectors, the recall compares only
    words.

    Raises: the errors of ``Memory.recall`` for a memory without an embedder.
    """
    try:
        return await memory.recall(question, **options), None
    except (EmbedderUnavailable, ConfigError, Unsupported) as error:
        return await memory.with_embedder(None).recall(question, **options), str(error)
