"""Run a small sentence model of the BERT family, such as all-MiniLM-L6-v2, on this machine.

The folder contains ``tokenizer.json`` and a model: ``model.safetensors`` with ``config.json`` (run
by numpy), or ``model.onnx`` (run by ONNX Runtime). The vector of a text is the mean of its token
vectors.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from perdure.errors import ConfigError
from perdure.models.embedders.weights import (
    MOST_BYTES,
    MOST_TOKENIZER,
    Floats,
    digest_of,
    file_in,
    require_file,
    tensors_in,
    tokenizer_in,
)

Forward = Callable[[NDArray[np.int64], NDArray[np.int64]], Floats]
"""Returns the vector of each token in a batch.

The arguments are the token ids and the mask of the tokens.
"""

_AT_ONCE = 16


class SentenceModel:
    """An `Embedder` that uses the model in a folder.

    Raises: ConfigError if the model cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        names = ("tokenizer.json", "*tokenizer*.json")
        self._tokenizer: Any = tokenizer_in(require_file(folder, names, MOST_TOKENIZER))
        onnx = file_in(folder, ("*.onnx",), MOST_BYTES)
        weights = onnx or require_file(folder, ("model.safetensors", "*.onnx"), MOST_BYTES)
        self._forward: Forward = (
            _Bert(folder, weights).forward if onnx is None else _onnx_forward(onnx)
        )
        self.model = f"minilm:{weights.stem}:{digest_of(weights)}"

    async def embed(self, texts: Sequence[str]) -> list[Floats]:
        """Return the mean of the vectors of the tokens of each text."""
        return await asyncio.to_thread(self._vectors, list(texts))

    def _vectors(self, texts: list[str]) -> list[Floats]:
        """Compute the vectors in batches of similar length, so that little padding is needed."""
        ids = [encoded.ids or [0] for encoded in self._tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda number: len(ids[number]))
        found: dict[int, Floats] = {}
        for start in range(0, len(order), _AT_ONCE):
            batch = order[start : start + _AT_ONCE]
            found.update(zip(batch, self._batch([ids[each] for each in batch]), strict=True))
        return [found[number] for number in range(len(texts))]

    def _batch(self, ids: Sequence[Sequence[int]]) -> Floats:
        longest = max(map(len, ids))
        tokens = np.zeros((len(ids), longest), np.int64)
        mask = np.zeros((len(ids), longest), np.int64)
        for row, each in enumerate(ids):
            tokens[row, : len(each)] = each
            mask[row, : len(each)] = 1
        hidden = self._forward(tokens, mask)
        shares = (mask / mask.sum(axis=1, keepdims=True)).astype(np.float32)
        return np.einsum("bth,bt->bh", hidden, shares)


def _onnx_forward(path: Path) -> Forward:
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ModuleNotFoundError:
        raise ConfigError(
            f"{path} needs ONNX Runtime: pip install onnxruntime, or use model.safetensors"
        ) from None
    try:
        session: Any = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ConfigError(f"{path} cannot be read as an ONNX model: {error!s:.200}") from error
    names = {each.name for each in session.get_inputs()}

    def forward(tokens: NDArray[np.int64], mask: NDArray[np.int64]) -> Floats:
        inputs = {
            "input_ids": tokens,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(tokens),
        }
        return session.run(None, {name: inputs[name] for name in names & inputs.keys()})[0]

    return forward


class _Config(msgspec.Struct):
    num_attention_heads: int
    num_hidden_layers: int
    layer_norm_eps: float = 1e-12


class _Bert:
    """The forward pass of BERT."""

    def __init__(self, folder: Path, weights: Path) -> None:
        config = require_file(folder, ("config.json",), 1_000_000)
        try:
            self._config = msgspec.json.decode(config.read_bytes(), type=_Config)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{config} is no configuration of a BERT model: {error}") from error
        found = tensors_in(weights)
        self._weights = {
            name.removeprefix("bert."): tensor.astype(np.float32)
            for name, tensor in found.items()
            if tensor.dtype.kind == "f"
        }
        try:
            self.forward(np.zeros((1, 1), np.int64), np.ones((1, 1), np.int64))
        except (KeyError, ValueError, IndexError) as error:
            raise ConfigError(f"{weights} has no weights of a BERT model: {error!s:.100}") from None

    def forward(self, tokens: NDArray[np.int64], mask: NDArray[np.int64]) -> Floats:
        """Return the vectors of the tokens after the last layer."""
        of, length = self._weights, tokens.shape[1]
        x = of["embeddings.word_embeddings.weight"][tokens]
        x = x + of["embeddings.position_embeddings.weight"][:length]
        x = self._normal(x + of["embeddings.token_type_embeddings.weight"][0], "embeddings")
        closed = ((1 - mask) * -1e9).astype(np.float32)[:, None, None, :]
        for number in range(self._config.num_hidden_layers):
            layer = f"encoder.layer.{number}"
            mixed = self._attention(x, closed, f"{layer}.attention")
            x = self._normal(x + mixed, f"{layer}.attention.output")
            wide = _gelu(self._linear(x, f"{layer}.intermediate.dense"))
            x = self._normal(x + self._linear(wide, f"{layer}.output.dense"), f"{layer}.output")
        return x

    def _attention(self, x: Floats, closed: Floats, name: str) -> Floats:
        heads = self._config.num_attention_heads

        def split(part: str) -> Floats:
            found = self._linear(x, f"{name}.self.{part}")
            return found.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

        query, key, value = map(split, ("query", "key", "value"))
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(sqrt(query.shape[-1])) + closed
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ value).transpose(0, 2, 1, 3).reshape(x.shape)
        return self._linear(mixed, f"{name}.output.dense")

    def _linear(self, x: Floats, name: str) -> Floats:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normal(self, x: Floats, name: str) -> Floats:
        centered = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt(
            (centered**2).mean(axis=-1, keepdims=True) + self._config.layer_norm_eps
        )
        scale, shift = (self._weights[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        return centered / deviation * scale + shift


def _gelu(x: Floats) -> Floats:
    """Return x times the normal distribution of x (GELU), by a formula of Abramowitz and Stegun."""
    y = np.abs(x) / np.float32(sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * y)
    series = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    error = np.sign(x) * (1 - series * np.exp(-y * y))
    return (x * (1 + error) / 2).astype(np.float32)
