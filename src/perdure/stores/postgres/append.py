"""Build and run the statements of a commit, and handle concurrent writers.

A handle caches the state of the streams it wrote. While the handle is the only writer, a commit is
one round trip, and this process plans all changes. Before any change, ``perdure.append`` checks in
the server that the stream matches the cached state (same hash, same epoch). If the cached state is
outdated, or the commit writes to several streams, the commit locks the rows of the streams, in the
order of their ids, and then reads the rows. A commit is rejected only based on rows that were read
under a lock.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import LiteralString
from weakref import WeakValueDictionary

import msgspec

from perdure.errors import (
    Erased,
    IdempotencyMismatch,
    LeaseHeld,
    PerdureError,
    SessionNotFound,
)
from perdure.session.codec import encode
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import bare_info
from perdure.stores.chain import SALT_BYTES
from perdure.stores.postgres.births import asked_for_new, born, create_in, creation
from perdure.stores.postgres.branches import ask_nodes, ask_state
from perdure.stores.postgres.database import Connected, Database, Statement, run_statements
from perdure.stores.postgres.faults import is_lost, is_worth_another
from perdure.stores.postgres.leases import acquiring_lease, lease_taken, releasing_lease
from perdure.stores.postgres.lists import kept_beside
from perdure.stores.postgres.reads import ask_streams
from perdure.stores.postgres.row_builder import Facts, NotLookedUp, Share, share_off_loop
from perdure.stores.postgres.rows import (
    ENTRY_COLUMNS,
    State,
    Stream,
    Texts,
    entry_of,
    node_of,
)
from perdure.stores.postgres.rows import stream_of as stream_of_row
from perdure.stores.protocol import Commit, CommitResult, Lease, LeaseRequest, Write

MOST_STANDING = 1_000
"""Number of streams that a handle caches between commits."""

ATTEMPTS = 5
"""Maximum number of attempts if a commit meets a deadlock or a race for its idempotency key."""

_APPEND: LiteralString = "SELECT perdure.append(" + "%s, " * 22 + "%s)"

_KEEP_STATE: LiteralString = "INSERT INTO perdure.state VALUES (%s, %s, %s, %s, %s, %s, %s)"

_KEEP_ALIASES: LiteralString = """
INSERT INTO perdure.alias SELECT %s, %s, a.name, a.seq
FROM unnest(%s::bytea[], %s::bigint[]) AS a (name, seq)
ON CONFLICT (namespace, stream, name) DO UPDATE SET seq = excluded.seq
"""

_KEEP_BLOB: LiteralString = "SELECT perdure.keep_blob(%s, %s, %s)"

_KEEP_KEY: LiteralString = "SELECT perdure.keep_key(%s, %s, %s, %s, %s, %s)"

LOCK: LiteralString = """
SELECT id FROM perdure.stream WHERE namespace = %s AND id = ANY(%s) ORDER BY id FOR UPDATE
"""

_SAME_KEY: LiteralString = """
SELECT fingerprint, firsts FROM perdure.idempotency WHERE namespace = %s AND key = %s
"""

_REPLAYED: LiteralString = f"""
SELECT {ENTRY_COLUMNS} FROM perdure.entry AS e
WHERE e.namespace = %s AND e.stream = %s AND e.seq >= %s ORDER BY e.seq LIMIT %s
"""  # noqa: S608 - put together from constants


@dataclass(frozen=True, slots=True)
class Request:
    """A commit with its prepared parts: fingerprint, a salt per entry, blobs by name.

    `now` is the time for leases if the handle has its own clock. Units: Unix milliseconds.
    """

    commit: Commit
    asked: bytes
    salts: bytes
    blobs: Sequence[tuple[str, bytes]]
    now: int | None = None

    @property
    def key(self) -> bytes | None:
        """The database form of the idempotency key."""
        key = self.commit.idempotency_key
        return (
            None if key is None else hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
        )

    def salts_of(self, number: int) -> bytes:
        """Return the salts for the entries of the commit's write with index `number`."""
        before = sum(len(write.entries) for write in self.commit.writes[:number])
        count = len(self.commit.writes[number].entries)
        return self.salts[before * SALT_BYTES : (before + count) * SALT_BYTES]

    def led(self, number: int, lease: Lease) -> Request:
        """Return a copy of the request with the acquired `lease`.

        `number` is the index of the write that acquired the lease.
        """
        writes = list(self.commit.writes)
        writes[number] = msgspec.structs.replace(writes[number], lease=lease, taking=None)
        return replace(self, commit=msgspec.structs.replace(self.commit, writes=tuple(writes)))


