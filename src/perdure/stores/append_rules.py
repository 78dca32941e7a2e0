"""Append rules: turn a write into entries, independent of any storage.

Every backend passes a stream's state and a `Write` to `plan_append`, and stores the result. So all
backends have the same seqs, parents, leaf, open turns, ``queued`` entries and errors. The functions
are pure: a callback returns the visible entries, and the time is an argument. The backend reads the
state, computes the hashes and handles idempotency keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from perdure.errors import (
    Erased,
    HeadConflict,
    InvalidEntry,
    InvalidParent,
    LeafConflict,
    LeaseLost,
    TurnOpen,
)
from perdure.session.codec import Body, encode
from perdure.session.entries import LEAF, Entry, NewEntry, Ref, Sibling
from perdure.session.ids import EntryId, place_of, stream_id
from perdure.session.info import ForkPoint, SessionInfo, StreamHeader, info_after, info_of
from perdure.session.kinds import OPAQUE
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.notes import ContentErased, LeafMoved, Queued
from perdure.stores.protocol import EMPTY, Commit, ErasingWrite, Lease, StreamState, Tail, Write
from perdure.stores.validation import TIMES, check_form, checked_body, is_text

Sees = Callable[[EntryId], bool]
"""Returns True if the stream can refer to this tree entry, which can be shared with an origin."""

Read = Body | InvalidEntry | None
"""Result of `read_bodies` for one body; None if this version of perdure cannot read the body."""

_header = msgspec.json.Decoder(StreamHeader)


class Admission(msgspec.Struct, frozen=True):
    """The entries of a write and the stream's state after them.

    Shape: `aliases` are pairs (foreign id, entry) in order. If several pairs have the same foreign
    id, the last of these pairs applies. `epoch` is part of the chain hash: it is the epoch of the
    lease, or 0 without a lease.
    """

    entries: tuple[Entry, ...]
    leaf: EntryId | None
    open_turn: int | None
    info: SessionInfo
    aliases: tuple[tuple[str, EntryId], ...]
    epoch: int


class ForkOrigin(msgspec.Struct, frozen=True):
    """The state that a new fork inherits from its origin.

    `head` and `info` are the current values of the origin. `hash` is the hash of the origin's chain
    after the commit that contains entry ``fork.head`` (the genesis hash for -1). `messages` counts
    the message entries that the fork shares. With scope "tree", `messages` counts all message
    entries of the origin up to ``fork.head``. With scope "path", `messages` counts only the
    messages on the path.
    """

    info: SessionInfo
    head: int
    hash: bytes
    messages: int


def wants_leases(commit: Commit) -> bool:
    """Return whether `commit` acquires or releases a lease."""
    return any(write.taking is not None or write.is_releasing for write in commit.writes)


def check_commit(commit: Commit) -> None:
    """Validate `commit` without reading any stream.

    Raises: InvalidEntry if the commit has no write or two writes to one stream, or if a write
    appends nothing, creates nothing and checks nothing. Raises InvalidEntry if a write acquires a
    lease although it already has a lease, or although its commit has an idempotency key. Raises
    InvalidEntry if a write releases a lease that it does not have. Raises InvalidEntry if a header
    or the idempotency key cannot be decoded again. Raises ValueError if a new stream has an invalid
    id.
    """
    if not commit.writes:
        raise InvalidEntry("the commit holds no write")
    if len({write.stream for write in commit.writes}) < len(commit.writes):
        raise InvalidEntry("two writes of the commit are of one stream; make them one")
    if commit.at not in TIMES:
        raise InvalidEntry(f"the commit's time {commit.at} is out of range")
    if commit.idempotency_key is not None and not is_text(commit.idempotency_key):
        reason = f"an idempotency key is text, not {commit.idempotency_key!r:.60}"
        raise InvalidEntry(reason, told=reason)
    for write in commit.writes:
        _check_write(write)
        _check_leading(write, commit.idempotency_key)


def _check_write(write: Write) -> None:
    if write.create is not None:
        if stream_id(write.create.id) != write.stream:
            raise ValueError(f"the header of {write.create.id!r} cannot create {write.stream!r}")
        _check_birth(write.create)
        return
    is_check = write.expected_head is not None or write.expected_leaf is not msgspec.UNSET
    if not write.entries and not is_check:
        raise InvalidEntry(f"the write to {write.stream!r} holds no entry and expects nothing")


def _check_leading(write: Write, key: str | None) -> None:
    if write.taking is not None and write.lease is not None:
        raise InvalidEntry(f"the write to {write.stream!r} has a lease, and is to take one")
    if write.taking is not None and key is not None:
        raise InvalidEntry("a commit with an idempotency key takes no lease: a replay has none")
    if write.is_releasing and write.taking is None and write.lease is None:
        raise InvalidEntry(f"the write to {write.stream!r} has no lease that it could give back")


def _check_birth(header: StreamHeader) -> None:
    # Storing a header with wrong types would make every list of the store unreadable.
    try:
        _header.decode(encode(header))
    except msgspec.MsgspecError as error:
        reason = f"the session cannot be created: its header does not hold what it has to ({error})"
        raise InvalidEntry(reason, told=reason) from error


def initial_state(
    header: StreamHeader, genesis: bytes, shared: ForkOrigin | None = None, sees: Sees | None = None
) -> StreamState:
    """Return the state of a stream before its first entry.

    `genesis` is the ``chain.genesis_hash`` of the stream. For a fork, `shared` is the state
    inherited from the origin. `sees` tests whether the origin can see a given entry now.
    Raises: InvalidEntry if the fork's point is beyond the origin's head. Raises InvalidParent if
    the origin did not see the fork's leaf at the point of the fork.
    """
    leaf: EntryId | None = None
    info = info_of(header)
    if header.fork is not None and shared is not None and sees is not None:
        _check_fork(header.fork, shared.head, sees)
        leaf = header.fork.leaf
        info = info_of(header, _inherited_info(shared))
    return StreamState(header, EMPTY, leaf, genesis, 0, None, info)


def _check_fork(fork: ForkPoint, head: int, sees: Sees) -> None:
    if not EMPTY <= fork.head <= head:
        raise InvalidEntry(f"session {fork.stream!r} ends at {head}, it has no fork at {fork.head}")
    if fork.leaf is None:
        return
    place = place_of(fork.leaf)
    if place is None or not sees(fork.leaf) or (place[0] == fork.stream and place[1] > fork.head):
        raise InvalidParent(fork.leaf, fork.stream, "no tree entry it sees where it is forked")


def _inherited_info(shared: ForkOrigin) -> SessionInfo:
    first_text = shared.info.first_text if shared.messages else None
    return msgspec.structs.replace(shared.info, messages=shared.messages, first_text=first_text)


def check_origin(origin: StreamState) -> None:
    """Reject a commit that forks an erased `origin`. Raises: Erased."""
    if origin.info.status == "erased":
        raise Erased(origin.header.id)


def is_current(lease: Lease, state: StreamState) -> bool:
    """Return True if `lease` is the newest lease of its stream: no later lease was acquired.

    The lease may have expired, because only the epoch of a lease decides whether a write is
    accepted.
    """
    return lease.stream == state.header.id and lease.epoch == state.epoch > 0


def read_bodies(write: Write) -> list[Read]:
    """Decode the bodies of `write` for `plan_append`: slow work that needs no stream's state.

    The result contains errors instead of raising them; `plan_append` raises them in the order of
    the entries.
    """
    read: list[Read] = []
    for new in write.entries:
        try:
            read.append(checked_body(new))
        except InvalidEntry as refusal:
            read.append(refusal)
    return read


def plan_append(
    state: StreamState, write: Write, at: int, sees: Sees, read: Sequence[Read] | None = None
) -> Admission:
    """Plan the entries that `write` appends to a stream in `state`, in a commit at time `at`.

    `read` is the result of `read_bodies`, if `read_bodies` was called before.
    Raises: LeaseLost, HeadConflict, LeafConflict, TurnOpen, InvalidEntry, InvalidParent; see
    ``SessionStore.commit``.
    """
    _check_expected(state, write)
    arrival = _PlannedEntry(state, write, at, sees)
    for new, body in zip(write.entries, read or read_bodies(write), strict=True):
        arrival.take(new, body)
    return Admission(
        entries=tuple(arrival.entries),
        leaf=arrival.leaf,
        open_turn=arrival.open_turn,
        info=_listed(info_after(state.info, arrival.entries, arrival.bodies), write),
        aliases=tuple(arrival.aliases),
        epoch=write.lease.epoch if write.lease else 0,
    )


def _listed(info: SessionInfo, write: Write) -> SessionInfo:
    """Return `info` after `write`.

    If `write` erased entries, the first text and the time come from the remaining entries.
    """
    if not isinstance(write, ErasingWrite) or write.listed is None:
        return info
    at = write.listed.updated_at
    return msgspec.structs.replace(
        info,
        first_text=write.listed.first_text,
        updated_at=info.created_at if at is None else at,
    )


def state_after(state: StreamState, admission: Admission, chain: bytes) -> StreamState:
    """Return the stream's state after `admission`; `chain` is its new ``commit_hash``."""
    return StreamState(
        header=state.header,
        head=state.head + len(admission.entries),
        leaf=admission.leaf,
        hash=chain,
        epoch=state.epoch,
        open_turn=admission.open_turn,
        info=admission.info,
    )


