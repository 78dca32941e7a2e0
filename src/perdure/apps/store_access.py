"""Which store a program works on, and opening it: made if need be, or only if it is there.

Looking never makes a store: where nobody has written yet, there is an empty one in memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from perdure.apps.first_run import is_at_terminal, offered_key
from perdure.apps.settings.lookup import setting
from perdure.client.lookup.store_files import FILE_ADDRESS, database_file, own_folders
from perdure.client.open import check_address, default_address
from perdure.client.open import open as open_store
from perdure.client.store import Store
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S

NAMESPACE = "default"


def store_address(named: str | None) -> str:
    """The store a command works on: `named`, else $PERDURE_STORE, else the person's setting.

    Else a file of theirs.
    Raises: ConfigError when the settings cannot be read, there is no home folder, or it is none.
    """
    if named or os.environ.get("PERDURE_STORE"):
        return check_address(named or os.environ["PERDURE_STORE"])
    return check_address(setting("store.address") or default_address(os.environ, sys.platform))


def file_address(file: Path) -> str:
    """The address of the store in `file`."""
    return f"{FILE_ADDRESS}{file.absolute()}"


def is_missing(address: str) -> bool:
    """Whether the store is a file or folder that is not there."""
    file = database_file(address)
    if file is not None:
        return not file.exists()
    return any(not folder.exists() for folder in own_folders(address))


@asynccontextmanager
async def writable_store(named: str | None, namespace: str = NAMESPACE) -> AsyncGenerator[Store]:
    """The store, made if it is not there, for the length of an ``async with``.

    Raises: what `perdure.open` raises.
    """
    address = store_address(named)
    file = database_file(address)
    is_own = named is None and "PERDURE_STORE" not in os.environ
    is_first = is_own and file is not None and is_missing(address)
    key = offered_key(address) if is_first and is_at_terminal() else None
    wait_s = _lock_timeout_s()
    async with open_store(
        address, namespace=namespace, key=key, is_trusted=False, lock_timeout_s=wait_s
    ) as store:
        yield store


@asynccontextmanager
async def existing_store(named: str | None, namespace: str = NAMESPACE) -> AsyncGenerator[Store]:
    """The store if there is one, else an empty one in memory, for the length of an ``async with``.

    Raises: what `perdure.open` raises.
    """
    address = store_address(named)
    found = "memory:" if is_missing(address) else address
    wait_s = _lock_timeout_s()
    async with open_store(
        found, namespace=namespace, is_trusted=False, lock_timeout_s=wait_s
    ) as store:
        yield store


def _lock_timeout_s() -> float:
    return float(setting("store.lock_timeout_s") or LOCK_TIMEOUT_S)
