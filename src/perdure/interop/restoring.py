"""A session of perdure's own, from a file back into a store.

The session keeps its id where that is free, so its entries are the same to the last byte. A file
that holds less than the session here adds nothing; one that holds more adds the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.errors import HeadConflict, SessionExists, SessionNotFound
from perdure.interop.bundling import bundle_of
from perdure.interop.formats import native
from perdure.interop.formats.native import Bundle
from perdure.interop.placing import session_ids
from perdure.interop.reports import ImportReport, about
from perdure.session.clock import Clock, RandomSource
from perdure.session.entries import Entry, NewEntry, Ref, Sibling
from perdure.session.ids import EntryId, StreamId
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import MESSAGE
from perdure.stores.protocol import EMPTY, Commit, Lease, SessionStore, Write

LEASE_MS = 60_000
_ATTEMPTS = 10


async def restore(
    store: SessionStore,
    bundle: Bundle,
    *,
    subject: str | None = None,
    clock: Clock,
    random: RandomSource,
) -> ImportReport:
    """Bring the session of `bundle` into `store`; `subject`, if any, says whom it is about there.

    Durable: as one commit, or as two where the session holds turns: those need its lease, so it is
    created first. After a crash in between, the same import goes on.
    Raises: LeaseHeld when another import of it is under way; what ``SessionStore.commit`` raises.
    """
    if subject is not None:
        bundle = _about(bundle, subject)
    for _ in range(_ATTEMPTS - 1):
        try:
            return await _restore_once(store, bundle, clock, random)
        except (SessionExists, HeadConflict):
            continue
    return await _restore_once(store, bundle, clock, random)


async def _restore_once(
    store: SessionStore, bundle: Bundle, clock: Clock, random: RandomSource
) -> ImportReport:
    passed: list[StreamId] = []
    for stream in session_ids(native.FORMAT, bundle.header.id, b""):
        wanted = native.renamed(bundle, stream)
        try:
            here = await bundle_of(store, stream)
        except SessionNotFound:
            await _append(store, wanted, 0, clock, random, is_new=True)
            return _report(wanted, 0, passed, is_new=True)
        subject, wanted = wanted.header.subject, _about(wanted, here.header.subject)
        common = _common(here, wanted)
        if common == len(wanted.entries):
            return about(_report(wanted, common, [], is_new=False), subject, here.header)
        state = await store.state(stream)
        if common == len(here.entries) and state.header == wanted.header:
            await _append(store, wanted, common, clock, random, is_new=False)
            return about(_report(wanted, common, [], is_new=False), subject, here.header)
        passed.append(stream)
    raise AssertionError("session_ids never ends")


def _about(bundle: Bundle, subject: str | None) -> Bundle:
    header = msgspec.structs.replace(bundle.header, subject=subject)
    return msgspec.structs.replace(bundle, header=header)


def _common(here: Bundle, wanted: Bundle) -> int:
    """How many entries at their beginning are the same; -1 for another session altogether."""
    if here.header != wanted.header:
        return -1
    pairs = zip(here.entries, wanted.entries, strict=False)
    return next(
        (n for n, (own, other) in enumerate(pairs) if own != other),
        min(len(here.entries), len(wanted.entries)),
    )


def _report(
    bundle: Bundle, first: int, passed: Sequence[StreamId], *, is_new: bool
) -> ImportReport:
    added = bundle.entries[first:]
    stream = bundle.header.id
    warnings = [f"session {passed[0]} is another one; this one became {stream}"] if passed else []
    return ImportReport(
        session=stream,
        format=native.FORMAT,
        entries=len(added),
        messages=sum(entry.kind == MESSAGE for entry in added),
        skipped=0,
        malformed=(),
        warnings=tuple(warnings),
        is_new=is_new,
    )


async def _append(
    store: SessionStore,
    bundle: Bundle,
    first: int,
    clock: Clock,
    random: RandomSource,
    *,
    is_new: bool,
) -> None:
    """Append the entries of `bundle` from seq `first` on."""
    stream, added = bundle.header.id, bundle.entries[first:]
    write = Write(
        stream=stream,
        entries=_new_entries(bundle, first),
        create=bundle.header if is_new else None,
        expected_head=None if is_new else first - 1,
    )
    if not any(entry.kind in (TurnStarted.kind, TurnFinished.kind) for entry in added):
        await _commit(store, write, bundle, clock)
        return
    if is_new:
        await _commit(store, msgspec.structs.replace(write, entries=()), bundle, clock)
        write = msgspec.structs.replace(write, create=None, expected_head=EMPTY)
    lease = await _lease(store, stream, random)
    try:
        await _commit(store, msgspec.structs.replace(write, lease=lease), bundle, clock)
    finally:
        await store.release_lease(lease)


async def _lease(store: SessionStore, stream: StreamId, random: RandomSource) -> Lease:
    return await store.acquire_lease(stream, f"import-{random(8).hex()}", LEASE_MS)


async def _commit(store: SessionStore, write: Write, bundle: Bundle, clock: Clock) -> None:
    await store.commit(Commit(writes=(write,), at=clock.now_ms(), blobs=bundle.blobs))


def _new_entries(bundle: Bundle, first: int) -> tuple[NewEntry, ...]:
    names: dict[EntryId, str] = {entry: alias for alias, entry in bundle.aliases.items()}
    return tuple(_new_entry(entry, first, names.get(entry.id)) for entry in bundle.entries[first:])


def _new_entry(entry: Entry, first: int, alias: str | None) -> NewEntry:
    is_tree = entry.lane == "tree"
    return NewEntry(
        kind=entry.kind,
        body=entry.body,
        v=entry.v,
        lane=entry.lane,
        parent=_ref(entry.parent_id, entry, first) if is_tree else None,
        about=None if is_tree else _ref(entry.about, entry, first),
        at=entry.at,
        alias=alias,
    )


def _ref(target: EntryId | None, entry: Entry, first: int) -> Ref | None:
    """`target` as a sibling where it is among the entries appended along with `entry`."""
    stream, _, seq = (target or "").rpartition("/")
    if target is None or stream != entry.stream or int(seq) < first:
        return target
    return Sibling(int(seq) - first)
