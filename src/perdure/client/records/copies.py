"""Count the entries copied from a fork's origin, in stores whose forks cannot share entries."""

from __future__ import annotations

from collections.abc import AsyncIterator

from perdure.client.records.sessions import own_entries
from perdure.errors import SessionNotFound
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo
from perdure.session.messages import MESSAGE
from perdure.session.notes import SessionStarted
from perdure.stores.session_store import SessionStore


async def copied_entries(store: SessionStore, info: SessionInfo) -> int:
    """Return how many entries at the start of the session `info` are copies from its parent.

    A copied message has the time and the content of a message of the parent, and was written before
    the fork was created. If the parent was erased, only the fork still has the messages, and the
    result is 0.
    """
    is_other = info.is_role or info.source is not None
    if info.parent is None or is_other:  # an imported session has its own marks: `is_copy`
        return 0
    if info.origin == "subagent" and await _was_invoked(store, info.id):
        return 0
    try:
        if (await store.state(info.id)).header.fork is not None:  # it shares entries
            return 0
    except SessionNotFound:
        return 0
    count = 0
    originals = _messages(store, info.parent)
    async for page in own_entries(store, info.id):
        for entry in page:
            if entry.kind != MESSAGE:
                continue
            if entry.at > info.created_at or not await _has_original(entry, originals):
                return count
            count = entry.seq + 1
    return count


async def _was_invoked(store: SessionStore, session: StreamId) -> bool:
    """Return whether a call opened `session`; False for a copy made by a fork.

    The origin "subagent" is not enough to decide, because a copy made by a fork can have this
    origin, too. Only the first entry is read, because a session can be long.
    """
    first = await store.entries(session, limit=1)
    return bool(first) and first[0].kind == SessionStarted.kind


async def has_parent(store: SessionStore, info: SessionInfo) -> bool:
    """Return whether the session that `info` was forked from still has its log."""
    if info.parent is None:
        return False
    try:
        return (await store.state(info.parent)).info.status != "erased"
    except SessionNotFound:
        return False


async def _has_original(copy: Entry, originals: AsyncIterator[Entry]) -> bool:
    """Advance `originals` to the message that `copy` repeats; return False if there is none."""
    async for original in originals:
        if original.at == copy.at and readable(original) == readable(copy):
            return True
    return False


async def _messages(store: SessionStore, session: StreamId) -> AsyncIterator[Entry]:
    """Yield the session's messages in log order; a fork's shared messages come first."""
    try:
        fork = (await store.state(session)).header.fork
    except SessionNotFound:
        return
    if fork is not None:
        async for entry in _messages(store, fork.stream):
            yield entry
    async for page in own_entries(store, session):
        for entry in page:
            if entry.kind == MESSAGE:
                yield entry
