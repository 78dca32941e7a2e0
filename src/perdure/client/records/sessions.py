"""The sessions that a record is made of, newest activity first, and their entries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

from perdure.errors import SessionNotFound
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo
from perdure.stores.protocol import SessionScope, SessionStore

_FIRST = 64
_GROWTH = 4
_PAGE = 500


async def newest_sessions(
    store: SessionStore, since_ms: int | None = None, *, scope: SessionScope = "all"
) -> AsyncIterator[SessionInfo]:
    """Yield the sessions of `scope`, newest activity first, down to `since_ms`.

    Lists grow as they are read, so a caller that stops early reads few sessions.
    Units: Unix milliseconds.
    """
    seen: set[StreamId] = set()
    limit = _FIRST
    while True:
        found = await store.sessions(limit=limit, scope=scope)
        for info in found:
            if since_ms is not None and info.updated_at < since_ms:
                return
            if info.id not in seen:
                seen.add(info.id)
                yield info
        if len(found) < limit:
            return
        limit *= _GROWTH


async def own_entries(
    store: SessionStore, session: StreamId, after: int = -1
) -> AsyncIterator[list[Entry]]:
    """Yield the entries of the session's own log after seq `after`, in pages."""
    with suppress(SessionNotFound):  # another process removed it after it was listed
        while page := await store.entries(session, after, _PAGE):
            yield page
            after = page[-1].seq
