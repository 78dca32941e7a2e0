"""Write commits, leases and partial answers inside a writer's transaction.

The functions of this module run on the writer thread between ``BEGIN IMMEDIATE`` and ``COMMIT``, so
no other connection or process changes the data that they read. A commit to one stream is checked
completely before its first write, so a rejected commit leaves no change. A commit to several
streams is applied stream by stream, so that each stream sees the changes to the earlier streams.
Before a commit that appends to several streams or creates a stream, the writer sets a savepoint, so
that a rejected commit leaves no change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apsw
import msgspec

from perdure.errors import Erased, IdempotencyMismatch, LeaseHeld, LeaseLost, SessionExists
from perdure.session.codec import encode
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint, SessionInfo, StreamHeader
from perdure.session.kinds import Compaction, ModelChange, ThinkingChange
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.memory.open_entries import OPEN_KINDS, opened_and_closed
from perdure.session.messages import MESSAGE
from perdure.stores.access.lease_term import is_running, lease_end
from perdure.stores.append_rules import (
    Admission,
    ForkOrigin,
    check_origin,
    initial_state,
    is_current,
    plan_append,
    state_after,
)
from perdure.stores.chain import body_digest, commit_hash, genesis_hash, header_line
from perdure.stores.protocol import EMPTY, CommitResult, Lease, LeaseRequest, StreamState
from perdure.stores.sqlite.branches import STATE, node_seen
from perdure.stores.sqlite.log.names import list_changed, list_new
from perdure.stores.sqlite.log.spans import begin_span
from perdure.stores.sqlite.payload.contents import PackedContent
from perdure.stores.sqlite.payload.entry_rows import insert_entries
from perdure.stores.sqlite.payload.requests import Request, Share
from perdure.stores.sqlite.rows import (
    ENTRY_COLUMNS,
    Node,
    Stream,
    Tables,
    namespace_no,
    next_position,
    remember,
    standing,
)

_INHERITED = frozenset((Compaction.kind, ModelChange.kind, ThinkingChange.kind))
_TURN_ENDS = frozenset((TurnStarted.kind, TurnFinished.kind))
_OPEN_KINDS = frozenset(OPEN_KINDS)

_ABOVE_ROOT = Node(-1, 0, EMPTY, EMPTY, -1, 0, None)

_INSERT_STREAM = """
INSERT INTO stream (namespace, id, kind, origin, parent, created_at, head, leaf, hash, epoch, until,
    messages, updated_at, title, first_text, turns, cwd, status)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?, ?, ?, ?, ?)
"""

# Most commits of a turn change no column that lists are sorted by, and skip that index.
_MOVE_STREAM = """
UPDATE stream SET head = ?, leaf = ?, tip = ?, hash = ?, open_turn = ?, messages = ? WHERE no = ?
"""

_UPDATE_STREAM = """
UPDATE stream SET head = ?, leaf = ?, tip = ?, hash = ?, open_turn = ?, messages = ?,
    updated_at = ?, title = ?, first_text = ?, turns = ?
WHERE no = ?
"""

_INSERT_STATE = """
INSERT INTO state (compaction, model, thinking, before) VALUES (?, ?, ?, ?) RETURNING no
"""

_HASH_AT = """
SELECT c.hash FROM commits AS c
WHERE c.first <= (SELECT n FROM entry WHERE stream = ? AND seq = ?)
ORDER BY c.first DESC LIMIT 1
"""

_REPLAYED = f"SELECT stream, {ENTRY_COLUMNS} FROM entry WHERE n >= ? ORDER BY n LIMIT ?"  # noqa: S608 - put together from constants

_SAME_KEY = """
SELECT fingerprint, first FROM idempotency
WHERE namespace = (SELECT no FROM namespace WHERE name = ?) AND key = ?
"""

_KEEP_KEY = """
INSERT INTO idempotency (namespace, key, fingerprint, first, at) VALUES (?, ?, ?, ?, ?)
"""

_KEEP_BLOB = """
INSERT INTO blob (namespace, digest, size, packing, content) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""

