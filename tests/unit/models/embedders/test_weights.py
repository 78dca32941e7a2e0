"""The files of a local embedder: errors name missing and damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.models.embedders.weights import file_in, require_file, tensors_in, tokenizer_in
from tests.fakes.tiny_models import broken_weights


def test_missing_too_large_or_ambiguous_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        require_file(tmp_path / "none", ("*.json",), 10)
    with pytest.raises(ConfigError, match=r"has no \*\.json or \*\.txt"):
        require_file(tmp_path, ("*.json", "*.txt"), 10)
    (tmp_path / "a.txt").write_text("12345678901")
    with pytest.raises(ConfigError, match="larger than 10 bytes"):
        file_in(tmp_path, ("*.json", "*.txt"), 10)
    assert require_file(tmp_path, ("*.json", "*.txt"), 11) == tmp_path / "a.txt"
    (tmp_path / "b.txt").write_text("")
    with pytest.raises(ConfigError, match=r"several \*\.txt: a\.txt, b\.txt"):
        file_in(tmp_path, ("*.txt",), 11)


def test_damaged_files_are_rejected(tmp_path: Path) -> None:
    broken_weights(tmp_path / "w.safetensors")
    with pytest.raises(ConfigError, match="cannot be read as safetensors"):
        tensors_in(tmp_path / "w.safetensors")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot be read as a tokenizer"):
        tokenizer_in(tmp_path / "tokenizer.json")
