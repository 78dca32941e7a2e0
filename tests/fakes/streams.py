"""Helpers that create streams and entries in one line each."""

from __future__ import annotations

from perdure.session.codec import new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import user
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import START_MS

S = StreamId("s")


async def create(store: SessionStore, stream: StreamId = S) -> None:
    """Create an empty stream."""
    header = StreamHeader(stream, START_MS)
    await store.commit(Commit(writes=(Write(stream=stream, create=header),), at=START_MS))


async def say(store: SessionStore, *texts: str, stream: StreamId = S) -> list[Entry]:
    """Append user messages at the leaf, in one commit."""
    entries = tuple(new_tree(user(text)) for text in texts)
    return await append(store, *entries, stream=stream)


async def append(store: SessionStore, *entries: NewEntry, stream: StreamId = S) -> list[Entry]:
    """Append `entries` in one commit; return them as they are stored."""
    write = Write(stream=stream, entries=entries)
    committed = await store.commit(Commit(writes=(write,), at=START_MS))
    return list(committed.entries[0])