_INSERT_COMMIT = "INSERT INTO commits VALUES (?, ?, ?, ?, ?)"

_KEEP_ALIAS = "INSERT OR REPLACE INTO alias VALUES (?, ?, ?)"

_ASK = "INSERT OR IGNORE INTO open_question VALUES (?, ?, ?)"

_CLOSE = "DELETE FROM open_question WHERE namespace = ? AND stream = ? AND seq = ?"

_LEAD = "UPDATE stream SET epoch = ?, owner = ?, until = ? WHERE no = ?"

_UPSERT_PARTIAL = """
INSERT INTO partial (stream, seq, content) VALUES (?, ?, ?)
ON CONFLICT (stream) DO UPDATE SET seq = excluded.seq, content = excluded.content
"""


# ---------------------------------------------------------------- commits


def append(tables: Tables, request: Request) -> CommitResult:
    """Append the commit of `request`, with the guarantees of ``SessionStore.commit``."""
    commit, key = request.commit, request.commit.idempotency_key
    if key is not None:
        replayed = _replay(tables, key, request)
        if replayed is not None:
            return replayed
    first = next_position(tables) if key is not None else 0
    leases: list[Lease] = []
    appended = tuple([_append_to_one(tables, request, share, leases) for share in request.shares])
    if request.blobs:
        keep_blobs(tables, namespace_number(tables, request.namespace), request.blobs)
    if key is not None:
        namespace = namespace_number(tables, request.namespace)
        tables.run(_KEEP_KEY, (namespace, key, request.asked, first, commit.at))
    return CommitResult(appended, leases=tuple(leases))


def namespace_number(tables: Tables, name: str) -> int:
    """Return the number of a namespace; assign one if it has none."""
    number = namespace_no(tables, name)
    if number is None:
        number = tables.value("INSERT INTO namespace (name) VALUES (?) RETURNING no", name)
    return int(number)


def _replay(tables: Tables, key: str, request: Request) -> CommitResult | None:
    row = tables.row(_SAME_KEY, request.namespace, key)
    if row is None:
        return None
    if row[0] != request.asked:
        raise IdempotencyMismatch(key)
    counts = [len(write.entries) for write in request.commit.writes]
    rows = tables.rows(_REPLAYED, row[1], sum(counts))
    entries = iter([tables.entry(tables.stream_id(found[0]), found[1:]) for found in rows])
    return CommitResult(
        tuple(tuple(next(entries) for _ in range(count)) for count in counts), is_replay=True
    )


def _append_to_one(
    tables: Tables, request: Request, share: Share, leases: list[Lease]
) -> tuple[Entry, ...]:
    write = share.write
    if write.create is not None:
        if write.create.fork is not None:
            check_origin(standing(tables, request.namespace, write.create.fork.stream).state)
        stream = create_stream(tables, request.namespace, write.create)
        if write.above_epoch:
            stream = stream.with_lease(write.above_epoch, None, 0)
            _write_lease(tables, request.namespace, stream)
        remember(tables, request.namespace, stream)
    else:
        stream = standing(tables, request.namespace, write.stream)
    if write.taking is not None:
        stream, lease = _leading(stream, write.taking, request.now)
        write = msgspec.structs.replace(write, lease=lease)
        leases.append(lease)
    head = stream.state.head

    def sees(reference: EntryId) -> bool:
        return node_seen(tables, stream.no, head, reference) is not None

    admission = plan_append(stream.state, write, request.commit.at, sees, share.read)
    if write.taking is not None:
        _write_lease(tables, request.namespace, stream)
    if admission.entries or write.create is not None:
        tables.written.add((request.namespace, write.stream))
    if admission.entries:
        stream = _extend(tables, stream, admission, request.commit.at, share)
        tables.standing[request.namespace, write.stream] = stream
    if write.is_releasing:
        _write_lease(tables, request.namespace, stream.with_lease(stream.state.epoch, None, 0))
    return admission.entries


def keep_blobs(tables: Tables, namespace: int, blobs: Sequence[PackedContent]) -> None:
    """Store the `blobs` that are not stored yet."""
    for blob in blobs:
        tables.run(_KEEP_BLOB, (namespace, *blob))


