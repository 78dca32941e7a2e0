"""Tiny files of weights in the formats of real models: a few kilobytes, generated quickly."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

WORDS = ("[UNK]", "hotel", "lodging", "river", "boat", "storm", "rain", "we", "took", "the", "a")


def write_tokenizer(path: Path, words: Sequence[str] = WORDS) -> None:
    """Write a tokenizer whose tokens are `words`."""
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer: Any = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))


def save(path: Path, tensors: dict[str, Any]) -> None:
    """Write tensors as safetensors."""
    library: Any = safetensors.numpy
    library.save_file(tensors, str(path))


def loaded(path: Path) -> dict[str, Any]:
    """Return the tensors of a file."""
    library: Any = safetensors.numpy
    return dict(library.load_file(str(path)))


def static_folder(folder: Path, dimension: int = 8) -> Path:
    """Write static vectors in which hotel and lodging, storm and rain are alike."""
    (folder / "weights").mkdir(parents=True)
    (folder / "tokenizers").mkdir()
    chance = np.random.default_rng(1)
    table = chance.normal(size=(len(WORDS), dimension)).astype(np.float16)
    table[0] = 0
    table[2], table[6] = table[1] * 1.1, table[5] * 1.1
    save(folder / "weights" / "tiny.safetensors", {"embedding.weight": table})
    write_tokenizer(folder / "tokenizers" / "tiny_tokenizer_config.json")
    return folder


def bert_folder(folder: Path, hidden: int = 8, heads: int = 2, layers: int = 2) -> Path:
    """Write a BERT model with random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(2)

    def some(*shape: int) -> np.ndarray[Any, Any]:
        return (chance.normal(size=shape) / 2).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": some(len(WORDS), hidden),
        "embeddings.position_embeddings.weight": some(256, hidden),
        "embeddings.token_type_embeddings.weight": some(2, hidden),
    }
    shapes = {
        **dict.fromkeys(
            (f"attention.{name}" for name in ("self.query", "self.key", "self.value")),
            (hidden, hidden),
        ),
        "attention.output.dense": (hidden, hidden),
        "intermediate.dense": (4 * hidden, hidden),
        "output.dense": (hidden, 4 * hidden),
    }
    norms = ["embeddings"]
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        for part, shape in shapes.items():
            weights[f"{name}.{part}.weight"] = some(*shape)
            weights[f"{name}.{part}.bias"] = some(shape[0])
        norms += [f"{name}.attention.output", f"{name}.output"]
    for name in norms:
        weights[f"{name}.LayerNorm.weight"] = 1 + some(hidden) / 4
        weights[f"{name}.LayerNorm.bias"] = some(hidden)
    save(folder / "model.safetensors", weights)
    config = {"num_attention_heads": heads, "num_hidden_layers": layers, "hidden_size": hidden}
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder / "tokenizer.json")
    return folder


def onnx_folder(folder: Path, dimension: int = 4) -> Path:
    """Write an ONNX model that looks up the vector of each token in a table."""
    folder.mkdir(parents=True)
    table = np.random.default_rng(3).normal(size=(len(WORDS), dimension)).astype(np.float32)
    node = _text(1, "table") + _text(1, "input_ids") + _text(2, "last_hidden_state")
    node += _text(4, "Gather")
    tensor = _number(1, len(WORDS)) + _number(1, dimension) + _number(2, 1) + _text(8, "table")
    tensor += _bytes(9, table.tobytes())
    graph = _bytes(1, node) + _text(2, "tiny") + _bytes(5, tensor)
    graph += _bytes(11, _value("input_ids", 7, 2)) + _bytes(12, _value("last_hidden_state", 1, 3))
    model = _number(1, 8) + _bytes(7, graph) + _bytes(8, _text(1, "") + _number(2, 13))
    (folder / "model.onnx").write_bytes(model)
    write_tokenizer(folder / "tokenizer.json")
    return folder


# ------------------------------------------------------------ protocol buffers, as ONNX has them


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _value(name: str, kind: int, axes: int) -> bytes:
    """Return the ONNX description of a value whose axes have no fixed size."""
    shape = b"".join(_bytes(1, _text(2, f"axis{number}")) for number in range(axes))
    return _text(1, name) + _bytes(2, _bytes(1, _number(1, kind) + _bytes(2, shape)))


def broken_weights(path: Path) -> None:
    """Write a header that declares more bytes than the file contains."""
    path.write_bytes(struct.pack("<Q", 1 << 40) + b"{}")
