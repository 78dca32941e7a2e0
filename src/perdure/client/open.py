"""`perdure.open`: open the store at an address.

A table maps the scheme of the address to the module of a backend, so a program loads only the
backend that it uses. This package imports no backend.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

from msgspec import Meta

from perdure.client.clock import Outside, SystemClock, system_random
from perdure.client.keys import configured_key, keyring_keys
from perdure.client.lookup.store_files import FILE_ADDRESS, address_or_default, intended_address
from perdure.client.routes import SCHEME as ROUTES
from perdure.client.routes import file_of, routed
from perdure.client.store import Store
from perdure.client.trust import own_marks
from perdure.errors import ConfigError, KeyMissing, KeyWrong, PerdureError, StoreTooOld, Unsupported
from perdure.errors.advice import install_of
from perdure.errors.arguments import is_utf8
from perdure.session.argument_checks import takes_declared
from perdure.session.clock import Clock, RandomSource
from perdure.session.notes import SessionEnded
from perdure.stores.access.collector import collector_paused_to_load
from perdure.stores.access.lazy_modules import Later
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.access.process import running_loop
from perdure.stores.key import StoreKey
from perdure.stores.protocol import Durability
from perdure.stores.session_store import SessionStore

if TYPE_CHECKING:
    from perdure.engine import episodes
else:
    episodes = Later("perdure.engine.episodes")

_BACKENDS: Mapping[str, tuple[str, str]] = {
    "jsonl": ("perdure.stores.jsonl.address", "open_jsonl"),
    "memory": ("perdure.stores.in_memory.store", "open_memory"),
    "postgres": ("perdure.stores.postgres.store", "open_postgres"),
    "postgresql": ("perdure.stores.postgres.store", "open_postgres"),
    "sqlite": ("perdure.stores.sqlite.address", "open_sqlite"),
}
"""For each scheme: the module and the name of the function that opens a namespace of a store.

The function creates the store if it is missing.
"""

LockTimeout = Annotated[float, Meta(gt=0)]
"""The longest wait for a lock that another process has. Units: seconds."""

_OPTIONS = re.compile(r"\?\w+=")
"""Options at the end of an address; a ``?`` alone may be part of a file name."""

_WITH_SCHEMA = frozenset({"postgres", "postgresql", "sqlite"})
"""URL schemes of the stores whose database schema may be older than this program."""


_Opener = Callable[..., Awaitable[SessionStore]]


class StoreOpening:
    """A store to be opened; returned by `open`.

    ``async with`` opens the store and closes it at the end of the block. ``await`` opens the store
    and returns it; call `Store.close` afterwards. Each ``async with`` or ``await`` opens the store
    again.
    """

    def __init__(self, opener: Callable[[], Coroutine[Any, Any, Store]]) -> None:
        self._opener = opener
        self._stores: list[Store] = []

    def __repr__(self) -> str:
        return "<StoreOpening: not opened; use async with, or await>"

    def __await__(self) -> Generator[Any, None, Store]:
        return self._opener().__await__()

    async def __aenter__(self) -> Store:
        store = await self._opener()
        self._stores.append(store)
        return store

    async def __aexit__(self, *_: object) -> None:
        await self._stores.pop().close()

    if not TYPE_CHECKING:  # a type checker would allow a plain `with`

        def __enter__(self) -> NoReturn:
            raise TypeError(
                "perdure.open needs `async with perdure.open(...) as store`; without async, use "
                "`with perdure.blocking.open(...) as store`"
            )

        def __exit__(self, *_: object) -> None:
            """Python requires this method before it calls `__enter__`, which raises the error."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"perdure.open has not opened the store yet, so it has no {name!r}: use "
            "`async with perdure.open(...) as store`, or `store = await perdure.open(...)`"
        )


@takes_declared
def open(
    address: str | None = None,
    *,
    namespace: str = "default",
    durability: Durability = "full",
    key: bytes | str | StoreKey | None = None,
    clock: Clock | None = None,
    random: RandomSource | None = None,
    is_trusted: bool = True,
    lock_timeout_s: LockTimeout = LOCK_TIMEOUT_S,
) -> StoreOpening:
    """Open the store at `address`, for an ``async with`` block or until `Store.close`.

    ``async with perdure.open(…) as store`` closes the store at the end of the block; after ``store
    = await perdure.open(…)`` the program calls ``await store.close()``.
    Shape: an address is ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``jsonl:///folder``,
    ``postgresql://user@host/database``, ``routes:///file`` or ``memory:``. Without an address,
    perdure opens ``$PERDURE_STORE``, or a file in the user data directory. `key` is 32 bytes or 64
    hexadecimal digits. If `key` is None, `perdure.client.keys` searches for a key. With
    `is_trusted` False, the permissions and open turns of a session or flow apply only if this
    user's perdure wrote their entries. docs/guides/trust.md explains how to trust a store
    (``perdure store trust``). A call waits at most `lock_timeout_s` for a lock that another process
    has. After `lock_timeout_s`, the call raises StoreLocked (a StoreUnavailable), which names the
    process that has the lock. Units: seconds.
    Raises: NotAsyncio outside an asyncio event loop; ConfigError for an invalid address;
    WrongArgument for an invalid key; Unsupported for a `key` if the backend has no encryption. A
    store that cannot be opened is not changed; the error is NotAStore, StoreTooNew, StoreTooOld,
    StoreCorrupt, StoreReadOnly, StoreUnavailable, KeyMissing, KeyWrong or StoreNotEncrypted.
    """
    outside = Outside(clock or SystemClock(), random or system_random)
    opener = partial(connect_store, address, namespace, durability, outside, key)
    return StoreOpening(partial(opener, is_trusted=is_trusted, lock_timeout_s=lock_timeout_s))