# ---------------------------------------------------------------- new streams


def create_stream(tables: Tables, namespace_name: str, header: StreamHeader) -> Stream:
    """Create a stream without entries.

    Raises: SessionExists if the stream exists. For a fork, the call raises SessionNotFound,
    InvalidEntry or InvalidParent if the fork point does not exist.
    """
    namespace = namespace_number(tables, namespace_name)
    if tables.value("SELECT no FROM stream WHERE namespace = ? AND id = ?", namespace, header.id):
        raise SessionExists(header.id)
    fork = header.fork
    if fork is None:
        genesis = genesis_hash(header)
        return _insert_stream(tables, namespace, initial_state(header, genesis), None, None)
    origin = standing(tables, namespace_name, fork.stream)
    leaf = None
    if fork.leaf is not None:
        leaf = node_seen(tables, origin.no, origin.state.head, fork.leaf)
    shared = ForkOrigin(
        info=origin.state.info,
        head=origin.state.head,
        hash=_hash_at(tables, origin, fork.head),
        messages=_shared_messages(tables, origin, fork, leaf),
    )
    genesis = genesis_hash(header, shared.hash)
    state = initial_state(header, genesis, shared, lambda _: leaf is not None)
    return _insert_stream(tables, namespace, state, origin, leaf)


def _hash_at(tables: Tables, stream: Stream, head: int) -> bytes:
    """Return the chain hash after the commit that contains seq `head`.

    If `head` is -1, return the genesis hash, the hash before the first commit.
    """
    if head == stream.state.head:
        return stream.state.hash
    found = tables.value(_HASH_AT, stream.no, head) if head > EMPTY else None
    if found is None:
        found = tables.value("SELECT genesis FROM birth WHERE stream = ?", stream.no)
    return bytes(found)


def _shared_messages(tables: Tables, origin: Stream, fork: ForkPoint, leaf: Node | None) -> int:
    if fork.scope == "path":
        return leaf.messages if leaf else 0
    later = tables.value(
        "SELECT count(*) FROM entry WHERE stream = ? AND seq > ? AND kind = ?",
        origin.no,
        fork.head,
        tables.kind_number(MESSAGE),
    )
    return origin.state.info.messages - int(later)


def _insert_stream(
    tables: Tables,
    namespace: int,
    state: StreamState,
    origin: Stream | None,
    leaf: Node | None,
) -> Stream:
    header, info, fork = state.header, state.info, state.header.fork
    leaf_n = leaf.n if leaf else None
    tables.run(
        _INSERT_STREAM,
        (
            *(namespace, header.id, header.kind, header.origin, info.parent, header.created_at),
            *(EMPTY, leaf_n, state.hash, info.messages, *_info_values(info)),
            *(info.cwd, info.status),
        ),
    )
    number = tables.db.last_insert_rowid()
    tables.run(
        "INSERT INTO birth VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            encode(header),
            state.hash,
            info.messages,
            origin.no if origin else None,
            fork.head if fork else None,
            leaf_n,
            fork.scope == "path" if fork else None,
        ),
    )
    list_new(tables, namespace, number, info)
    return Stream(number, namespace, state, leaf, tip=None, owner=None, until=0)


def _info_values(info: SessionInfo) -> tuple[object, ...]:
    """Return the values of `info` that ``_UPDATE_STREAM`` writes and ``_MOVE_STREAM`` does not."""
    return (info.updated_at, info.title, info.first_text, info.turns)


# ---------------------------------------------------------------- entries


def _extend(tables: Tables, stream: Stream, admission: Admission, at: int, share: Share) -> Stream:
    """Add hashes to the planned entries and write them; return the new state of the stream."""
    sealed: list[tuple[Entry, bytes, bytes]] = []
    lines: list[bytes] = []
    prepared = zip(share.write.entries, share.salts, share.digests, strict=True)
    for entry, (new, salt, digest) in zip(admission.entries, prepared, strict=True):
        if entry.body is not new.body:  # it is queued
            digest = body_digest(entry.body, salt)  # noqa: PLW2901 - of what is stored
        lines.append(header_line(entry, digest))
        sealed.append((entry, salt, digest))
    chain = commit_hash(stream.state.hash, at, admission.epoch, lines)
    return write_admission(tables, stream, admission, sealed, at=at, chain=chain)


