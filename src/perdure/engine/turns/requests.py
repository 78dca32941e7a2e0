"""Requests for turns: programs append a request, and workers answer it.

A request is open until a ``turn_started`` or ``turn_refused`` refers to it. Only the owner of the
session's lease appends the entries that close a request. Before the owner appends an entry that
closes a request, the owner checks that the request is still open at the current head.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from perdure.engine.turns.inputs import Broken
from perdure.engine.turns.lease import Claim, leading
from perdure.engine.turns.recovery import close_turn, open_turn
from perdure.errors import HeadConflict, RequestAnswered
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, entry_id, entry_place
from perdure.session.ledger import TurnRefused, TurnStarted, TurnStopRequested
from perdure.stores.protocol import Commit, LogReader, Write

STOPPED = ("aborted", "the request was stopped before a worker began it")
"""Code and text of the refusal if a request is stopped before its turn has begun."""

_CLOSING = (TurnStarted.kind, TurnRefused.kind)

FEW = 32
"""Maximum number of entries of the first read: usually, only few entries follow a request.

If more entries follow, only entries of the wanted kinds are read.
"""


class OpenRequest(msgspec.Struct, frozen=True):
    """A request that no turn has answered, and the newest request to stop it."""

    entry: Entry
    stop: TurnStopRequested | None


async def open_request(
    store: LogReader, stream: StreamId, request: int, page: Sequence[Entry] = ()
) -> OpenRequest | None:
    """Return the request with seq `request`; None if it is answered or erased.

    `page` contains the newest entries of `stream`, if they were already read.
    """
    found = [entry for entry in page if entry.seq >= request]
    is_whole = bool(found) and found[0].seq == request
    if not is_whole:
        found = await store.entries(stream, after=request - 1, limit=FEW)
    if not found or found[0].is_erased:
        return None
    entry, *following = found
    if len(found) == FEW and not is_whole:
        following = await _of_kinds(store, stream, request, (*_CLOSING, TurnStopRequested.kind))
    if _closing(following, entry.id) is not None:
        return None
    return OpenRequest(entry, _newest_stop(following, {entry.id}))


async def closing_entry(store: LogReader, stream: StreamId, request: int) -> Entry | None:
    """Return the entry that closes the request with seq `request`; None while it is open."""
    following = await store.entries(stream, after=request, limit=FEW)
    if len(following) == FEW:
        following = await _of_kinds(store, stream, request, _CLOSING)
    return _closing(following, entry_id(stream, request))


async def _of_kinds(
    store: LogReader, stream: StreamId, after: int, kinds: tuple[str, ...]
) -> list[Entry]:
    """Return the entries after seq `after` that have one of `kinds`, in the order of `kinds`."""
    return [each for kind in kinds for each in await store.entries(stream, after, kind=kind)]


def _closing(entries: Sequence[Entry], request: EntryId) -> Entry | None:
    found = (each for each in entries if each.kind in _CLOSING and each.about == request)
    return next(found, None)


def _newest_stop(entries: Sequence[Entry], about: set[EntryId]) -> TurnStopRequested | None:
    for entry in reversed(entries):
        if entry.kind == TurnStopRequested.kind and entry.about in about:
            body = body_of(entry)
            if isinstance(body, TurnStopRequested):
                return body
    return None


async def require_open(
    store: LogReader, stream: StreamId, request: int | None, page: Sequence[Entry]
) -> None:
    """Raise RequestAnswered if the request with seq `request` is answered, erased or stopped.

    `page` contains the newest entries of `stream`, if they were already read.
    """
    if request is None:
        return
    found = await open_request(store, stream, request, page)
    if found is None or found.stop is not None:
        raise RequestAnswered(stream, request)


async def refuse_request(claim: Claim, request: int, code: str, error: str) -> None:
    """Close the request with seq `request` without a turn, unless it is already closed.

    Raises: LeaseHeld if another process runs a turn of the session.
    """
    async with leading(claim) as leadership:
        while await closing_entry(claim.store, claim.stream, request) is None:
            state = await claim.store.state(claim.stream)
            body = new_side(TurnRefused(code, error), entry_id(claim.stream, request))
            write = Write(stream=claim.stream, entries=(body,), expected_head=state.head)
            with suppress(HeadConflict):
                await leadership.commit(Commit(writes=(write,), at=claim.clock.now_ms()))


async def break_turn(claim: Claim, reason: str) -> None:
    """End the open turn as failed, if there is one; `reason` says why.

    Raises: LeaseHeld if another process runs the turn.
    """
    async with leading(claim) as leadership:
        while (turn := await open_turn(claim.store, claim.stream)) is not None:
            with suppress(HeadConflict):  # others may append while this process leads
                await close_turn(claim, leadership, turn, Broken(reason))


async def requested_stop(
    store: LogReader, stream: StreamId, turn: int, request: int | None
) -> TurnStopRequested | None:
    """Return the newest stop request for the turn that began at seq `turn`, or for `request`."""
    after = turn if request is None else min(turn, request)
    about = {entry_id(stream, turn), entry_id(stream, after)}
    found = await store.entries(stream, after=after, kind=TurnStopRequested.kind)
    return _newest_stop(found, about)


async def stop_of_turn(store: LogReader, stream: StreamId, turn: int) -> TurnStopRequested | None:
    """Return the newest stop request for the turn at seq `turn`, or for the turn's own request."""
    (begun,) = await store.entries(stream, after=turn - 1, limit=1)
    request = None if begun.about is None else entry_place(begun.about)[1]
    return await requested_stop(store, stream, turn, request)
