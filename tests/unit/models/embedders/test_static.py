"""Static vectors in wordllama's format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perdure.errors import ConfigError
from perdure.models.embedders.static import StaticVectors
from tests.fakes.tiny_models import save, static_folder, write_tokenizer


def cosine(one: object, other: object) -> float:
    a, b = np.asarray(one, float), np.asarray(other, float)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


async def test_words_with_the_same_meaning_have_similar_vectors(tmp_path: Path) -> None:
    embedder = StaticVectors(static_folder(tmp_path / "tiny"))
    hotel, lodging, storm = await embedder.embed(["hotel", "Lodging", "storm"])
    assert cosine(hotel, lodging) > 0.999
    assert cosine(hotel, storm) < 0.9
    assert embedder.model.startswith("static:tiny:")


async def test_vector_is_the_mean_of_its_token_vectors(tmp_path: Path) -> None:
    embedder = StaticVectors(static_folder(tmp_path / "tiny"))
    boat, river, both = await embedder.embed(["boat", "river", "river boat"])
    assert both == pytest.approx((np.asarray(boat) + np.asarray(river)) / 2, abs=1e-6)
    (empty,) = await embedder.embed([""])
    assert not np.any(empty)


async def test_different_weights_give_different_model_names(tmp_path: Path) -> None:
    one = StaticVectors(static_folder(tmp_path / "one")).model
    assert one == StaticVectors(static_folder(tmp_path / "two")).model
    other = StaticVectors(static_folder(tmp_path / "three", dimension=4)).model
    assert one.split(":")[:2] == other.split(":")[:2]
    assert one != other


def test_embedder_weights_without_a_table_of_vectors_are_rejected(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    flat = np.zeros(4, np.float32)
    save(tmp_path / "model.safetensors", {"flat": flat})
    with pytest.raises(ConfigError, match="0 tables of vectors instead of one"):
        StaticVectors(tmp_path)