def write_admission(
    tables: Tables,
    stream: Stream,
    admission: Admission,
    sealed: Iterable[tuple[Entry, bytes | None, bytes]],
    *,
    at: int,
    chain: bytes,
) -> Stream:
    """Write the planned entries with salts and digests; return the new state of the stream.

    `chain` is the stream's hash after this commit.
    """
    entries, first = admission.entries, next_position(tables)
    growth = _Growth(tables, stream, first)
    insert_entries(tables, [growth.row(*row) for row in sealed])
    tables.next_n = first + len(entries)
    if tables.newest_namespace != stream.namespace:
        begin_span(tables, stream.namespace, first)
    tables.run(_INSERT_COMMIT, (first, len(entries), at, admission.epoch, chain))
    leaf = growth.leaf(admission.leaf)
    info, listed = admission.info, _info_values(admission.info)
    moved = (entries[-1].seq, leaf.n if leaf else None, growth.tip, chain, admission.open_turn)
    if listed == _info_values(stream.state.info):
        tables.run(_MOVE_STREAM, (*moved, info.messages, stream.no))
    else:
        tables.run(_UPDATE_STREAM, (*moved, info.messages, *listed, stream.no))
    list_changed(tables, stream.namespace, stream.no, stream.state.info, info)
    for alias, entry in admission.aliases:
        tables.run(_KEEP_ALIAS, (stream.no, alias, int(entry.rpartition("/")[2])))
    kinds = [entry.kind for entry in entries]
    if not _TURN_ENDS.isdisjoint(kinds):
        tables.run("DELETE FROM partial WHERE stream = ?", (stream.no,))
    if not _OPEN_KINDS.isdisjoint(kinds):
        for is_open, seq in opened_and_closed(entries, stream.state.header.id):
            tables.run(_ASK if is_open else _CLOSE, (stream.namespace, stream.no, seq))
    state = state_after(stream.state, admission, chain)
    return Stream(stream.no, stream.namespace, state, leaf, growth.tip, stream.owner, stream.until)


class _Growth:
    """Computes, for each entry of one write in order, the entry's place on its branch."""

    def __init__(self, tables: Tables, stream: Stream, first: int) -> None:
        self.tip = stream.tip
        self._tables = tables
        self._number = stream.no
        self._prefix = stream.state.header.id + "/"
        self._n = first
        self._nodes: dict[EntryId | None, Node] = {None: _ABOVE_ROOT}
        if stream.leaf is not None:
            self._nodes[stream.state.leaf] = stream.leaf

    def row(self, entry: Entry, salt: bytes | None, digest: bytes) -> tuple[object, ...]:
        """Return the row of the next entry."""
        n, seq, name = self._n, entry.seq, entry.kind
        self._n = n + 1
        kind = self._tables.kind_numbers.get(name) or _kind_number(self._tables, name)
        run = ref = depth = messages = state = None
        if entry.lane == "side":
            ref = self._ref(entry.about)
        else:
            parent_id = entry.parent_id
            parent = self._nodes.get(parent_id) or self._node(parent_id)
            run = parent.run if parent.n == self.tip else seq
            ref = parent.seq if parent.stream == self._number else self._ref(parent_id)
            depth = parent.depth + 1
            messages = parent.messages + 1 if name == MESSAGE else parent.messages
            state = parent.state
            if name in _INHERITED:
                state = _state_with(self._tables, state, name, n)
            self._nodes[entry.id] = Node(n, self._number, seq, run, depth, messages, state)
            self.tip = n
        return (
            *(n, self._number, seq, kind, entry.v, entry.at, run, ref, depth, messages, state),
            *(salt, digest, entry.body),
        )

    def leaf(self, reference: EntryId | None) -> Node | None:
        """Return the node of the leaf `reference`; None if there is no leaf."""
        return None if reference is None else self._node(reference)

    def _node(self, reference: EntryId | None) -> Node:
        node = self._nodes.get(reference)
        if node is None and reference is not None:
            place = self._tables.place(self._number, reference)
            node = None if place is None else self._tables.node_of(*place)
        if node is None:
            raise apsw.CorruptError(f"the tree entry {reference} is gone")
        self._nodes[reference] = node
        return node

    def _ref(self, reference: EntryId | None) -> int | str | None:
        if reference is None or not reference.startswith(self._prefix):
            return reference
        return int(reference[len(self._prefix) :])


