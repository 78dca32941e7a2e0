"""Finds the file with the tokens of a store; each store and namespace has its own file."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from perdure.apps.server.access.tokens import TokenFile
from perdure.client.lookup.store_files import data_folder
from perdure.client.store import Store

TOKENS = "PERDURE_TOKENS"
"""Environment variable that names the token file, for example to share it between two servers."""


async def tokens_of(store: Store) -> TokenFile:
    """Return the tokens of `store` for its namespace."""
    named = os.environ.get(TOKENS)
    if named:
        return TokenFile(Path(named))
    info = await store.info()
    digest = hashlib.sha256(f"{info.address}\n{info.namespace}".encode()).hexdigest()[:32]
    folder = data_folder(os.environ, sys.platform) / "perdure" / "tokens"
    return TokenFile(folder / f"{digest}.json")
