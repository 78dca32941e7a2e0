"""Recompute a stream from stored data: hashes, order, parents, leaf, counts.

A backend reads its rows in order and passes them to `stream_problems`. Each fault is reported once,
with its stream and seq. After a fault the check continues from the stored values, so one flipped
byte is reported as one problem, not as one for each later entry. The functions are pure: they read
and change no store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from perdure.secrets.mask import MASK, mask_secrets
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.ids import MOST_SEQ, EntryId, StreamId, blob_hash
from perdure.session.info import SessionInfo, erasure_in, is_command
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import MESSAGE
from perdure.session.notes import LeafMoved
from perdure.stores.append_rules import Sees
from perdure.stores.chain import body_digest, commit_hash, genesis_hash, header_line
from perdure.stores.protocol import EMPTY, OnProgress, Problem, StreamState

TOLD_EVERY = 500
"""Number of steps of a check between two progress reports."""

STEP_BYTES = 16 * 1024
"""Bytes of content that count as one step: checking them takes about as long as one entry."""

_NOT_HERE = ", which it shows, is not here"
_MEDIA = re.compile(rb'"handle":"media://(sha256-[0-9a-f]{64})"')


class StoredEntry(msgspec.Struct, frozen=True):
    """A stored entry. `salt` None means that body and salt were erased.

    `is_foreign` means that another tool wrote the entry. A foreign entry has no salt, and its
    digest is the digest of the tool's line.
    """

    entry: Entry
    salt: bytes | None
    digest: bytes
    is_foreign: bool = False


def sealed(entry: Entry, salt: bytes) -> StoredEntry:
    """Return `entry` in its stored form, with the salt `salt`."""
    return StoredEntry(entry, salt, body_digest(entry.body, salt))


class StoredCommit(msgspec.Struct, frozen=True):
    """The part of a commit in one stream.

    `count` is the number of entries, `first` is the seq of the first entry, and `hash` is the chain
    hash after the commit.
    """

    first: int
    count: int
    at: int
    epoch: int
    hash: bytes


def stream_problems(
    state: StreamState,
    commits: Iterable[StoredCommit],
    entries: Iterable[StoredEntry],
    sees: Sees,
    *,
    origin_hash: bytes = b"",
    shared_messages: int = 0,
    genesis: bytes | None = None,
) -> Iterator[Problem]:
    """Yield every fault of the stream whose stored state is `state`.

    `commits` and `entries` must be in order. Only a fork refers to entries of other streams; `sees`
    checks these references. For a fork, `origin_hash` is the hash of its origin's chain at the fork
    (`origin_hash_of`). `shared_messages` counts the messages that a fork inherits from its origin
    (``append_rules.ForkOrigin``). `genesis` is the stored hash before the first commit, because
    this hash cannot be computed from the incomplete header of an erased stream.
    """
    stream = state.header.id
    check = _Check(state, sees, shared_messages)
    is_erased = state.info.status == "erased" and genesis is not None
    before = genesis if is_erased and genesis else genesis_hash(state.header, origin_hash)
    rows, epoch = _Rows(entries), 0
    for commit in commits:
        if 0 < commit.epoch < epoch:
            text = f"it was written under epoch {commit.epoch}, which epoch {epoch} had fenced"
            yield Problem(stream, commit.first, text)
        epoch = max(epoch, commit.epoch)
        for row in rows.up_to(commit.first - 1):
            yield Problem(stream, row.entry.seq, "it belongs to no commit")
            yield from check.entry_problems(row)
        own = list(rows.up_to(commit.first + commit.count - 1))
        for row in own:
            yield from check.entry_problems(row)
        yield from _commit_problems(stream, before, commit, own)
        before = commit.hash
    for row in rows.up_to(MOST_SEQ):
        yield Problem(stream, row.entry.seq, "it belongs to no commit")
        yield from check.entry_problems(row)
    if before != state.hash:
        yield Problem(stream, None, "the hash kept with the session is not that of its last commit")
    if epoch > state.epoch:
        text = f"its lease has epoch {state.epoch}, and entries were written under epoch {epoch}"
        yield Problem(stream, None, text)
    yield from check.state_problems()


def _commit_problems(
    stream: StreamId, before: bytes, commit: StoredCommit, rows: list[StoredEntry]
) -> Iterator[Problem]:
    if len(rows) != commit.count:
        what = f"its commit has {commit.count} entries, {len(rows)} of them are here"
        yield Problem(stream, commit.first, what)
        return
    lines = [header_line(row.entry, row.digest) for row in rows]
    if commit_hash(before, commit.at, commit.epoch, lines) != commit.hash:
        yield Problem(stream, commit.first, _altered_message(commit))


def _altered_message(commit: StoredCommit) -> str:
    last = commit.first + commit.count - 1
    which = "this entry" if commit.count == 1 else f"one of the entries {commit.first} to {last}"
    before = "the session" if commit.first == 0 else "the commit before"
    return f"the hash of its commit does not fit: {which}, or {before}, was altered"


class _Rows:
    """Reads ordered rows step by step, up to a given sequence number."""

    def __init__(self, rows: Iterable[StoredEntry]) -> None:
        self._rows = iter(rows)
        self._next = next(self._rows, None)

    def up_to(self, last: int) -> Iterator[StoredEntry]:
        """Yield the next rows whose seq is at most `last`, in order."""
        while self._next is not None and self._next.entry.seq <= last:
            row, self._next = self._next, next(self._rows, None)
            yield row


def contents_shown(entry: Entry) -> list[str]:
    """Return the names of the contents that `entry` shows as media."""
    if b"media://" not in entry.body:
        return []
    return [name.decode() for name in _MEDIA.findall(entry.body)]


def content_lost(entry: Entry, name: str) -> Problem:
    """Return the fault of an entry whose content is missing."""
    return Problem(entry.stream, entry.seq, f"the content {name}{_NOT_HERE}")


def is_content_lost(problem: Problem) -> bool:
    """Return True if `content_lost` created `problem`.

    If a content is lost, its entry is intact, but a repair cannot restore the content.
    """
    return problem.problem.endswith(_NOT_HERE)


def blob_problems(digest: str, content: bytes) -> Iterator[Problem]:
    """Yield a fault if the content of a blob does not match its name `digest`."""
    if blob_hash(content) != digest:
        yield Problem(None, None, f"the content {digest} is damaged")


def content_steps(size_bytes: int) -> int:
    """Return the number of check steps for a content of the given size."""
    return 1 + size_bytes // STEP_BYTES


class Steps:
    """Reports to `told` how many of `total` steps are done. For 0 steps, nothing is reported."""

    def __init__(self, told: OnProgress | None, total: int, *, every: int = TOLD_EVERY) -> None:
        self._told = told if total else None
        self._every = every
        self._total = total
        self._done = 0
        self._unsaid = 0

    def add(self, steps: int = 1) -> None:
        """Count more finished steps.

        The sum never exceeds the total, although entries may be added during the check.
        """
        self._done += steps
        self._unsaid += steps
        if self._told is not None and self._unsaid >= self._every and self._done < self._total:
            self._unsaid = 0
            self._told(self._done, self._total)

    def end(self) -> None:
        """Report completion."""
        if self._told is not None:
            self._told(self._total, self._total)


class _Check:
    """Computes totals over the entries of a stream, and compares them with the stored values."""

    def __init__(self, state: StreamState, sees: Sees, shared_messages: int) -> None:
        fork = state.header.fork
        self.head = EMPTY
        self._state = state
        self._sees = sees
        self._leaf = fork.leaf if fork else None
        self._open_turn: int | None = None
        self._messages = shared_messages
        self._entries = 0
        self._tree: set[EntryId] = set()
        self._erased: list[int] = []
        self._ranges: list[tuple[int, int]] = []

    def entry_problems(self, row: StoredEntry) -> Iterator[Problem]:
        """Yield the faults of the next entry."""
        entry = row.entry
        stream = self._state.header.id
        if entry.seq != self.head + 1:
            yield Problem(
                stream, entry.seq, f"it should follow entry {self.head} but is {entry.seq}"
            )
        if row.salt is None and not row.is_foreign:
            if entry.body:
                yield Problem(stream, entry.seq, "its salt is gone, and its body is not")
            else:
                self._erased.append(entry.seq)
        elif row.salt is not None and body_digest(entry.body, row.salt) != row.digest:
            yield Problem(stream, entry.seq, "its body is not what was committed")
        if entry.parent_id is not None and not self._is_tree_entry(entry.parent_id):
            yield Problem(stream, entry.seq, f"its parent {entry.parent_id} is not in the tree")
        self._count(entry)

    def state_problems(self) -> Iterator[Problem]:
        """Yield the faults of stream values that do not match the stream's entries."""
        state = self._state
        for seq in self._erased:
            if not any(first <= seq <= last for first, last in self._ranges):
                text = "its body is gone, and nothing in the session says that it was erased"
                yield Problem(state.header.id, seq, text)
        info = state.info
        for what, kept, computed in (
            ("head", state.head, self.head),
            ("leaf", state.leaf, self._leaf),
            ("open turn", state.open_turn, self._open_turn),
            ("number of entries", info.entries, self._entries),
            ("number of messages", info.messages, self._messages),
        ):
            if kept != computed:
                text = f"its {what} is kept as {kept}, its entries give {computed}"
                yield Problem(state.header.id, None, text)

    def _count(self, entry: Entry) -> None:
        self.head = entry.seq
        self._entries += 1
        self._messages += entry.kind == MESSAGE
        self._leaf, self._open_turn = position_after(entry, self._leaf, self._open_turn)
        if entry.lane == "tree":
            self._tree.add(entry.id)
        elif (erased := erasure_in(entry)) is not None:
            self._ranges += erased.ranges

    def _is_tree_entry(self, reference: EntryId) -> bool:
        is_own = reference.rpartition("/")[0] == self._state.header.id
        return reference in self._tree if is_own else self._sees(reference)


