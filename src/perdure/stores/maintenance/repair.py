"""Turn the readable parts of a damaged stream into a valid stream, and list the losses.

Readable entries keep their id, place and digest. An opaque entry replaces a missing entry. A
damaged body is dropped, but its digest remains, so the chain stays valid. A note at the end of the
stream lists the dropped bodies. If an entry is missing, the chain is recomputed from this entry on.
The functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from perdure.session.clock import RandomSource
from perdure.session.codec import new_side
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.info import StreamHeader
from perdure.session.kinds import OPAQUE
from perdure.session.notes import ContentErased, LeafMoved
from perdure.stores.chain import SALT_BYTES, body_digest, commit_hash, genesis_hash, header_line
from perdure.stores.maintenance.segments import SealedCommit, StreamSegment, origins_first
from perdure.stores.protocol import EMPTY, Problem
from perdure.stores.verification import StoredCommit, StoredEntry, moved_leaf, sealed

LOST = b"This entry could not be read any more when the store was repaired."
CERTIFICATE = "repair"
"""Certificate id in the note about damaged bodies, because a repair has no certificate."""


class SalvagedStream(msgspec.Struct, frozen=True):
    """The readable parts of a stream. `head` is the stored head of the stream.

    `tree` are the tree entries that the stored state of the stream names, such as the leaf.
    Shape: `rows` maps a seq to its row; a row is in `rows` even if its body does not match its
    digest. `header` is None if only the `id` could be read.
    """

    id: StreamId
    header: StreamHeader | None
    genesis: bytes | None
    head: int
    tree: tuple[EntryId, ...]
    epoch: int
    is_erased: bool
    rows: Mapping[int, StoredEntry]
    commits: tuple[StoredCommit, ...]
    aliases: tuple[tuple[str, int], ...] = ()


class SalvagedNamespace(msgspec.Struct, frozen=True):
    """The readable streams of a namespace, and the losses that were found while reading them."""

    streams: Sequence[SalvagedStream]
    losses: Sequence[Problem] = ()


class RepairedStream(msgspec.Struct, frozen=True):
    """A valid stream, made from a salvaged one.

    `is_same` means that the commits have their original hashes.
    """

    sealed: StreamSegment
    losses: tuple[Problem, ...]
    is_same: bool


class NamespaceRepair:
    """Repairs the streams of one namespace one by one; an origin is repaired before its forks."""

    def __init__(self, named: Iterable[EntryId], random: RandomSource, at: int) -> None:
        """`named` are the parents that readable entries name; `at` is the time of the repair."""
        self._named = set(named)
        self._random = random
        self._at = at
        self._tree: set[EntryId] = set()
        self._chains: dict[StreamId, list[tuple[int, bytes]]] = {}

    def repair_stream(self, remains: SalvagedStream) -> RepairedStream:
        """Return the salvaged stream `remains` as a stream that passes `verify`."""
        work = _Stream(remains, self._named, self._tree, self._random, self._origin_hash)
        mended = work.repair(self._at)
        self._tree |= work.tree
        chain = [(EMPTY, mended.sealed.before)]
        chain += [(commit.last, commit.hash) for commit in mended.sealed.commits]
        self._chains[remains.id] = chain
        return mended

    def _origin_hash(self, header: StreamHeader) -> bytes | None:
        """Return the origin's chain hash at the fork point; None if the origin is missing."""
        if header.fork is None:
            return b""
        chain = self._chains.get(header.fork.stream)
        if chain is None:
            return None
        head = header.fork.head
        if head == EMPTY:
            return chain[0][1]
        return next((chain_hash for last, chain_hash in chain[1:] if last >= head), None)


MOST_LOST = 100_000
"""Maximum number of missing entries that a repair replaces; a larger number is damaged data."""


