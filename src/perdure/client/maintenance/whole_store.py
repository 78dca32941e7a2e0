"""What is done to a store as a whole: another key, a rehearsal of migrations, space given back.

Backends that can are found by the address's scheme and loaded by name, as in `open`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

from perdure.client.keys import configured_key, keyring_keys
from perdure.client.open import default_address
from perdure.client.store import Store
from perdure.errors import KeyMissing, KeyWrong, Unsupported
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.protocol import MigrationPlan, VacuumReport

Report = Callable[[int, int], None]
"""Told how many bytes of how many are written; on a thread."""

_SCHEME = "sqlite:///"
_POSTGRES = ("postgres", "postgresql")
_FOLDER = "perdure.stores.sqlite.maintenance"


class _Rekeying(Protocol):
    """The module of a backend that can be encrypted."""

    def is_encrypted(self, path: Path) -> bool: ...

    def rekey(
        self, path: Path, key: StoreKey | None, new_key: StoreKey | None, report: Report
    ) -> None: ...


class _Migrating(Protocol):
    """The module of a backend that has schemas."""

    def rehearse_migration(self, path: Path, key: StoreKey | None) -> MigrationPlan: ...


class _MigratingServer(Protocol):
    """The same of a server's database."""

    async def rehearse_migration(self, address: str) -> MigrationPlan: ...


async def is_encrypted(address: str | None = None) -> bool:
    """Whether the store at `address` needs a key.

    Raises: Unsupported where nothing can be encrypted; as `perdure.open` when it is no store.
    """
    address, path = place_of(address, "encryption")
    return await asyncio.to_thread(_rekeying().is_encrypted, path)


async def rekey(
    address: str | None,
    new_key: bytes | str | StoreKey | None,
    *,
    key: bytes | str | StoreKey | None = None,
    on_progress: Report | None = None,
) -> None:
    """Encrypt the store at `address` with `new_key`, or make it plain with None.

    Its present key is `key`, or looked for as `perdure.open` does. The new one must be kept by the
    caller before: once this returns, nothing else opens the store. It needs room for a copy.
    Durable: when this returns; killed before, either key opens it, and it is whole.
    Raises: StoreInUse while anybody has it open; KeyMissing, KeyWrong; as `perdure.open`;
    ValueError when a key is none; Unsupported where nothing can be encrypted.
    """
    address, path = place_of(address, "encryption")
    new = StoreKey.of(new_key) if isinstance(new_key, bytes | str) else new_key
    keys = await present_keys(address, path, key)
    for number, present in enumerate(keys, 1):
        try:
            work = _rekeying().rekey
            return await asyncio.to_thread(work, path, present, new, on_progress or untold)
        except KeyWrong:
            if number == len(keys):
                raise
    return None


async def vacuum(store: Store) -> VacuumReport:
    """Remove contents that nothing refers to, and give free space back, while others write.

    Raises: Unsupported where there is no such thing.
    """
    return await store.backend.maintenance.vacuum()


async def planned_migration(
    address: str | None = None, *, key: bytes | str | None = None
) -> MigrationPlan:
    """What opening the store with this program will do to its schema: tried, and taken back.

    Raises: as `perdure.open`; Unsupported where there are no schemas.
    """
    address = address or default_address(os.environ, sys.platform)
    if address.partition(":")[0] in _POSTGRES:
        server = importlib.import_module("perdure.stores.postgres.maintenance.migration_rehearsal")
        return await cast("_MigratingServer", server).rehearse_migration(address)
    address, path = place_of(address, "migrations")
    keys = await present_keys(address, path, key)
    module = cast("_Migrating", importlib.import_module(f"{_FOLDER}.migration_rehearsal"))
    return await asyncio.to_thread(module.rehearse_migration, path, keys[0])


async def present_keys(
    address: str, path: Path, key: bytes | str | StoreKey | None
) -> tuple[StoreKey | None, ...]:
    """The keys that may open the store, the likeliest first; (None,) for a plain one."""
    if not await asyncio.to_thread(_rekeying().is_encrypted, path):
        return (None,)
    configured = configured_key(key, os.environ, address)
    if configured is not None:
        return (configured,)
    kept = await asyncio.to_thread(keyring_keys, address)
    if not kept:
        raise KeyMissing(address)
    return kept


def place_of(address: str | None, capability: str) -> tuple[str, Path]:
    """The address and the file it names. Raises: Unsupported when it names another store."""
    address = address or default_address(os.environ, sys.platform)
    if not address.startswith(_SCHEME):
        raise Unsupported(capability, address.partition(":")[0])
    return address, Path(address.removeprefix(_SCHEME))


def _rekeying() -> _Rekeying:
    return cast("_Rekeying", importlib.import_module(f"{_FOLDER}.rekey"))


def untold(_done: int, _total: int) -> None:
    """Report to nobody."""
