"""The backends that the suite runs against, each as a maker of empty stores."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from perdure.session.clock import Clock, RandomSource
from perdure.stores.in_memory import MemoryStore
from perdure.stores.protocol import SessionStore
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import ManualClock, SeededRandom

BACKENDS = ("memory", "sqlite")


class Data(Protocol):
    """One store's data, which can be opened several times over."""

    is_durable: bool

    async def open(self, namespace: str = "default") -> SessionStore:
        """Another handle on the same data."""
        ...

    async def close(self) -> None:
        """Close every handle."""
        ...


class MemoryData:
    """A memory that several handles share."""

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
    """A database file."""

    is_durable = True

    def __init__(self, path: Path, clock: Clock, random: RandomSource) -> None:
        self._path = path
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
        )
        self._opened.append(store)
        return store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


class Backend:
    """Makes stores of one kind, all on one clock."""

    def __init__(self, name: str, folder: Path, clock: ManualClock) -> None:
        self.name = name
        self.clock = clock
        self._folder = folder
        self._made = 0

    def new(self) -> Data:
        """The data of a store that is still empty."""
        self._made += 1
        random = SeededRandom(self._made)
        if self.name == "memory":
            return MemoryData(self.clock, random)
        return SqliteData(self._folder / f"{self._made}.db", self.clock, random)