class _Stream:
    """Repairs one stream."""

    def __init__(
        self,
        remains: SalvagedStream,
        named: set[EntryId],
        seen: set[EntryId],
        random: RandomSource,
        origin_hash: Callable[[StreamHeader], bytes | None],
    ) -> None:
        self.tree: set[EntryId] = set()
        self._remains = remains
        self._named = named
        self._seen = seen
        self._random = random
        self._origin_hash = origin_hash
        self._losses: list[Problem] = []
        self._gone: list[int] = []
        self._leaf: EntryId | None = None

    def _lose(self, seq: int | None, what: str) -> None:
        self._losses.append(Problem(self._remains.id, seq, what))

    # -- the stream

    def repair(self, at: int) -> RepairedStream:
        header = self._header()
        genesis = self._genesis(header)
        is_same = self._remains.genesis == genesis
        self._leaf = header.fork.leaf if header.fork else None
        self._seen = self._seen if header.fork else set[EntryId]()
        commits: list[SealedCommit] = []
        before = genesis
        for commit in self._commits():
            rows = tuple(self._row(seq, commit.at) for seq in _seqs(commit))
            lines = [header_line(row.entry, row.digest) for row in rows]
            chain = commit_hash(before, commit.at, commit.epoch, lines)
            if is_same and chain != commit.hash:
                is_same = False
                if not any(loss.seq in _seqs(commit) for loss in self._losses):
                    what = "the hash of its commit does not fit; the entries are kept as they read"
                    self._lose(commit.first, what)
            commits.append(SealedCommit(commit.at, commit.epoch, chain, rows))
            before = chain
        if self._gone:
            commits.append(self._note(before, at))
        sealed = StreamSegment(
            header=header,
            before=genesis,
            epoch=max([self._remains.epoch, *(commit.epoch for commit in commits)]),
            commits=tuple(commits),
            aliases=self._remains.aliases,
            is_erased=self._remains.is_erased,
        )
        return RepairedStream(sealed, tuple(self._losses), is_same)

    def _header(self) -> StreamHeader:
        header = self._remains.header
        if header is None:
            self._lose(None, "its header is gone: title, folder and origin are not known any more")
            times = [row.entry.at for row in self._remains.rows.values()]
            return StreamHeader(self._remains.id, min(times, default=0))
        if header.fork is None:
            return header
        leaf = header.fork.leaf
        if self._origin_hash(header) is None or (leaf is not None and leaf not in self._seen):
            self._lose(None, "its origin is missing; its own entries are kept")
            return msgspec.structs.replace(header, fork=None, parent=header.fork.stream)
        return header

    def _genesis(self, header: StreamHeader) -> bytes:
        kept = self._remains.genesis
        if self._remains.is_erased and kept is not None:
            return kept
        genesis = genesis_hash(header, self._origin_hash(header) or b"")
        if kept is not None and kept != genesis and header == self._remains.header:
            self._lose(None, "the hash its chain begins with does not fit its header")
        return genesis

    # -- commits

    def _commits(self) -> Iterator[StoredCommit]:
        """Yield commits that together contain every seq once, in order.

        For entries whose commit is lost, a new commit is created.
        """
        rows, last = self._remains.rows, self._top()
        after = EMPTY
        for commit in sorted(self._remains.commits, key=lambda each: each.first):
            if commit.first <= after or commit.count < 1 or commit.first > last:
                continue
            if commit.first > after + 1:
                yield _made_up(rows, after + 1, commit.first - 1, self._lose)
            yield msgspec.structs.replace(commit, count=min(commit.count, last - commit.first + 1))
            after = commit.first + commit.count - 1
        if after < last:
            yield _made_up(rows, after + 1, last, self._lose)

    def _top(self) -> int:
        """Return the last seq of the original stream."""
        most = len(self._remains.rows) + MOST_LOST
        for seq in self._remains.rows:
            if seq > most:
                self._lose(seq, "so many entries cannot have been before it: it is left out")
        known = [each.first + each.count - 1 for each in self._remains.commits]
        tops = [self._remains.head, *self._remains.rows, *known]
        return max((top for top in tops if top <= most), default=EMPTY)

    # -- entries

    def _row(self, seq: int, at: int) -> StoredEntry:
        row = self._remains.rows.get(seq)
        row = self._placeholder(seq, at) if row is None else self._sound(row)
        entry = row.entry
        if entry.lane == "tree":
            self.tree.add(entry.id)
            self._leaf = entry.id
        elif entry.kind == LeafMoved.kind:
            target = moved_leaf(entry, self._leaf)
            if target is not None and not self._is_tree(target):
                row = self._without_body(row, "the leaf it names is gone")
            else:
                self._leaf = target
        return row

    def _is_tree(self, reference: EntryId) -> bool:
        return reference in self.tree or reference in self._seen

    def _sound(self, row: StoredEntry) -> StoredEntry:
        entry = row.entry
        if row.is_foreign:  # its digest covers the tool's line, not this body
            row = sealed(entry, self._random(SALT_BYTES))
        elif row.salt is None and entry.body:
            row = self._without_body(row, "its salt is gone; its body cannot be checked")
        elif row.salt is not None and body_digest(entry.body, row.salt) != row.digest:
            row = self._without_body(row, "its body is damaged")
        parent = entry.parent_id
        if parent is not None and not self._is_tree(parent):
            self._lose(entry.seq, f"its parent {parent} is gone; it follows the leaf instead")
            entry = msgspec.structs.replace(row.entry, parent_id=self._leaf)
            return msgspec.structs.replace(row, entry=entry)
        return row

    def _without_body(self, row: StoredEntry, why: str) -> StoredEntry:
        seq = row.entry.seq
        self._lose(seq, why)
        if self._remains.is_erased or row.entry.kind in (ContentErased.kind, LeafMoved.kind):
            return self._placeholder(seq, row.entry.at, is_told=False)
        self._gone.append(seq)
        return StoredEntry(msgspec.structs.replace(row.entry, body=b""), None, row.digest)

    def _placeholder(self, seq: int, at: int, *, is_told: bool = True) -> StoredEntry:
        """Return a replacement for a missing entry.

        The replacement is a tree entry if another entry, or the stored state of the stream, names
        the missing entry as a tree entry.
        """
        if is_told:
            self._lose(seq, "it is gone")
        stream = self._remains.id
        own = entry_id(stream, seq)
        is_tree = own in self._named or own in self._remains.tree
        entry = Entry(
            stream=stream,
            seq=seq,
            lane="tree" if is_tree else "side",
            parent_id=self._leaf if is_tree else None,
            about=None,
            at=at,
            kind=OPAQUE,
            v=1,
            body=LOST,
        )
        return sealed(entry, self._random(SALT_BYTES))

    def _note(self, before: bytes, at: int) -> SealedCommit:
        """Return the commit with the note that lists the lost bodies."""
        ranges = tuple((seq, seq) for seq in sorted(self._gone))
        new = new_side(ContentErased(CERTIFICATE, "repair", ranges))
        seq = self._top() + 1
        entry = Entry(self._remains.id, seq, "side", None, None, at, new.kind, new.v, new.body)
        row = sealed(entry, self._random(SALT_BYTES))
        lines = [header_line(entry, row.digest)]
        return SealedCommit(at, 0, commit_hash(before, at, 0, lines), (row,))


