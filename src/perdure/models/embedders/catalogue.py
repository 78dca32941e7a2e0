"""Create the embedder that a configuration names.

The provider in the name must be one of `models.catalogue` with OpenAI's protocol. The embedder uses
the same address and key as the provider's models.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from perdure.errors import ConfigError
from perdure.errors.advice import install_of
from perdure.models.catalogue import PROVIDERS
from perdure.models.embedders.endpoint import EmbeddingEndpoint
from perdure.models.embedders.protocol import LOCAL, Embedder, check_name
from perdure.models.keys import find_key
from perdure.secrets.vault import Lookup, in_keyring

_MODULES = {
    "static": ("perdure.models.embedders.static", "StaticVectors"),
    "minilm": ("perdure.models.embedders.minilm", "SentenceModel"),
}


def embedder_of(
    name: str, folder: Path, environment: Mapping[str, str], lookup: Lookup = in_keyring
) -> Embedder:
    """Return the embedder `name`; a relative folder in the name is below `folder`.

    If the embedder is local, the call reads the embedder's files.
    Raises: ConfigError if the name is invalid or the embedder is not available.
    """
    check_name(name)
    kind, _, rest = name.partition(":")
    if kind not in LOCAL:
        provider = PROVIDERS[kind]
        address, key = provider.address(environment), find_key(provider, environment, lookup)
        if key is None and provider.wants_key(address):
            raise ConfigError(f"the embedder {name} needs a key: set {provider.key_variables[0]}")
        is_own = not provider.needs_key or address.rstrip("/") != provider.default_url
        return EmbeddingEndpoint(
            rest, provider=kind, address=address, key=key, is_local_open=is_own
        )
    module, local = _MODULES[kind]
    try:
        make = getattr(importlib.import_module(module), local)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the embedder {name} needs {error.name}: {install_of('embed')}"
        ) from error
    found: Embedder = make(folder / Path(rest).expanduser())
    return found