def open_copied(address: str, *, namespace: str, lock_timeout_s: float) -> StoreOpening:
    """Open the store at `address` to copy its sessions.

    The call can also open a store with the last schema that perdure used before its first release;
    a store with this old schema is read-only. The store is not trusted (see `open`). Raises: the
    errors of `open`.
    """
    outside = Outside(SystemClock(), system_random)
    opener = partial(connect_store, address, namespace, "full", outside, is_copied=True)
    return StoreOpening(partial(opener, is_trusted=False, lock_timeout_s=lock_timeout_s))


def check_address(address: str) -> str:
    """Return `address` if it is valid for a store.

    Raises: ConfigError for an unknown scheme, a missing file name, or SQLite options in the
    address.
    """
    if "\0" in address or not is_utf8(address):
        raise ConfigError(
            "the address of the store cannot hold a NUL character or half of a character pair: "
            "remove it"
        )
    scheme, colon, _ = address.partition(":")
    if scheme == ROUTES and colon:
        file_of(address)
        return address
    if not colon or scheme not in _BACKENDS:
        intended = intended_address(address)
        if intended is not None:
            told = f"{address!r} is no address of a store: write {intended}"
            raise ConfigError(told)
        raise ConfigError(
            f"there is no store {address!r}: use sqlite:///FILE, jsonl:///FOLDER, "
            "postgresql://USER@HOST/DATABASE, routes:///FILE or memory: (nothing else is available "
            "in this version)"
        )
    if scheme == "sqlite":
        name = address.removeprefix(FILE_ADDRESS)
        if name == address or not Path(name).name:
            intended = intended_address(address) or "sqlite:///relative.db"
            raise ConfigError(f"{address} names no file: use {intended}")
        if name == ":memory:":
            raise ConfigError(f"{address} would be a file of that name: use memory:")
        if _OPTIONS.search(name):
            raise ConfigError(f"{address} is not understood: an SQLite address has no options")
    return address


def _check_namespace(namespace: str) -> None:
    if not (isinstance(namespace, str) and namespace and is_utf8(namespace)):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigError(f"{namespace!r:.60} is no namespace: give it a name")
    if namespace != namespace.strip() or not namespace.isprintable():
        raise ConfigError(
            f"{namespace!r:.60} is no namespace: use a name without control characters, and "
            "without blanks at its ends"
        )


async def connect_store(
    address: str | None,
    namespace: str,
    durability: Durability,
    outside: Outside,
    key: bytes | str | StoreKey | None = None,
    *,
    is_trusted: bool = True,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    is_copied: bool = False,
) -> Store:
    """Open the store at `address`; the caller must close it.

    If `is_copied`, the call can also open a store with the last schema that perdure used before its
    first release; a store with this old schema is read-only.
    Raises: the errors of `open`.
    """
    running_loop()
    _check_namespace(namespace)
    named = check_address(address_or_default(address, os.environ, sys.platform))
    address = routed(named, namespace)
    scheme = check_address(address).partition(":")[0]
    opener = partial(
        _opener_of(scheme),
        address,
        namespace=namespace,
        durability=durability,
        clock=outside.clock,
        random=outside.random,
        lock_timeout_s=lock_timeout_s,
    )
    if is_copied and scheme in _WITH_SCHEMA:
        opener = partial(_open_copied, opener)
    if scheme == "sqlite":  # only its stores can be encrypted
        found = configured_key(key, os.environ, address)
        backend = await _opened_with_key(opener, address, found)
    elif key is not None:
        raise Unsupported("encryption", scheme)
    else:
        backend = await opener()
    if scheme != "memory" or not is_trusted:
        backend.marks = own_marks(is_trusted=is_trusted)
    if scheme != "jsonl" and not is_copied:  # session files have no index of open ends
        await _record_open_ends(backend, outside)
    return Store(backend, outside)


async def _record_open_ends(backend: SessionStore, outside: Outside) -> None:
    """Record missing episodes of ended sessions; load the needed code only if one is missing."""
    try:
        is_any = bool(await backend.open_of_all(SessionEnded.kind))
    except PerdureError:
        is_any = True  # the second reading says what is wrong
    if is_any:
        await episodes.record_open_ends(backend, outside.clock)


async def _open_copied(opener: _Opener, **key: Any) -> SessionStore:
    """Call `opener`; a store from before the first release is opened read-only."""
    try:
        return await opener(**key)
    except StoreTooOld as error:
        if not error.can_be_copied:
            raise
    return await opener(**key, is_copied=True)


def _opener_of(scheme: str) -> _Opener:
    module, name = _BACKENDS[scheme]
    try:
        with collector_paused_to_load():
            return cast("_Opener", getattr(importlib.import_module(module), name))
    except ModuleNotFoundError as error:
        raise ConfigError(f"a {scheme} store needs {error.name}: {install_of('pg')}") from error


async def _opened_with_key(opener: _Opener, address: str, key: StoreKey | None) -> SessionStore:
    """Open the store with `key`; without `key`, try the keyring's keys if the store needs one."""
    try:
        return await opener(key=key)
    except KeyMissing:
        kept = await asyncio.to_thread(keyring_keys, address) if key is None else ()
        if not kept:
            raise
    for own in kept[:-1]:
        with suppress(KeyWrong):
            return await opener(key=own)
    return await opener(key=kept[-1])
