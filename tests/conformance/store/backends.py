"""The backends of the suite, each as a factory of empty stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from perdure.session.clock import Clock, RandomSource
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.jsonl.store import DialectName
from perdure.stores.key import KEY_BYTES, StoreKey
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.session_store import SessionStore
from perdure.stores.sqlite.store import SqliteStore
from tests.conformance.store.jsonl_data import CODECS, JsonlData
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.postgres import PostgresServer

ENCRYPTED = "sqlite-encrypted"


class Data(Protocol):
    """The data of one store, which a test can open several times."""

    is_durable: bool

    async def open(self, namespace: str = "default") -> SessionStore:
        """Open another handle on the same data."""
        ...

    async def close(self) -> None:
        """Close every handle."""
        ...


class MemoryData:
    """An in-memory store shared by several handles."""

    is_durable = False

    def __init__(self, clock: Clock, random: RandomSource) -> None:
        self._first = MemoryStore(clock=clock, random=random)
        self._opened: list[SessionStore] = []

    async def open(self, namespace: str = "default") -> SessionStore:
        store = self._first.sharing(namespace)
        self._opened.append(store)
        return store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


class SqliteData:
    """The data of a SQLite store: a database file."""

    is_durable = True

    def __init__(
        self, path: Path, clock: Clock, random: RandomSource, key: StoreKey | None = None
    ) -> None:
        self._path = path
        self._key = key
        self._clock = clock
        self._random = random
        self._opened: list[SessionStore] = []

    async def open(self, namespace: str = "default") -> SessionStore:
        store = await SqliteStore.open(
            self._path,
            namespace=namespace,
            durability="normal",
            clock=self._clock,
            random=self._random,
            key=self._key,
        )
        self._opened.append(store)
        return store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


class PostgresData:
    """The data of a PostgreSQL store: a database on a server."""

    is_durable = True

    def __init__(self, server: PostgresServer, clock: Clock, random: RandomSource) -> None:
        self._server = server
        self._address = server.take()
        self._clock = clock
        self._random = random
        self._opened: list[SessionStore] = []

    async def open(self, namespace: str = "default") -> SessionStore:
        store = await PostgresStore.open(
            self._address,
            namespace=namespace,
            durability="normal",
            clock=self._clock,
            random=self._random,
        )
        self._opened.append(store)
        return store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        self._server.give_back(self._address)


class Setting(NamedTuple):
    """What a new store needs: an unused path, the clock, random bytes, and a server."""

    path: Path
    clock: ManualClock
    random: SeededRandom
    server: PostgresServer | None

    def postgres(self) -> PostgresData:
        """Return a database of the server."""
        assert self.server is not None
        return PostgresData(self.server, self.clock, self.random)

    def sqlite(self, key: StoreKey | None = None) -> SqliteData:
        """Return a database file."""
        return SqliteData(self.path.with_suffix(".db"), self.clock, self.random, key)


def jsonl_data(dialect: DialectName, setting: Setting) -> JsonlData:
    """Return a folder of session files."""
    return JsonlData(setting.path, dialect, setting.clock, setting.random)


BACKENDS: Mapping[str, Callable[[Setting], Data]] = {
    "memory": lambda setting: MemoryData(setting.clock, setting.random),
    "sqlite": Setting.sqlite,
    ENCRYPTED: lambda setting: setting.sqlite(StoreKey(setting.random(KEY_BYTES))),
    "postgres": Setting.postgres,
    **{name: partial(jsonl_data, dialect) for name, dialect in CODECS.items()},
}
"""Maps the name of a backend to the function that creates the data of a store."""


class Backend:
    """Creates stores of one kind, all on one clock. Only the kind ``postgres`` needs a `server`."""

    def __init__(
        self, name: str, folder: Path, clock: ManualClock, server: PostgresServer | None = None
    ) -> None:
        self.name = name
        self.clock = clock
        self._folder = folder
        self._server = server
        self._made = 0

    def new(self) -> Data:
        """Return the data of an empty store."""
        self._made += 1
        random = SeededRandom(self._made)
        setting = Setting(self._folder / str(self._made), self.clock, random, self._server)
        return BACKENDS[self.name](setting)