def _seqs(commit: StoredCommit) -> range:
    return range(commit.first, commit.first + commit.count)


def _made_up(
    rows: Mapping[int, StoredEntry], first: int, last: int, lose: Callable[[int, str], None]
) -> StoredCommit:
    """Return a commit for entries whose own commit is lost."""
    times = [rows[seq].entry.at for seq in range(first, last + 1) if seq in rows]
    if times:
        lose(first, f"the commit that held the entries {first} to {last} is gone")
    return StoredCommit(first, last - first + 1, max(times, default=0), 0, b"")


def parents_in(rows: Iterable[StoredEntry]) -> Iterator[EntryId]:
    """Yield every entry that one of `rows` references as its parent or as the new leaf."""
    for row in rows:
        if row.entry.parent_id is not None:
            yield row.entry.parent_id
        if row.entry.kind == LeafMoved.kind:
            target = moved_leaf(row.entry, None)
            if target is not None:
                yield target


def in_order(found: Sequence[SalvagedStream]) -> list[SalvagedStream]:
    """Sort `found` so that an origin comes before its forks."""
    by_id = {each.id: each for each in found}
    headers = {id: each.header for id, each in by_id.items()}
    forks = {id: None if header is None else header.fork for id, header in headers.items()}
    origins = {id: None if fork is None else fork.stream for id, fork in forks.items()}
    return [by_id[id] for id in origins_first(origins)]