def with_lease(state: StreamState, owner: str | None, until: int) -> StreamState:
    """Return `state` with the lease of `owner` until `until`.

    If `owner` is None or `until` is 0, `state` does not change.
    Units: Unix milliseconds.
    """
    if not owner or not until:
        return state
    lease = Lease(state.header.id, owner, state.epoch, until)
    return msgspec.structs.replace(state, lease=lease)


def as_of(state: StreamState, entries: Sequence[Entry], notes: Sequence[Entry]) -> Tail:
    """Return `state`, and those `entries` and `notes` that the stream already had in this state."""
    own, head = state.header.id, state.head
    shown = [note for note in notes if note.stream != own or note.seq <= head]
    return state, [entry for entry in entries if entry.seq <= head], shown


def _check_expected(state: StreamState, write: Write) -> None:
    stream = state.header.id
    if state.info.status == "erased" and not isinstance(write, ErasingWrite):
        raise Erased(stream)
    if write.lease is not None and not is_current(write.lease, state):
        raise LeaseLost(stream, write.lease.epoch, state.epoch)
    if write.expected_head is not None and write.expected_head != state.head:
        raise HeadConflict(stream, write.expected_head, state.head)
    if write.expected_leaf is not msgspec.UNSET and write.expected_leaf != state.leaf:
        raise LeafConflict(stream, write.expected_leaf, state.leaf)


