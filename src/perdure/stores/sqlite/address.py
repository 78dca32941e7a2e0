"""Open a store by its address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.errors import ConfigError
from perdure.stores.protocol import durability_of
from perdure.stores.sqlite.services import SCHEME
from perdure.stores.sqlite.store import SqliteStore


async def open_sqlite(address: str, *, durability: str, **options: Any) -> SqliteStore:
    """Open the store at an address ``sqlite:///relative.db`` or ``sqlite:////absolute.db``.

    `options` are passed to `SqliteStore.open`.
    Raises: ConfigError for an invalid address or durability, and the errors of `SqliteStore.open`.
    """
    path = path_of(address)
    return await SqliteStore.open(path, durability=durability_of(durability), **options)


def path_of(address: str) -> Path:
    """Return the file path in an address.

    Raises: ConfigError if the address contains no file.
    """
    name = address.removeprefix(SCHEME)
    if name == address or not name:
        raise ConfigError(f"{address} names no file: use {SCHEME}relative.db")
    return Path(name)
