"""The names of embedders."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError, WrongArgument
from perdure.models.embedders.protocol import check_embedder, check_name
from tests.fakes.embedders import WordEmbedder


def test_known_embedder_names_are_accepted() -> None:
    for name in ("static:models/words", "minilm:/m", "openai:text-embedding-3-small", "ollama:a:b"):
        check_name(name)
    check_embedder(WordEmbedder())


@pytest.mark.parametrize("name", ["", "static", "static:", "anthropic:x", "words", "none:x"])
def test_unknown_embedder_name_error_lists_supported_names(name: str) -> None:
    with pytest.raises(ConfigError, match="static:FOLDER, minilm:FOLDER, or PROVIDER:MODEL"):
        check_name(name)


@pytest.mark.parametrize("model", [None, 1, "", "a\0b", "half \ud800", "x" * 501])
def test_embedder_with_invalid_model_name_is_rejected(model: object) -> None:
    embedder = WordEmbedder()
    embedder.model = model  # pyright: ignore[reportAttributeAccessIssue] - that is the point
    with pytest.raises(WrongArgument, match="it must be a name"):
        check_embedder(embedder)


def test_object_without_embedder_methods_is_rejected() -> None:
    with pytest.raises(WrongArgument, match="no embedder"):
        check_embedder(object())
