"""List a store's sessions, newest activity first, and their entries, to compute statistics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

from perdure.client.processes import is_gone
from perdure.errors import SessionNotFound
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import ORIGINS, SessionInfo, Sought, is_found, is_sought
from perdure.stores.protocol import SessionScope
from perdure.stores.session_store import SessionStore

_FIRST = 64
_GROWTH = 4
_PAGE = 500


async def newest_sessions(
    store: SessionStore, since_ms: int | None = None
) -> AsyncIterator[SessionInfo]:
    """Yield the sessions with activity since `since_ms` (None: all), newest activity first.

    Sessions are listed in growing steps, so a caller that stops early reads few sessions.
    Units: Unix milliseconds.
    """
    seen: set[StreamId] = set()
    limit = _FIRST
    while True:
        found = await store.sessions(limit=limit, scope="all")
        for info in found:
            if since_ms is not None and info.updated_at < since_ms:
                return
            if info.id not in seen:
                seen.add(info.id)
                yield info
        if len(found) < limit:
            return
        limit *= _GROWTH


async def chosen_sessions(
    store: SessionStore, session: StreamId | None, cwd: str | None = None, since: int | None = None
) -> AsyncIterator[SessionInfo]:
    """Yield `session`, or the sessions of `newest_sessions` if `session` is None.

    With `cwd`, yield only sessions of this folder.
    Raises: SessionNotFound if `session` does not exist.
    """
    if session is not None:
        info = (await store.state(session)).info
        if is_found(info, cwd, None):
            yield info
        return
    async for info in newest_sessions(store, since):
        if is_found(info, cwd, None):
            yield info


async def sessions_with_open_turn(
    store: SessionStore, scope: SessionScope
) -> list[tuple[SessionInfo, str | None]]:
    """Return sessions with an open turn, each with the live process that runs the turn.

    Shape: newest activity first. The process is None if no process has the lease, or if the process
    with the lease is certainly dead.
    """
    found = [
        (turn.info, None if turn.holder is None or is_gone(turn.holder) else turn.holder)
        for turn in await store.open_turns()
        if turn.info.origin in ORIGINS[scope]
    ]
    return sorted(found, key=lambda each: (each[0].updated_at, each[0].id), reverse=True)


async def interrupted_sessions(
    store: SessionStore,
    *,
    limit: int | None,
    scope: SessionScope,
    cwd: str | None,
    query: str | None,
    sought: Sought,
) -> list[SessionInfo]:
    """Return sessions with an open turn that no live process runs, newest activity first."""
    found = [
        info
        for info, holder in await sessions_with_open_turn(store, scope)
        if holder is None and is_found(info, cwd, query) and is_sought(info, sought)
    ]
    return found[:limit]


async def own_entries(
    store: SessionStore, session: StreamId, after: int = -1
) -> AsyncIterator[list[Entry]]:
    """Yield the entries after seq `after` from the session's own log, in pages."""
    with suppress(SessionNotFound):  # another process removed it after it was listed
        while page := await store.entries(session, after, _PAGE):
            yield page
            after = page[-1].seq
