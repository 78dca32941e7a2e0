"""The vectors of a store's texts: made by an embedder, in the order of the log.

A recall gives the next texts in the order of the log their vectors. The other texts get theirs in
the background (``backlog``) or by `Memory.embed`. Until then they are recalled by their words.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from perdure.errors import ConfigError, StoreFull, StoreReadOnly, WrongArgument
from perdure.memory.question import Meaning
from perdure.models.embedders import catalogue
from perdure.models.embedders.answers import vectors_of
from perdure.models.embedders.protocol import LOCAL, Embedder, EmbedderName, check_embedder
from perdure.stores.scan import Found
from perdure.stores.search.vectors import VectorModel, stored
from perdure.stores.session_store import SessionStore

QUESTION_TIMEOUT_S = 10.0
TEXTS_TIMEOUT_S = 120.0

AT_ONCE = 32
"""Texts that an embedder gets at once, and that a recall gives vectors to."""

_FAR = 2_048
"""Entries without a text that gets a vector, after which the mark is moved all the same."""


async def resolved(embedder: Embedder | EmbedderName) -> Embedder:
    """Return the embedder; a name is looked up, with files below the current folder.

    Raises: ConfigError; WrongArgument for what is none.
    """
    if importlib.util.find_spec("numpy") is None:
        raise ConfigError("an embedder needs numpy: pip install 'perdure[memory]'")
    if isinstance(embedder, str):
        return await asyncio.to_thread(_named, embedder)
    check_embedder(embedder)
    return embedder


def _named(name: EmbedderName) -> Embedder:
    folder = Path.cwd()
    kind = name.partition(":")[0]
    if kind in LOCAL:  # its files take a second to read
        return _local(name, folder)
    return catalogue.embedder_of(name, folder, os.environ)


@lru_cache(maxsize=4)
def _local(name: EmbedderName, folder: Path) -> Embedder:
    return catalogue.embedder_of(name, folder, {})


async def vectors_in(store: SessionStore, embedder: Embedder | EmbedderName) -> TextVectors:
    """Return the vectors of an embedder in a store. Raises: ConfigError; WrongArgument."""
    return TextVectors(store, await resolved(embedder))


async def embed_all(
    store: SessionStore, embedder: Embedder | EmbedderName | None, *, is_only: bool
) -> int:
    """Implement ``Memory.embed``."""
    if embedder is None:
        raise WrongArgument(
            "this memory has no embedder: use store.memory.with_embedder(...).embed()",
            argument="embedder",
        )
    vectors = await vectors_in(store, embedder)
    model = (await vectors.meaning("perdure")).model
    count = await vectors.follow(model)
    if is_only:
        for other in await store.search.vector_models():
            if other != model:
                await store.search.drop_vectors(other)
    return count


class MeasuredEmbedder:
    """An embedder that knows how many numbers its vectors have, 0 before the first."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.dimension = 0

    @property
    def model(self) -> str:
        return self._embedder.model

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        found = await self._embedder.embed(texts)
        self.dimension = len(found[0]) if len(found) else 0
        return found


class TextVectors:
    """The vectors of one embedder in a store."""

    def __init__(self, store: SessionStore, embedder: Embedder) -> None:
        self._store = store
        self._embedder = embedder

    async def meaning(self, question: str) -> Meaning:
        """Return the vector of a question. Raises: EmbedderUnavailable."""
        (vector,) = await vectors_of(self._embedder, [question], QUESTION_TIMEOUT_S)
        return Meaning(VectorModel(self._embedder.model, len(vector)), vector)

    async def meaning_after_new_texts(self, question: str) -> Meaning:
        """Return the vector of a question, and give the next texts theirs.

        Raises: EmbedderUnavailable.
        """
        meaning = await self.meaning(question)
        with suppress(StoreReadOnly, StoreFull):
            await self.follow(meaning.model, AT_ONCE)
        return meaning

    async def follow(self, model: VectorModel, most: int | None = None) -> int:
        """Give the next texts without a vector theirs, at most about `most`; return how many.

        Durable: each batch of texts. Raises: EmbedderUnavailable; StoreReadOnly; StoreFull.
        """
        done = 0
        while most is None or done < most:
            read = await self._store.search.unembedded(model)
            if not read.texts and read.end - read.before < _FAR:
                return done
            before, texts = read.before, read.texts
            for start in range(0, max(len(texts), 1), AT_ONCE):
                batch = texts[start : start + AT_ONCE]
                after = read.end if start + AT_ONCE >= len(texts) else batch[-1][1]
                rows = await self._rows(model, [found for found, _ in batch])
                if not await self._store.search.add_vectors(model, (before, after), rows):
                    break  # another process was first
                before, done = after, done + len(batch)
                if most is not None and done >= most:
                    return done
        return done

    async def _rows(self, model: VectorModel, texts: Sequence[Found]) -> Mapping[int, bytes]:
        if not texts:
            return {}
        said = [found.what.text for found in texts]
        vectors = await vectors_of(self._embedder, said, TEXTS_TIMEOUT_S)
        rows: dict[int, bytes] = {}
        for found, vector in zip(texts, vectors, strict=True):
            if len(vector) == model.dimension:
                with suppress(ValueError):  # of a text without a word that the model knows
                    rows[found.position] = stored(vector)
        return rows
