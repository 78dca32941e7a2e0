"""Open a store by its address."""

from __future__ import annotations

from pathlib import Path

from perdure.errors import ConfigError
from perdure.session.clock import Clock, RandomSource
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.key import StoreKey
from perdure.stores.protocol import durability_of
from perdure.stores.sqlite.services import SCHEME
from perdure.stores.sqlite.store import SqliteStore


async def open_sqlite(
    address: str,
    *,
    namespace: str,
    durability: str,
    clock: Clock,
    random: RandomSource,
    key: StoreKey | None = None,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    is_copied: bool = False,
) -> SqliteStore:
    """Open the store at an address ``sqlite:///relative.db`` or ``sqlite:////absolute.db``.

    Raises: ConfigError for another address or durability; else as `SqliteStore.open`.
    """
    path = path_of(address)
    return await SqliteStore.open(
        path,
        namespace=namespace,
        durability=durability_of(durability),
        clock=clock,
        random=random,
        key=key,
        lock_timeout_s=lock_timeout_s,
        is_copied=is_copied,
    )


def path_of(address: str) -> Path:
    """Return the file that an address names.

    Raises: ConfigError if it names none.
    """
    name = address.removeprefix(SCHEME)
    if name == address or not name:
        raise ConfigError(f"{address} names no file: use {SCHEME}relative.db")
    return Path(name)
