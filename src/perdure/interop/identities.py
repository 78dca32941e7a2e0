"""What a session sees and what others call it: its entries, shared ones too, with foreign ids."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.stores.protocol import SessionStore


async def seen_entries(store: SessionStore, stream: StreamId) -> list[Entry]:
    """The tree entries that `stream` shares with others, then its own log.

    Raises: SessionNotFound.
    """
    shared = [entry for entry in await store.tree(stream) if entry.stream != stream]
    return [*shared, *await store.entries(stream)]


async def foreign_ids(store: SessionStore, entries: Iterable[Entry]) -> dict[str, EntryId]:
    """Foreign id -> entry, for all streams that `entries` are of; later streams count."""
    ids: dict[str, EntryId] = {}
    for stream in dict.fromkeys(entry.stream for entry in entries):
        ids.update(await store.aliases(stream))
    return ids
