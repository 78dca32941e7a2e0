"""A small sentence model: numpy's forward pass, and ONNX Runtime."""

from __future__ import annotations

import json
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.errors import ConfigError
from perdure.models.embedders.minilm import SentenceModel
from tests.fakes.tiny_models import WORDS, bert_folder, loaded, onnx_folder

TEXTS = ["hotel", "the river took the boat", "a storm", "boat the took river the"]


async def test_vector_of_a_text_does_not_depend_on_other_texts(tmp_path: Path) -> None:
    embedder = SentenceModel(bert_folder(tmp_path))
    together = await embedder.embed(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        (alone,) = await embedder.embed([text])
        assert vector == pytest.approx(alone, abs=1e-5)
    assert not np.allclose(together[1], together[3]), "the order of the words counts"
    assert len(await embedder.embed(TEXTS * 9)) == len(TEXTS) * 9


async def test_minilm_forward_pass_equals_a_plain_bert_implementation(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path)
    (vector,) = await SentenceModel(folder).embed(["the river took a boat"])
    assert vector == pytest.approx(_plain_bert(folder, "the river took a boat"), abs=1e-5)


def _plain_bert(folder: Path, text: str, heads: int = 2) -> list[float]:
    """Return the vector of `text`, computed token by token."""
    tensors = loaded(folder / "model.safetensors")
    w = {name: tensor.astype(float) for name, tensor in tensors.items()}

    def norm(x: Any, name: str) -> Any:
        x = (x - x.mean()) / np.sqrt(x.var() + 1e-12)
        return x * w[f"{name}.LayerNorm.weight"] + w[f"{name}.LayerNorm.bias"]

    def linear(x: Any, name: str) -> Any:
        return w[f"{name}.weight"] @ x + w[f"{name}.bias"]

    states = [
        norm(
            w["embeddings.word_embeddings.weight"][WORDS.index(word)]
            + w["embeddings.position_embeddings.weight"][place]
            + w["embeddings.token_type_embeddings.weight"][0],
            "embeddings",
        )
        for place, word in enumerate(text.split())
    ]
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        q, k, v = (
            [linear(x, f"{layer}.attention.self.{part}").reshape(heads, -1) for x in states]
            for part in ("query", "key", "value")
        )
        mixed: list[Any] = []
        for query in q:
            scores = np.exp([(query * key).sum(axis=1) / np.sqrt(query.shape[1]) for key in k])
            shares = scores / scores.sum(axis=0)
            mixed.append(
                np.concatenate(
                    [sum(s[h] * x[h] for s, x in zip(shares, v, strict=True)) for h in range(heads)]
                )
            )
        states = [
            norm(x + linear(m, f"{layer}.attention.output.dense"), f"{layer}.attention.output")
            for x, m in zip(states, mixed, strict=True)
        ]
        after: list[Any] = []
        for x in states:
            wide = np.array(
                [
                    each * (1 + erf(each / 2**0.5)) / 2
                    for each in linear(x, f"{layer}.intermediate.dense")
                ]
            )
            after.append(norm(x + linear(wide, f"{layer}.output.dense"), f"{layer}.output"))
        states = after
    return [float(each) for each in np.mean(states, axis=0)]


async def test_onnx_model_gives_the_mean_of_the_token_vectors(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    embedder = SentenceModel(onnx_folder(tmp_path / "onnx"))
    boat, river, both = await embedder.embed(["boat", "river", "river boat"])
    assert both == pytest.approx((np.asarray(boat) + np.asarray(river)) / 2, abs=1e-6)
    assert embedder.model.startswith("minilm:model:")


def test_damaged_models_are_rejected(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "bert")
    (folder / "config.json").write_text(
        json.dumps({"num_attention_heads": 2, "num_hidden_layers": 9})
    )
    with pytest.raises(ConfigError, match="no weights of a BERT model"):
        SentenceModel(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match="no configuration of a BERT model"):
        SentenceModel(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        SentenceModel(folder)
    (folder / "model.onnx").write_bytes(b"\x08\x08nonsense")
    pytest.importorskip("onnxruntime")
    with pytest.raises(ConfigError, match="cannot be read as an ONNX model"):
        SentenceModel(folder)