class _PlannedEntry:
    """The state of a stream while the entries of one write are planned."""

    def __init__(self, state: StreamState, write: Write, at: int, sees: Sees) -> None:
        self.entries: list[Entry] = []
        self.bodies: list[Body | None] = []
        self.aliases: list[tuple[str, EntryId]] = []
        self.leaf = state.leaf
        self.open_turn = state.open_turn
        self._stream = state.header.id
        self._first = state.head + 1
        self._at = at
        self._sees = sees
        self._has_lease = write.lease is not None
        self._is_erasing = isinstance(write, ErasingWrite)

    def take(self, new: NewEntry, body: Read) -> None:
        """Plan the entry `new`; it can move the leaf, or open or close a turn."""
        check_form(new)
        seq = self._first + len(self.entries)
        at = self._at if new.at is None else new.at
        parent = about = None
        if new.lane == "tree":
            parent = self.leaf if new.parent is LEAF else self._parent(new.parent)
        else:
            about = self._about(new.about, seq)
        if isinstance(body, InvalidEntry):
            raise body
        entry = Entry(
            self._stream, seq, new.lane, parent, about, at, new.kind, new.v, new.body
        )  # positional arguments: keywords take twice as long
        id_ = entry.id
        if new.lane == "side":
            self._apply(entry, body)
        elif self._is_beside_a_turn():
            entry = _as_queued(entry)
        else:
            self.leaf = id_
        self.entries.append(entry)
        self.bodies.append(body)
        if new.alias is not None:
            self.aliases.append((new.alias, id_))

    def _is_beside_a_turn(self) -> bool:
        return self.open_turn is not None and not self._has_lease

    def _parent(self, parent: EntryId | Sibling | None) -> EntryId | None:
        if parent is None:
            return None
        if isinstance(parent, Sibling):
            sibling = self._sibling(parent)
            if sibling.lane == "side" and not self._is_beside_a_turn():
                raise InvalidParent(sibling.id, self._stream, "it is a side entry")
            return sibling.id
        if not self._is_tree_entry(parent):
            raise InvalidParent(parent, self._stream, "no tree entry that this session sees")
        return parent

    def _sibling(self, reference: Sibling) -> Entry:
        if not 0 <= reference.index < len(self.entries):
            raise InvalidEntry(f"sibling {reference.index} does not come earlier in its write")
        return self.entries[reference.index]

    def _is_tree_entry(self, reference: EntryId) -> bool:
        place = place_of(reference)
        if place is None:
            return False
        if place[0] == self._stream and place[1] >= self._first:
            index = place[1] - self._first
            return index < len(self.entries) and self.entries[index].lane == "tree"
        return self._sees(reference)

    def _about(self, about: Ref | None, seq: int) -> EntryId | None:
        if about is None:
            return None
        if isinstance(about, Sibling):
            return self._sibling(about).id
        place = place_of(about)
        if place is None or (place[0] == self._stream and place[1] >= seq):
            raise InvalidEntry(f"it is about {about!r}, which is no entry before it")
        return about

    def _apply(self, entry: Entry, body: Body | None) -> None:
        if entry.kind == LeafMoved.kind:
            self._move_leaf(body)
        elif entry.kind == TurnStarted.kind:
            self._open_turn(entry.seq)
        elif entry.kind == TurnFinished.kind:
            self._close_turn()
        elif entry.kind == ContentErased.kind:
            self._take_erasure(body)

    def _take_erasure(self, body: Body | None) -> None:
        if not self._is_erasing or not isinstance(body, ContentErased):
            raise InvalidEntry("only an erasure says that something was erased")
        if body.is_whole:
            self.open_turn = None

    def _move_leaf(self, body: Body | None) -> None:
        if not isinstance(body, LeafMoved):
            raise InvalidEntry("it moves the leaf in a way only a newer perdure knows")
        if self.open_turn is not None and not self._has_lease:
            raise TurnOpen(self._stream, self.open_turn)
        if body.target is not None and not self._is_tree_entry(body.target):
            raise InvalidParent(body.target, self._stream, "no tree entry that this session sees")
        self.leaf = body.target

    def _open_turn(self, seq: int) -> None:
        if not self._has_lease:
            raise InvalidEntry("a turn needs the session's lease to start")
        if self.open_turn is not None:
            raise TurnOpen(self._stream, self.open_turn)
        self.open_turn = seq

    def _close_turn(self) -> None:
        if not self._has_lease:
            raise InvalidEntry("a turn needs the session's lease to finish")
        if self.open_turn is None:
            raise InvalidEntry("no turn is open that it could finish")
        self.open_turn = None


def _as_queued(entry: Entry) -> Entry:
    if entry.kind == OPAQUE:
        raise InvalidEntry("an opaque entry cannot wait for the turn that is open to end")
    queued = Queued(entry.kind, msgspec.Raw(entry.body), entry.v)
    return Entry(
        stream=entry.stream,
        seq=entry.seq,
        lane="side",
        parent_id=None,
        about=None,
        at=entry.at,
        kind=Queued.kind,
        v=Queued.version,
        body=encode(queued),
    )
