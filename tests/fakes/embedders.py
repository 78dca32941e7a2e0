"""An embedder for tests, which can fail. Words of the same meaning have the same direction."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

from perdure.session.search.words import terms


@cache
def _vector_of_word(seed: str, dimension: int) -> tuple[float, ...]:
    chance = random.Random(seed)
    return tuple(chance.gauss(0, 1) for _ in range(dimension))


class WordEmbedder:
    """The vector of a text is the sum of its word vectors. Words in `alike` share one meaning."""

    def __init__(
        self, model: str = "words:1", dimension: int = 16, alike: Sequence[Sequence[str]] = ()
    ) -> None:
        self.model = model
        self.dimension = dimension
        self.asked: list[str] = []
        self.failure: Exception | None = None
        self._meaning = {word: group[0] for group in alike for word in group}

    def vector(self, text: str) -> list[float]:
        """Return the vector of `text`."""
        total = [0.0] * self.dimension
        for word in terms(text):
            one = _vector_of_word(f"{self.model} {self._meaning.get(word, word)}", self.dimension)
            total = [each + more for each, more in zip(total, one, strict=True)]
        return total

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vector of each text, or raise an error."""
        if self.failure is not None:
            raise self.failure
        self.asked += texts
        return [self.vector(text) for text in texts]
