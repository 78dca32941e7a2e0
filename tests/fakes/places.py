"""Locations of stores. Tests open a store several times, as several programs do."""

from __future__ import annotations

from pathlib import Path

from perdure.client.clock import Outside
from perdure.client.open import connect_store
from perdure.client.store import Store
from perdure.stores.in_memory.store import MemoryStore
from tests.fakes.clock import ManualClock, SeededRandom

PLACES = ("memory", "sqlite")


class Place:
    """Where a store's data is. Each `open` returns a separate handle, as in another program."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.clock = ManualClock()
        self.outside = Outside(self.clock, SeededRandom(7))
        self._address = f"sqlite:///{folder / 'sessions.db'}" if kind == "sqlite" else ""
        self._memory = MemoryStore(clock=self.clock, random=self.outside.random)
        self._opened: list[Store] = []

    async def open(self) -> Store:
        """Open the store once more."""
        if self._address:
            store = await connect_store(self._address, "default", "normal", self.outside)
        else:
            store = Store(self._memory.sharing(), self.outside)
        self._opened.append(store)
        return store

    async def close(self) -> None:
        """Close every handle."""
        for store in self._opened:
            await store.close()
