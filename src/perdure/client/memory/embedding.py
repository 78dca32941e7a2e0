"""Compute vectors of the texts in a store with an embedder, in the order of the log.

A recall computes the vectors of the next few texts. Texts without a vector get it in the background
(``backlog``) or from `Memory.embed`. A text without a vector is found only by its words.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.errors import ConfigError, StoreFull, StoreReadOnly, WrongArgument
from perdure.errors.advice import install_of
from perdure.memory.question import Meaning
from perdure.models.embedders import catalogue
from perdure.models.embedders.answers import vectors_of
from perdure.models.embedders.protocol import LOCAL, Embedder, EmbedderName, check_embedder
from perdure.stores.access.lazy_modules import Later
from perdure.stores.scan import Found
from perdure.stores.search.vectors import VectorModel, stored
from perdure.stores.session_store import SessionStore

if TYPE_CHECKING:
    from perdure.memory import similarity as similarities
else:
    similarities = Later("perdure.memory.similarity")

QUESTION_TIMEOUT_S = 10.0
"""How long an embedder may take for a question, and for each batch of texts during a recall."""

TEXTS_TIMEOUT_S = 120.0
"""How long an embedder may take for a batch of texts in the background or in `Memory.embed`."""

AT_ONCE = 32
"""Number of texts in one batch for an embedder; a recall computes one batch of vectors."""

STATEMENTS = 128
"""Maximum number of facts and summaries whose vectors one recall computes."""

MOST_KNOWN = 8_192
"""Maximum number of vectors of facts and summaries that this process caches."""

_vectors: dict[bytes, array[float]] = {}
"""Cached vectors of facts and summaries; the key is a digest of the model and the text."""

_FAR = 2_048
"""The reached position is also stored after this many entries without a text to embed."""


async def resolved(embedder: Embedder | EmbedderName) -> Embedder:
    """Return `embedder`; a name is resolved, with file paths relative to the current folder.

    Raises: ConfigError if the embedder is not set up; WrongArgument for anything other than an
    embedder.
    """
    if importlib.util.find_spec("numpy") is None:
        raise ConfigError(f"an embedder needs numpy: {install_of('memory')}")
    if isinstance(embedder, str):
        return await asyncio.to_thread(_named, embedder)
    check_embedder(embedder)
    return embedder


async def require_embedder(name: EmbedderName | None) -> None:
    """Load the embedder before a server serves clients, so that a missing set-up fails early.

    Raises: ConfigError if the embedder is not set up; WrongArgument for anything other than an
    embedder.
    """
    if name is not None:
        check_embedder(name)
        await resolved(name)


def _named(name: EmbedderName) -> Embedder:
    folder = Path.cwd()
    kind = name.partition(":")[0]
    if kind in LOCAL:  # its files take a second to read
        return _local(name, folder)
    return catalogue.embedder_of(name, folder, os.environ)


@lru_cache(maxsize=4)
def _local(name: EmbedderName, folder: Path) -> Embedder:
    return catalogue.embedder_of(name, folder, {})


async def embed_all(
    store: SessionStore, embedder: Embedder | EmbedderName | None, *, is_only: bool
) -> int:
    """Implement ``Memory.embed``."""
    if embedder is None:
        raise WrongArgument(
            "this memory has no embedder: use store.memory.with_embedder(...).embed()",
            argument="embedder",
        )
    vectors = TextVectors(store, await resolved(embedder))
    model = (await vectors.meaning("perdure")).model
    count = await vectors.follow(model)
    if is_only:
        for other in await store.search.vector_models():
            if other != model:
                await store.search.drop_vectors(other)
    return count


def _name(model: VectorModel, text: str) -> bytes:
    named = f"{model.dimension} {len(model.name)} {model.name} {text}"
    return hashlib.blake2b(named.encode(errors="surrogatepass"), digest_size=16).digest()


class MeasuredEmbedder:
    """An embedder that records the length of its vectors; the length is 0 before the first vector.

    The embedder caches the vector of a turn's question, because the turn requests this vector
    twice.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._last: tuple[Sequence[str], Sequence[Sequence[float]]] | None = None
        self.dimension = 0

    @property
    def model(self) -> str:
        return self._embedder.model

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        if self._last is not None and self._last[0] == texts:
            return self._last[1]
        found = await self._embedder.embed(texts)
        self.dimension = len(found[0]) if len(found) else 0
        if len(texts) == 1:
            self._last = texts, found
        return found


class TextVectors:
    """Computes vectors of the texts in a store with one embedder.

    Units: `timeout_s` is the limit for a batch of texts, in seconds.
    """

    def __init__(
        self, store: SessionStore, embedder: Embedder, timeout_s: float = TEXTS_TIMEOUT_S
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._timeout_s = timeout_s

    async def meaning(self, question: str) -> Meaning:
        """Return the vector of a question. Raises: EmbedderUnavailable."""
        (vector,) = await vectors_of(self._embedder, [question], QUESTION_TIMEOUT_S)
        return Meaning(VectorModel(self._embedder.model, len(vector)), vector)

    async def meaning_after_new_texts(self, question: str) -> Meaning:
        """Return the vector of a question; also compute vectors of the next texts that have none.

        Raises: EmbedderUnavailable.
        """
        meaning = await self.meaning(question)
        with suppress(StoreReadOnly, StoreFull):
            await self.follow(meaning.model, AT_ONCE)
        return meaning

    async def nearness(self, meaning: Meaning, texts: Sequence[str]) -> list[float | None]:
        """Return the cosine between a question and each of `texts`, which are not in the index.

        The vectors of `texts` are kept only in the memory of this process. A call computes at most
        `STATEMENTS` missing vectors, for the last of `texts`. The result is None for each text that
        still has no vector.
        Raises: EmbedderUnavailable.
        """
        names = [_name(meaning.model, text) for text in texts]
        text_of = dict(zip(names, texts, strict=True))
        asked = [each for each in text_of.items() if each[0] not in _vectors][-STATEMENTS:]
        for start in range(0, len(asked), AT_ONCE):
            batch = asked[start : start + AT_ONCE]
            said = [text for _, text in batch]
            made = await vectors_of(self._embedder, said, self._timeout_s)
            for (name, _), vector in zip(batch, made, strict=True):
                _vectors[name] = array("f", vector)
        known = [_vectors.get(name) for name in names]
        while len(_vectors) > MOST_KNOWN:
            del _vectors[next(iter(_vectors))]
        return similarities.cosines(meaning, known)

    async def follow(self, model: VectorModel, most: int | None = None) -> int:
        """Compute missing vectors in batches until `most` texts are done; return how many are done.

        Durable: the vectors of each batch of texts are stored before the next batch begins.
        Raises: EmbedderUnavailable if the embedder fails; StoreReadOnly if the store is read-only;
        StoreFull if no space is left.
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
        vectors = await vectors_of(self._embedder, said, self._timeout_s)
        rows: dict[int, bytes] = {}
        for found, vector in zip(texts, vectors, strict=True):
            if len(vector) == model.dimension:
                with suppress(ValueError):  # of a text without a word that the model knows
                    rows[found.position] = stored(vector)
        return rows
