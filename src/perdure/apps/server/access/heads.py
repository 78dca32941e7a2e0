"""A session whose next commit requires one of the heads in the ``If-Match`` of a request."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from perdure.apps.server.problems import HeadChanged, Problem
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import HeadConflict
from perdure.session.ids import StreamId
from perdure.stores.lazy_session import StoredSession
from perdure.stores.protocol import Commit, CommitResult, Write
from perdure.stores.session_store import SessionStore

_TAG = re.compile(r'(W/)?"([^"]*)"')
_DIGITS = 19


def etag_of(head: int) -> str:
    """Return the ``ETag`` of a session whose newest entry is `head`."""
    return f'"{head}"'


def heads_in(name: str, lines: Iterable[str], *, is_weak: bool = False) -> frozenset[int] | None:
    """Return the heads that the header `name` lists in its `lines`; None for ``*`` or no lines.

    With `is_weak`, weak tags are accepted too. A tag that is not a number is ignored, because it
    names no head.
    Raises: Problem 400 if the header is not a list of entity tags (RFC 9110, 8.8.3).
    """
    given = list(lines)
    text = ",".join(given).strip()
    if not given or text == "*":
        return None
    tags = _TAG.findall(text)
    elements = {each.strip(" \t") for each in _TAG.sub('""', text).split(",")}
    if not tags or elements - {"", '""'}:
        detail = f'{name} is a list of entity tags in quotes, such as "7", "8", or *'
        raise Problem(400, "invalid_request", detail)
    digits = [tag for weak, tag in tags if is_weak or not weak]
    return frozenset(int(each) for each in digits if each.isdecimal() and len(each) < _DIGITS)


async def at_head(store: Store, session: Session, head: int) -> Session:
    """Return a handle on `session` whose first commit fails if the session's head is not `head`.

    The commit itself checks the head, so if two requests run concurrently, one of them fails.
    """
    backing = _AtHead(store.backend, session.id, head)
    state = await backing.log.state(session.id)
    return Session(backing, state, store.outside, store.bus, store.hooks)


class _AtHead(StoredSession):
    """The storage of one session, whose next commit fails unless the head is the expected one."""

    def __init__(self, store: SessionStore, session: StreamId, head: int) -> None:
        super().__init__(store)
        self._session = session
        self._head: int | None = head

    async def commit(self, commit: Commit) -> CommitResult:
        """Store `commit`.

        Raises: HeadChanged if the head of the session is not the expected one; the library does not
        retry the commit after this error.
        """
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
        if write.expected_head is not None and write.expected_head != head:
            raise HeadChanged(write.expected_head)
        return msgspec.structs.replace(write, expected_head=head)
