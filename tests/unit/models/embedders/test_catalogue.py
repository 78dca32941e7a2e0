"""The embedder for a given name."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.models.embedders.catalogue import embedder_of
from tests.fakes.tiny_models import static_folder


def no_key(_name: str) -> str | None:
    return None


def test_local_embedder_is_read_from_its_folder(tmp_path: Path) -> None:
    static_folder(tmp_path / "words")
    relative = embedder_of("static:words", tmp_path, {}, no_key)
    absolute = embedder_of(f"static:{tmp_path / 'words'}", Path("/nowhere"), {}, no_key)
    assert relative.model == absolute.model


def test_embedder_of_a_provider_uses_the_providers_address_and_key() -> None:
    environment = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://localhost:9/v1"}
    assert embedder_of("openai:small", Path(), environment, no_key).model == "openai:small"
    assert embedder_of("ollama:nomic", Path(), {}, no_key).model == "ollama:nomic"
    with pytest.raises(ConfigError, match="needs a key: set OPENAI_API_KEY"):
        embedder_of("openai:small", Path(), {}, no_key)


def test_error_for_a_missing_embedder_package_mentions_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_name: str) -> object:
        raise ModuleNotFoundError("no", name="tokenizers")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"needs tokenizers: pip install 'perdure\[embed\]'"):
        embedder_of("static:words", tmp_path, {}, no_key)
