"""A session whose next commit needs the head that the ``If-Match`` of a request names."""

from __future__ import annotations

import msgspec

from perdure.apps.server.problems import HeadChanged
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import HeadConflict
from perdure.session.ids import StreamId
from perdure.stores.lazy_session import StoredSession
from perdure.stores.protocol import Commit, CommitResult, Write
from perdure.stores.session_store import SessionStore


async def at_head(store: Store, session: Session, head: int) -> Session:
    """Return a handle on `session` whose first commit fails unless its head is `head`.

    The commit itself checks the head, so that of two requests at once one fails.
    """
    backing = _AtHead(store.backend, session.id, head)
    state = await backing.log.state(session.id)
    return Session(backing, state, store.outside, store.bus, store.hooks)


class _AtHead(StoredSession):
    """The storage of one session at a head."""

    def __init__(self, store: SessionStore, session: StreamId, head: int) -> None:
        super().__init__(store)
        self._session = session
        self._head: int | None = head

    async def commit(self, commit: Commit) -> CommitResult:
        """Commit. Raises: HeadChanged, which no retry of the library suppresses."""
        forked = [each.create.fork for each in commit.writes if each.create and each.create.fork]
        if self._head is not None and forked and forked[0].head != self._head:
            raise HeadChanged(forked[0].head)  # what it is of was read before
        if self._head is None or all(each.stream != self._session for each in commit.writes):
            return await super().commit(commit)
        writes = tuple(self._expecting(each, self._head) for each in commit.writes)
        try:
            done = await super().commit(msgspec.structs.replace(commit, writes=writes))
        except HeadConflict as error:
            raise HeadChanged(error.actual) from error
        self._head = None
        return done

    def _expecting(self, write: Write, head: int) -> Write:
        if write.stream != self._session:
            return write
        if write.expected_head not in (None, head):
            raise HeadChanged(write.expected_head)
        return msgspec.structs.replace(write, expected_head=head)
