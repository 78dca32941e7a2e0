"""Helpers that append and read entries, used by most tests of this folder."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from perdure.secrets import mask
from perdure.session.codec import encode, new_side, new_tree
from perdure.session.entries import LEAF, Entry, NewEntry, ParentRef, Ref
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint, Origin, StreamHeader, StreamKind
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import assistant, user
from perdure.session.notes import Label, LeafMoved
from perdure.stores.protocol import Commit, Lease, Write
from perdure.stores.retention.erase import EraseRequest, ForkPolicy
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import START_MS

S = StreamId("s")
"""The stream of tests that need only one."""

MINUTE_MS = 60_000
TTL_MS = 30_000
"""The duration of most leases in these tests."""


def said(
    text: str = "hello",
    parent: ParentRef = LEAF,
    *,
    at: int | None = None,
    alias: str | None = None,
) -> NewEntry:
    """Return a user message."""
    return new_tree(user(text), parent, at=at, alias=alias)


def replied(text: str = "hi", parent: ParentRef = LEAF, *, at: int | None = None) -> NewEntry:
    """Return a model message."""
    return new_tree(assistant(text), parent, at=at)


def labelled(text: str | None, about: Ref | None) -> NewEntry:
    """Return a label."""
    return new_side(Label(text), about)


def moved(target: EntryId | None) -> NewEntry:
    """Return a move of the leaf."""
    return new_side(LeafMoved(target))


def turn_started(number: int = 1) -> NewEntry:
    """Return the start of a turn."""
    return new_side(TurnStarted(number, "agent"))


def turn_finished(about: Ref | None = None) -> NewEntry:
    """Return the end of a turn."""
    return new_side(TurnFinished("stop"), about)


def unknown(body: bytes = b'{"x":1}', *, kind: str = "from_the_future", v: int = 7) -> NewEntry:
    """Return a tree entry of an unknown kind."""
    return NewEntry(kind, body, v)


def header(
    stream: str,
    *,
    created_at: int = START_MS,
    kind: StreamKind = "session",
    origin: Origin = "user",
    cwd: str | None = None,
    title: str | None = None,
    fork: ForkPoint | None = None,
    subject: str | None = None,
) -> StreamHeader:
    """Return the header of a new stream."""
    id_ = StreamId(stream)
    return StreamHeader(
        id_, created_at, kind, origin, cwd=cwd, title=title, fork=fork, subject=subject
    )


async def create(store: SessionStore, new: StreamHeader | str = S, *entries: NewEntry) -> StreamId:
    """Create a stream with `entries` in one commit."""
    new = new if isinstance(new, StreamHeader) else header(new)
    write = Write(stream=new.id, create=new, entries=entries)
    await store.commit(Commit(writes=(write,), at=START_MS))
    return new.id


async def append(
    store: SessionStore,
    stream: StreamId,
    *entries: NewEntry,
    lease: Lease | None = None,
    key: str | None = None,
    expected_head: int | None = None,
    expected_leaf: EntryId | msgspec.UnsetType | None = msgspec.UNSET,
    at: int = START_MS,
) -> list[Entry]:
    """Append `entries` to `stream` in one commit."""
    write = Write(
        stream=stream,
        entries=entries,
        expected_head=expected_head,
        expected_leaf=expected_leaf,
        lease=lease,
    )
    committed = await store.commit(Commit(writes=(write,), at=at, idempotency_key=key))
    return list(committed.entries[0])


async def said_to_old_version(store: SessionStore, text: str, stream: StreamId = S) -> None:
    """Append a message as an old version did, which stored unmasked secrets in a session's info."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mask, "mask_secrets", str)
        await append(store, stream, said(text))


async def append_one(
    store: SessionStore, stream: StreamId, new: NewEntry, *, lease: Lease | None = None
) -> Entry:
    """Append `new` to `stream`."""
    (entry,) = await append(store, stream, new, lease=lease)
    return entry


async def in_a_turn(store: SessionStore) -> Lease:
    """Open a turn in a new stream "s": s/0 precedes the turn, s/1 starts it, s/2 is its input."""
    await create(store, S, said("before"))
    lease = await store.acquire_lease(S, "me", TTL_MS)
    await append(store, S, turn_started(), said("do it"), lease=lease)
    return lease


def erasure(name: str, *, id: str = "e", forks: ForkPolicy = "refuse") -> EraseRequest:
    """Return the request to erase the session `name`."""
    return EraseRequest(id=id, scope="session", by="me", at=START_MS, name=name, forks=forks)


async def fork(
    store: SessionStore,
    origin: StreamId,
    stream: str,
    *entries: NewEntry,
    at: EntryId | msgspec.UnsetType | None = msgspec.UNSET,
    scope: Literal["tree", "path"] = "tree",
    head: int | None = None,
) -> StreamId:
    """Fork `origin` as it is now, at `at` (default: the origin's leaf)."""
    state = await store.state(origin)
    point = ForkPoint(
        stream=origin,
        leaf=state.leaf if at is msgspec.UNSET else at,
        head=state.head if head is None else head,
        scope=scope,
    )
    return await create(store, header(stream, fork=point), *entries)


def ids(entries: list[Entry]) -> list[EntryId]:
    """Return the ids of `entries`."""
    return [entry.id for entry in entries]


def texts(entries: list[Entry]) -> list[str]:
    """Return the texts of the messages among `entries`."""
    return [entry.message.text for entry in entries if entry.message is not None]


def plain(value: object) -> NewEntry:
    """Return a tree entry of an unknown kind with `value` as its body."""
    return NewEntry("plain", encode(value))