def position_after(
    entry: Entry, leaf: EntryId | None, open_turn: int | None
) -> tuple[EntryId | None, int | None]:
    """Return the leaf and the open turn of the stream after `entry`."""
    if entry.lane == "tree":
        return entry.id, open_turn
    if entry.kind == TurnStarted.kind:
        return leaf, entry.seq
    if entry.kind == LeafMoved.kind:
        return moved_leaf(entry, leaf), open_turn
    erased = erasure_in(entry)
    if entry.kind == TurnFinished.kind or (erased is not None and erased.is_whole):
        return leaf, None
    return leaf, open_turn


def moved_leaf(entry: Entry, leaf: EntryId | None) -> EntryId | None:
    """Return the leaf that `entry` sets; return `leaf` if the body of `entry` is unreadable."""
    body = readable(entry)
    return body.target if isinstance(body, LeafMoved) else leaf


def info_faults(state: StreamState, computed: SessionInfo) -> Iterator[str]:
    """Yield a fault for each field of the stream's list row that differs from `computed`.

    `computed` comes from the entries of the stream. The counts are not compared, because
    `stream_problems` checks them. Erased streams are skipped, because the entries that their fields
    come from are gone. Forks are skipped, because some entries that their fields come from are in
    the origin. A different `first_text` is no fault if an older version of perdure may have stored
    it. Older versions stored credentials and slash commands unchanged, or put an attached text
    after the message.
    """
    kept = state.info
    if kept.status == "erased" or state.header.fork is not None or kept == computed:
        return
    for name in SessionInfo.__struct_fields__:
        value, given = getattr(kept, name), getattr(computed, name)
        if value == given or name in ("messages", "entries"):
            continue
        if name == "first_text" and _is_of_older_version(value, given):
            continue
        yield mask_secrets(f"its {name} is kept as {value!r}, its entries give {given!r}")


def _is_of_older_version(kept: str | None, computed: str | None) -> bool:
    """Return True if an older version of perdure may have stored `kept` instead of `computed`."""
    has_attachment = kept is not None and kept.startswith(f"{computed} ")
    return is_command(kept or "") or has_attachment or _is_unmasked(kept, computed)


def _is_unmasked(kept: str | None, computed: str | None) -> bool:
    """Return True if `kept` equals `computed` up to the first mask in `computed`."""
    if kept is None or computed is None:
        return False
    pairs = enumerate(zip(kept, computed, strict=False))
    first = next((place for place, (old, new) in pairs if old != new), len(kept))
    rest = computed[first:]
    return rest.startswith(MASK) or (rest.endswith("…") and MASK.startswith(rest[:-1]))


def origin_hash_of(genesis: bytes, commits: Iterable[StoredCommit], head: int) -> bytes:
    """Return an origin's chain hash at a fork.

    The result is the chain hash after the commit that contains seq `head`. `genesis` is the
    origin's own genesis hash (the hash before its first commit), which is returned for head -1.
    `commits` must be in order.
    """
    found = genesis
    for commit in commits:
        if commit.first > head:
            break
        found = commit.hash
    return found
