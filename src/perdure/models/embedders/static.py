"""Static word vectors: the vector of a text is the mean of its token vectors. No model runs.

This module reads the weights of wordllama (`weights/*.safetensors` and `tokenizers/*.json` of its
package) and of model2vec (`model.safetensors` and `tokenizer.json`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import ConfigError
from perdure.models.embedders.weights import (
    MOST_BYTES,
    MOST_TOKENIZER,
    Floats,
    digest_of,
    require_file,
    tensors_in,
    tokenizer_in,
)


class StaticVectors:
    """An `Embedder` that uses the weights in a folder.

    Raises: ConfigError if the weights cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        weights = require_file(folder, ("*.safetensors", "weights/*.safetensors"), MOST_BYTES)
        names = ("tokenizer.json", "tokenizers/*.json", "*tokenizer*.json")
        self._tokenizer: Any = tokenizer_in(require_file(folder, names, MOST_TOKENIZER))
        tables = [each for each in tensors_in(weights).values() if each.ndim == 2]
        if len(tables) != 1 or not tables[0].size:
            raise ConfigError(f"{weights} has {len(tables)} tables of vectors instead of one")
        self._table: Floats = tables[0].astype(np.float32)
        self.model = f"static:{weights.stem}:{digest_of(weights)}"

    async def embed(self, texts: Sequence[str]) -> list[Floats]:
        """Return the mean of the vectors of the tokens of each text; zeros for an empty text."""
        return await asyncio.to_thread(self._vectors, list(texts))

    def _vectors(self, texts: list[str]) -> list[Floats]:
        encoded: list[Any] = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [self._mean(each.ids) for each in encoded]

    def _mean(self, ids: Sequence[int]) -> Floats:
        known = [each for each in ids if each < len(self._table)]
        return self._table[known].sum(axis=0) / np.float32(max(len(known), 1))
