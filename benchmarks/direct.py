"""The store's append on the caller's own thread and connection: no asyncio, no writer's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.figures import append
from perdure.session.entries import NewEntry
from perdure.session.ids import StreamId
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.store import SqliteStore

T = TypeVar("T")


class Direct:
    """Appends to an open store without other writers."""

    def __init__(self, store: SqliteStore) -> None:
        database = store.handle.database()
        self._tables = Tables(database._connect())  # pyright: ignore[reportPrivateUsage] # noqa: SLF001 - below the public surface
        self._tables.run(f"PRAGMA synchronous = {store.durability}")
        self._tables.run("PRAGMA wal_autocheckpoint = 1000")  # as the raw driver does
        self._store = store
        setattr(database, "write", self._write)  # noqa: B010 - the type checker forbids it otherwise

    def append(self, stream: StreamId, entries: Sequence[NewEntry]) -> None:
        """Append one commit, durable on return."""
        steps = append(self._store, stream, entries)
        try:
            steps.send(None)
        except StopIteration:
            return
        raise AssertionError("nothing in an append waits for anything but the writer")

    async def _write(
        self, work: Callable[[Tables], T], durability: str, *, is_composite: bool = False
    ) -> T:
        del durability, is_composite  # set for the connection; the only one in its transaction
        self._tables.run("BEGIN IMMEDIATE")
        result = work(self._tables)
        self._tables.run("COMMIT")
        return result

    def close(self) -> None:
        """Close the connection."""
        self._tables.db.close()