def _kind_number(tables: Tables, name: str) -> int:
    number = tables.kind_number(name)
    if number is None:
        number = int(tables.value("INSERT INTO kind (name) VALUES (?) RETURNING no", name))
        tables.kind_numbers[name] = number
    return number


def _state_with(tables: Tables, inherited: int | None, kind: str, n: int) -> int:
    """Store the branch state after an entry of `kind` at position `n`; return its number."""
    values = None
    if inherited is not None:
        values = tables.row(STATE, inherited)
    compaction, model, thinking, before = values or (None, None, None, None)
    if kind == Compaction.kind:
        compaction, before = n, inherited
    elif kind == ModelChange.kind:
        model = n
    else:
        thinking = n
    return int(tables.value(_INSERT_STATE, compaction, model, thinking, before))


# ---------------------------------------------------------------- leases and partial answers


def acquire_lease(
    tables: Tables, namespace: str, stream: StreamId, wanted: LeaseRequest, now: int
) -> Lease:
    """Acquire the lease with the next epoch.

    The lease must be free, expired or held by `wanted.dead_owner`.
    Raises: LeaseHeld, SessionNotFound, Erased.
    """
    row = standing(tables, namespace, stream)
    if row.state.info.status == "erased":
        raise Erased(stream)
    led, lease = _leading(row, wanted, now)
    _write_lease(tables, namespace, led)
    return lease


def renew_lease(tables: Tables, namespace: str, lease: Lease, until: int) -> Lease:
    """Extend `lease`. Raises: LeaseLost."""
    row = _require_lease(tables, namespace, lease)
    _write_lease(tables, namespace, row.with_lease(lease.epoch, lease.owner, until))
    return Lease(lease.stream, lease.owner, lease.epoch, until)


def release_lease(tables: Tables, namespace: str, lease: Lease) -> None:
    """Release `lease`; do nothing if another owner has acquired it. Raises: SessionNotFound."""
    row = standing(tables, namespace, lease.stream)
    if is_current(lease, row.state):
        _write_lease(tables, namespace, row.with_lease(lease.epoch, None, 0))


def _leading(row: Stream, wanted: LeaseRequest, now: int) -> tuple[Stream, Lease]:
    """Return `row` with the next epoch and the lease that `wanted` requests. Raises: LeaseHeld."""
    stream = row.state.header.id
    if row.owner is not None and row.owner != wanted.dead_owner and is_running(row.until, now):
        raise LeaseHeld(stream, row.owner, row.until)
    epoch, until = row.state.epoch + 1, lease_end(now, wanted.ttl_ms)
    return row.with_lease(epoch, wanted.owner, until), Lease(stream, wanted.owner, epoch, until)


def _write_lease(tables: Tables, namespace: str, row: Stream) -> None:
    """Write the lease of `row`: its epoch, owner and end."""
    tables.run(_LEAD, (row.state.epoch, row.owner, row.until, row.no))
    remember(tables, namespace, row)


def put_partial(tables: Tables, namespace: str, lease: Lease, seq: int, content: bytes) -> None:
    """Store the received part of an answer, if a turn is open. Raises: LeaseLost."""
    row = _require_lease(tables, namespace, lease)
    if row.state.open_turn is not None:
        tables.run(_UPSERT_PARTIAL, (row.no, seq, content))


def _require_lease(tables: Tables, namespace: str, lease: Lease) -> Stream:
    row = standing(tables, namespace, lease.stream)
    if not is_current(lease, row.state):
        raise LeaseLost(lease.stream, lease.epoch, row.state.epoch)
    return row
