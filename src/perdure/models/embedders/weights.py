"""Read the weights and the tokenizer of a local embedder from a folder in the configuration.

Nothing is downloaded. The formats contain only data: reading a file never runs code from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from tokenizers import Tokenizer

from perdure.errors import ConfigError

MOST_BYTES = 2_000_000_000
"""Maximum size of a file of weights, in bytes."""

MOST_TOKENIZER = 64_000_000
"""Maximum size of a tokenizer's file, in bytes."""

MOST_TOKENS = 256
"""Maximum tokens of a text that a model reads; the rest is cut."""

Floats = NDArray[np.float32]


def file_in(folder: Path, patterns: tuple[str, ...], most: int) -> Path | None:
    """Try `patterns` in order; return the file in `folder` that matches, or None.

    Raises: ConfigError if several files match the same pattern, or if the file is larger than
    `most` bytes.
    """
    for pattern in patterns:
        found = sorted(path for path in folder.glob(pattern) if path.is_file())
        if len(found) > 1:
            names = ", ".join(path.name for path in found[:3])
            raise ConfigError(f"the embedder folder {folder} has several {pattern}: {names}")
        if found and found[0].stat().st_size > most:
            raise ConfigError(f"{found[0]} is larger than {most:,} bytes")
        if found:
            return found[0]
    return None


def require_file(folder: Path, patterns: tuple[str, ...], most: int) -> Path:
    """Return the file that `file_in` finds.

    Raises: ConfigError if there is no such file; the error names the missing file.
    """
    if not folder.is_dir():
        raise ConfigError(f"the embedder folder {folder} does not exist")
    found = file_in(folder, patterns, most)
    if found is None:
        raise ConfigError(f"the embedder folder {folder} has no {' or '.join(patterns)}")
    return found


def tensors_in(path: Path) -> Mapping[str, NDArray[Any]]:
    """Return the tensors in a file of weights. Raises: ConfigError if the file cannot be read."""
    try:
        library: Any = safetensors.numpy
        return library.load_file(path)
    except Exception as error:
        raise ConfigError(f"{path} cannot be read as safetensors: {error!s:.200}") from error


def tokenizer_in(path: Path) -> Tokenizer:
    """Return the tokenizer in a file, set up to truncate long texts.

    Raises: ConfigError for an invalid file.
    """
    try:
        tokenizer: Any = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.enable_truncation(MOST_TOKENS)
    except Exception as error:
        raise ConfigError(f"{path} cannot be read as a tokenizer: {error!s:.200}") from error
    return tokenizer


def digest_of(path: Path) -> str:
    """Return a digest of a file with weights.

    The digest is part of the model's name, so vectors of different weights are never compared.
    """
    with path.open("rb") as file:
        return file_digest(file, lambda: blake2b(digest_size=6)).hexdigest()
