"""The folder of session files that the suite runs against, in each dialect."""

from __future__ import annotations

from pathlib import Path

from perdure.session.clock import Clock, RandomSource
from perdure.stores.jsonl.store import DialectName, JsonlStore
from perdure.stores.session_store import SessionStore

CODECS: dict[str, DialectName] = {"jsonl-operator": "operator", "jsonl-pi": "pi"}
"""Maps the name of a backend to the dialect of its files."""


class JsonlData:
    """The data of a store of session files: a folder."""

    is_durable = True

    def __init__(
        self, folder: Path, dialect: DialectName, clock: Clock, random: RandomSource
    ) -> None:
        self.folder = folder
        self._dialect: DialectName = dialect
        self._clock = clock
        self._random = random
        self._opened: list[SessionStore] = []

    async def open(self, namespace: str = "default") -> SessionStore:
        store = await JsonlStore.open(
            self.folder,
            dialect=self._dialect,
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