class Appender:
    """Appends the commits of one handle."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._turns: WeakValueDictionary[StreamId, asyncio.Lock] = WeakValueDictionary()
        self._standing: dict[StreamId, Stream] = {}
        self._left: dict[StreamId, bytes] = {}

    def forget(self, stream: StreamId) -> None:
        """Drop the cached state of `stream`."""
        self._standing.pop(stream, None)

    def record_lease(self, lease: Lease) -> None:
        """Record the acquired `lease` and its epoch in the cached state of the stream."""
        stream = self._standing.get(lease.stream)
        if stream is not None:
            led = stream.with_lease(lease.epoch, lease.owner, lease.until)
            self._standing[lease.stream] = led

    async def append(self, request: Request) -> CommitResult:
        """Append the commit of `request`, with the guarantees of ``SessionStore.commit``.

        Commits to one stream through this handle run in the order of their calls.
        """
        writes = request.commit.writes
        if len(writes) == 1:
            async with self._turns.setdefault(writes[0].stream, asyncio.Lock()):
                return await self._append(request)
        async with AsyncExitStack() as turns:
            for stream in sorted({write.stream for write in writes}):
                await turns.enter_async_context(self._turns.setdefault(stream, asyncio.Lock()))
            return await self._append(request)

    async def _append(self, request: Request) -> CommitResult:
        commit = request.commit
        if len(commit.writes) == 1 and not request.blobs:
            write = commit.writes[0]
            attempt = self._believing if write.create is None else self._creating
            if (committed := await attempt(request, write)) is not None:
                return committed
        for attempt in range(1, ATTEMPTS + 1):
            sent = asyncio.Event()  # until then nothing is committed for certain
            try:
                return await self._locking(request, sent)
            except PerdureError as error:
                is_cut = attempt == 1 and not sent.is_set() and is_lost(error.__cause__)
                if attempt == ATTEMPTS or not (is_cut or is_worth_another(error.__cause__)):
                    raise
        raise AssertionError("the last attempt returns or raises")

    # -- one stream, from the cached state

    async def _believing(self, request: Request, write: Write) -> CommitResult | None:
        """Append based on the cached state; return None if the stream may have another state."""
        stream = self._standing.pop(write.stream, None)
        if stream is None or not write.entries:
            return None
        if write.taking is not None:
            epoch, owner = stream.state.epoch + 1, write.taking.owner
            stream = stream.with_lease(epoch, owner, 0)
            request = request.led(0, Lease(write.stream, owner, epoch, 0))
        share = await self._believed_share(request, stream)
        if share is None:
            return None
        try:
            leases = await self._send(share, request, write)
        except PerdureError as error:
            if is_worth_another(error.__cause__):
                return None
            raise
        self._remember(_after(share, write, leases))
        return CommitResult((share.entries,), leases=tuple(leases))

    async def _believed_share(self, request: Request, stream: Stream) -> Share | None:
        write, facts = request.commit.writes[0], Facts()
        try:
            return await share_off_loop(stream, write, request.commit.at, request.salts, facts)
        except NotLookedUp:
            pass
        except PerdureError:
            return None  # reject only based on the stored state
        try:
            async with self._db.connection() as db:
                return await self._share(db, request, 0, stream)
        except PerdureError:
            return None

    async def _send(self, share: Share, request: Request, write: Write) -> list[Lease]:
        """Commit `share` (the rows of `write`); return the lease if `write` acquired one."""
        ns, id_, epoch = self._db.namespace, write.stream, share.before.state.epoch
        statements = statements_of(ns, share, request, request.key)
        if write.is_releasing:
            statements.append(releasing_lease(ns, id_, epoch))
        if write.taking is not None:
            taking = lease_taken(ns, id_, epoch - 1, write.taking, request.now)
            rows, *_ = await self._db.ask_once(taking, *statements)
            return [Lease(id_, write.taking.owner, epoch, rows[0][0])]
        if len(statements) == 1:
            await self._db.carry_out(statements[0])
        else:
            await self._db.ask_once(*statements)
        return []

    async def _creating(self, request: Request, write: Write) -> CommitResult | None:
        """Commit to a new stream on a fast path.

        Returns None, and changes nothing, if the commit cannot use the fast path.
        """
        if write.create is None or request.key is not None or write.taking is not None:
            return None
        async with self._db.connection() as db:
            created = await born(db, self._db.namespace, write.create, write.above_epoch)
            try:
                share = await share_off_loop(
                    created, write, request.commit.at, request.salts, Facts()
                )
            except (PerdureError, NotLookedUp):
                return None
            statements = creation(self._db.namespace, created)
            if share.entries:
                statements += statements_of(self._db.namespace, share, request, None)
            await asked_for_new(db, self._db.namespace, write.stream, statements)
        self._remember(share.after)
        return CommitResult((share.entries,))

    # -- several streams, under locks

    async def append_locked(self, db: Connected, request: Request) -> list[Share]:
        """Append to streams that this transaction has locked; return the rows for each stream."""
        for write in request.commit.writes:
            self.forget(write.stream)
        count = len(request.commit.writes)
        return [await self._carry_out(db, request, n, []) for n in range(count)]

    async def _locking(self, request: Request, sent: asyncio.Event) -> CommitResult:
        writes = request.commit.writes
        for write in writes:
            self.forget(write.stream)
        async with self._db.connection() as db, db.transaction():
            replayed = await self._lock(db, request)
            if replayed is not None:
                return replayed
            leases: list[Lease] = []
            shares = [await self._carry_out(db, request, n, leases) for n in range(len(writes))]
            await self._keep_rest(db, request, shares)
            sent.set()
        for share, write in zip(shares, writes, strict=True):
            self._remember_if_alone(share, _after(share, write, leases))
        return CommitResult(tuple(share.entries for share in shares), leases=tuple(leases))

    async def _lock(self, db: Connected, request: Request) -> CommitResult | None:
        """Lock every written stream.

        If the idempotency key of the commit was used before, return the entries of the earlier
        commit.
        """
        ids = sorted(write.stream for write in request.commit.writes if write.create is None)
        statements = [Statement(LOCK, (self._db.namespace, ids))]
        if request.key is not None:
            statements.append(Statement(_SAME_KEY, (self._db.namespace, request.key)))
        answers = await run_statements(db, self._db.namespace, statements)
        if request.key is None or not answers[1]:
            return None
        fingerprint, firsts = answers[1][0]
        if fingerprint != request.asked:
            raise IdempotencyMismatch(request.commit.idempotency_key or "")
        return await self._replay(db, request.commit, firsts)

    async def _replay(self, db: Connected, commit: Commit, firsts: list[int]) -> CommitResult:
        ns = self._db.namespace
        statements = [
            Statement(_REPLAYED, (ns, write.stream, first, len(write.entries)))
            for write, first in zip(commit.writes, firsts, strict=True)
        ]
        answers = await run_statements(db, ns, statements)
        entries = tuple(tuple(entry_of(row) for row in rows) for rows in answers)
        return CommitResult(entries, is_replay=True)

    async def _carry_out(
        self, db: Connected, request: Request, number: int, leases: list[Lease]
    ) -> Share:
        """Carry out the write with index `number`.

        If the write acquires a lease, the lease is added to `leases`.
        """
        ns, write = self._db.namespace, request.commit.writes[number]
        made = write.create and await create_in(db, ns, write.create, write.above_epoch)
        if write.taking is not None:
            stream, lease = await _led_stream(db, ns, write.stream, write.taking, request.now)
            leases.append(lease)
            request = request.led(number, lease)
        else:
            stream = made or await stream_in(db, ns, write.stream)
        share = await self._share(db, request, number, stream)
        statements = statements_of(ns, share, request, None) if share.entries else []
        if write.is_releasing:
            statements.append(releasing_lease(ns, write.stream, stream.state.epoch))
        if statements:
            await run_statements(db, ns, statements)
        return share

    async def _keep_rest(self, db: Connected, request: Request, shares: list[Share]) -> None:
        ns = self._db.namespace
        statements = [keeping(ns, digest, content) for digest, content in request.blobs]
        if request.key is not None:
            firsts = [share.before.state.head + 1 for share in shares]
            streams = Texts(write.stream for write in request.commit.writes)
            values = (ns, request.key, request.asked, firsts, request.commit.at, streams)
            statements.append(Statement(_KEEP_KEY, values))
        if statements:
            await run_statements(db, ns, statements)

    async def _share(self, db: Connected, request: Request, number: int, stream: Stream) -> Share:
        """Read the facts that the write with index `number` needs, and return its rows."""
        write, facts = request.commit.writes[number], Facts()
        named = [new.parent for new in write.entries if isinstance(new.parent, str)]
        if named:
            await _look_up_nodes(db, self._db.namespace, stream, facts, named)
        while True:
            try:
                salts = request.salts_of(number)
                return await share_off_loop(stream, write, request.commit.at, salts, facts)
            except NotLookedUp as unknown:
                await look_up(db, self._db.namespace, stream, facts, unknown)

    # -- cached states

    def _remember(self, stream: Stream) -> None:
        id_ = stream.state.header.id
        if len(self._left) >= MOST_STANDING:
            self._standing.clear()
            self._left.clear()
        self._standing[id_] = stream
        self._left[id_] = stream.state.hash

    def _remember_if_alone(self, share: Share, after: Stream) -> None:
        """Cache the new state `after`, if this handle is the only writer of the stream.

        If another handle has written to the stream since the last write of this handle, `after` is
        not cached.
        """
        id_ = share.before.state.header.id
        left = self._left.get(id_)
        self._left[id_] = after.state.hash
        if left is None or left == share.before.state.hash:
            self._remember(after)


def _after(share: Share, write: Write, leases: Sequence[Lease]) -> Stream:
    """Return the stream after `share`, including a lease that `write` acquired or released."""
    epoch = share.after.state.epoch
    if write.is_releasing:
        return share.after.with_lease(epoch, None, 0)
    for lease in leases:
        if lease.stream == write.stream:
            return share.after.with_lease(epoch, lease.owner, lease.until)
    return share.after


async def look_up(
    db: Connected, namespace: str, stream: Stream, facts: Facts, unknown: NotLookedUp
) -> None:
    """Look up the fact that is missing according to `unknown`, and add it to `facts`."""
    if unknown.node is not None:
        await _look_up_nodes(db, namespace, stream, facts, [unknown.node])
    elif unknown.state is not None:
        (rows,) = await run_statements(db, namespace, [ask_state(namespace, unknown.state)])
        facts.states[unknown.state] = State(*rows[0]) if rows else State()


async def _look_up_nodes(
    db: Connected, namespace: str, stream: Stream, facts: Facts, references: list[EntryId]
) -> None:
    facts.nodes.update(dict.fromkeys(references))
    statement = ask_nodes(namespace, stream.state.header.id, references)
    (rows,) = await run_statements(db, namespace, [statement])
    for node in map(node_of, rows):
        facts.nodes[EntryId(f"{node.stream}/{node.seq}")] = node


async def stream_in(db: Connected, namespace: str, stream: StreamId) -> Stream:
    """Return the current row of a stream. Raises: SessionNotFound."""
    (rows,) = await run_statements(db, namespace, [ask_streams(namespace, [stream])])
    if not rows:
        raise SessionNotFound(stream)
    return stream_of_row(rows[0])


async def _led_stream(
    db: Connected, namespace: str, stream: StreamId, wanted: LeaseRequest, now: int | None
) -> tuple[Stream, Lease]:
    """Acquire the lease of a locked stream; return its row and the lease.

    Raises: SessionNotFound, Erased, LeaseHeld.
    """
    acquiring = acquiring_lease(namespace, stream, wanted, now)
    asks = [acquiring, ask_streams(namespace, [stream])]
    acquired, rows = await run_statements(db, namespace, asks)
    if not rows:
        raise SessionNotFound(stream)
    led = stream_of_row(rows[0])
    if acquired:
        return led, Lease(stream, wanted.owner, *acquired[0])
    if led.owner is None:
        raise Erased(stream)
    raise LeaseHeld(stream, led.owner, led.until)


def statements_of(
    namespace: str, share: Share, request: Request, key: bytes | None
) -> list[Statement]:
    """Return the statements that write one stream's part of a commit, the append first."""
    ns, id_ = namespace, share.before.state.header.id
    statements = [Statement(_APPEND, _append_values(ns, share, request, key))]
    statements += [Statement(_KEEP_STATE, (ns, id_, seq, *state)) for seq, state in share.states]
    if share.aliases:
        names, seqs = [name for name, _ in share.aliases], [seq for _, seq in share.aliases]
        statements.append(Statement(_KEEP_ALIASES, (ns, id_, names, seqs)))
    return statements + kept_beside(ns, share)


def keeping(namespace: str, digest: str, content: bytes) -> Statement:
    """Return the statement that stores a content if the database lacks it."""
    return Statement(_KEEP_BLOB, (namespace, digest, content))


def _append_values(
    namespace: str, share: Share, request: Request, key: bytes | None
) -> tuple[object, ...]:
    before, after, columns = share.before.state, share.after.state, share.columns
    return (
        *(namespace, before.header.id, before.hash, before.epoch),
        *(before.head, after.leaf or "", _or_none(share.after.tip), after.hash),
        _or_none(after.open_turn),
        *(after.info.updated_at, encode(bare_info(after.info)), request.commit.at, share.epoch),
        *(key or b"", request.asked, share.ends_turn, columns.numbers, columns.kinds),
        *(columns.fars, columns.state_fars, columns.salts, columns.digests, columns.bodies),
    )


def _or_none(seq: int | None) -> int:
    """Return a seq in the form that ``perdure.append`` expects."""
    return -1 if seq is None else seq
