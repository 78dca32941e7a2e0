"""The file and the keys of a store, for maintenance of the whole store."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from perdure.client.keys import configured_key, keyring_keys
from perdure.client.lookup.store_files import address_or_default
from perdure.errors import KeyMissing, KeyWrong, Unsupported
from perdure.stores.key import StoreKey

Report = Callable[[int, int], None]
"""Callback that a worker thread calls with the number of written bytes, and of all bytes."""

SQLITE = "sqlite:///"

Result = TypeVar("Result")


def upkeep_of_sqlite(name: str) -> Any:
    """Import the module `name` of the SQLite backend, which is loaded only on use."""
    return importlib.import_module(f"perdure.stores.sqlite.maintenance.{name}")


async def is_encrypted(address: str | None = None) -> bool:
    """Return whether the store at `address` needs a key.

    Raises: Unsupported if the store has no encryption; the errors of `perdure.open` if `address` is
    not a store.
    """
    address, path = place_of(address, "encryption")
    return await asyncio.to_thread(upkeep_of_sqlite("rekey").is_encrypted, path)


async def present_keys(
    address: str, path: Path, key: bytes | str | StoreKey | None
) -> tuple[StoreKey | None, ...]:
    """Return the keys that might open the store, the most likely first.

    Returns (None,) if the store is not encrypted.
    """
    if not await asyncio.to_thread(upkeep_of_sqlite("rekey").is_encrypted, path):
        return (None,)
    return await likely_keys(address, key, address)


async def likely_keys(
    address: str, key: bytes | str | StoreKey | None, encrypted: str
) -> tuple[StoreKey | None, ...]:
    """Return the configured key of the store at `address`.

    If no key is configured, return the store's keys in the keyring.
    Raises: KeyMissing if there is no key; its text uses `encrypted` as the name of the store.
    """
    configured = configured_key(key, os.environ, address)
    if configured is not None:
        return (configured,)
    kept = await asyncio.to_thread(keyring_keys, address)
    if not kept:
        raise KeyMissing(encrypted)
    return kept


async def with_key(
    keys: Sequence[StoreKey | None], work: Callable[[StoreKey | None], Result]
) -> tuple[StoreKey | None, Result]:
    """Run `work` in a thread with the first of `keys` that fits; return this key and the result.

    Raises: KeyWrong if no key fits; the errors of `work`.
    """
    *others, last = keys
    for key in others:
        with suppress(KeyWrong):
            return key, await asyncio.to_thread(work, key)
    return last, await asyncio.to_thread(work, last)


def place_of(address: str | None, capability: str) -> tuple[str, Path]:
    """Return the address of an SQLite store, and its file.

    Raises: Unsupported if the store is of another kind; `capability` is the operation that the
    error names.
    """
    address = address_or_default(address, os.environ, sys.platform)
    if not address.startswith(SQLITE):
        raise Unsupported(capability, address.partition(":")[0])
    return address, Path(address.removeprefix(SQLITE))
