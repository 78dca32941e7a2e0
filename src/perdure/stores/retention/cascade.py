"""Plan an erasure: sessions to erase, sessions that block it, and entries that must stay.

The functions are pure: they take relations between streams and visible entries, and return entry
ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perdure.errors import SessionHasForks
from perdure.session.codec import ENTRY_NOTES, new_side
from perdure.session.entries import Entry, NewEntry
from perdure.session.fold import first_kept_by
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ListText
from perdure.session.kinds import BranchSummary, Compaction
from perdure.session.notes import ContentErased
from perdure.stores.protocol import ErasingWrite, StreamState
from perdure.stores.retention.erase import (
    ErasedSession,
    EraseRequest,
    ForkPolicy,
    Range,
    Relation,
    in_ranges,
    seqs_in,
    without,
)


class Reach(msgspec.Struct, frozen=True):
    """The scope of an erasure: `targets` are erased; their `forks` and `copies` stay."""

    targets: tuple[StreamId, ...]
    forks: tuple[StreamId, ...] = ()
    copies: tuple[StreamId, ...] = ()


def reach_of(roots: Sequence[StreamId], relations: Iterable[Relation], policy: ForkPolicy) -> Reach:
    """Return the scope of an erasure of `roots` and their children, with the fork policy `policy`.

    Raises: SessionHasForks if the policy is "refuse" and there are forks.
    """
    below = _by_parent(relations)
    targets = dict.fromkeys(roots)
    waiting = list(roots)
    while waiting:
        for relation in below[waiting.pop()]:
            if relation.stream not in targets and (relation.how == "child" or policy == "erase"):
                targets[relation.stream] = None
                waiting.append(relation.stream)
    forks = _live_forks(targets, below)
    copies = [
        relation.stream
        for target in targets
        for relation in below[target]
        if relation.how == "copy" and relation.stream not in targets and not relation.is_erased
    ]
    if policy == "refuse" and (forks or copies):
        raise SessionHasForks(roots[0], tuple(sorted({*forks, *copies})))
    return Reach(tuple(targets), tuple(forks), tuple(copies))


def reach_of_entries(stream: StreamId, relations: Iterable[Relation]) -> Reach:
    """Return `stream`, the forks that may share its entries, and the sessions with copies."""
    below = _by_parent(relations)
    copies = tuple(each.stream for each in below[stream] if each.how == "copy")
    return Reach((stream,), tuple(_live_forks({stream: None}, below)), copies)


def _by_parent(relations: Iterable[Relation]) -> defaultdict[StreamId, list[Relation]]:
    below: defaultdict[StreamId, list[Relation]] = defaultdict(list)
    for relation in relations:
        below[relation.parent].append(relation)
    return below


def _live_forks(
    targets: Mapping[StreamId, None], below: Mapping[StreamId, Sequence[Relation]]
) -> list[StreamId]:
    """Return all forks of the targets that are not erased, including forks of erased forks."""
    found: dict[StreamId, bool] = {}
    waiting = list(targets)
    while waiting:
        for relation in below.get(waiting.pop(), ()):
            if relation.how != "fork" or relation.stream in targets or relation.stream in found:
                continue
            found[relation.stream] = not relation.is_erased
            waiting.append(relation.stream)
    return [stream for stream, is_live in found.items() if is_live]


class StreamErasure(msgspec.Struct, frozen=True, kw_only=True):
    """The erasure of one stream.

    `erased` are the ranges of seqs to erase, and `kept` are the ranges that stay for forks. If only
    entries are erased, `listed` is the message text that lists show afterwards. `requested` counts
    the entries that the request named. `notes` are appended to the stream in the erasure's commit.
    """

    stream: StreamId
    is_whole: bool
    erased: tuple[Range, ...]
    kept: tuple[Range, ...] = ()
    kept_for: tuple[StreamId, ...] = ()
    listed: ListText | None = None
    requested: int = 0
    notes: tuple[NewEntry, ...] = ()

    def changes_list(self, state: StreamState) -> bool:
        """Return whether the erasure changes how lists show the stream, whose state is `state`."""
        return self.listed is not None and self.listed.first_text != state.info.first_text

    def write(self, request: EraseRequest) -> ErasingWrite:
        """Return the write that records the erasure in the stream."""
        note = ContentErased(request.id, request.by, self.erased, self.is_whole)
        entries = (new_side(note), *self.notes)
        return ErasingWrite(stream=self.stream, entries=entries, listed=self.listed)

    def erased_session(
        self, before: StreamState, hash_after: bytes, *, entries: int, body_bytes: int
    ) -> ErasedSession:
        """Return the certificate's line for the stream, after the stream's `write` was appended."""
        return ErasedSession(
            session=self.stream,
            is_whole=self.is_whole,
            erased=self.erased,
            entries=entries,
            requested=self.requested,
            bytes=body_bytes,
            digests=entries,
            head=before.head + 1 + len(self.notes),
            hash_before=before.hash.hex(),
            hash_after=hash_after.hex(),
            kept=self.kept,
            kept_for=self.kept_for,
        )


class VisibleEntries(msgspec.Struct, frozen=True):
    """The visible entries of a stream: its tree in log order, origin first, and its notes."""

    tree: Sequence[Entry]
    notes: Sequence[Entry] = ()


def streams_to_read(reach: Reach, relations: Iterable[Relation]) -> tuple[StreamId, ...]:
    """Return the streams whose entries `takings` needs: far fewer than all forks.

    A fork of a target sees all entries of the target that the fork's own forks see. So only two
    kinds of forks must be read: the forks nearest to a target, which see most of the target, and
    forks that share only one branch.
    """
    if not reach.forks:
        return ()
    kin = _Kin(reach, relations)
    return tuple(dict.fromkeys((*reach.targets, *kin.nearest(), *kin.paths())))


def takings(
    reach: Reach,
    heads: Mapping[StreamId, int],
    relations: Iterable[Relation],
    seen: Mapping[StreamId, VisibleEntries],
) -> list[StreamErasure] | None:
    """Return what to erase in each stream of the scope `reach`.

    `heads` contains the heads of the targets; `seen` contains the visible entries of each stream
    that `streams_to_read` returns. If a summary that forks share must be erased, the call needs the
    visible entries of all forks, and returns None if `seen` lacks a fork.
    """
    kin = _Kin(reach, relations)
    kept = kept_for((seen[fork] for fork in kin.nearest()), reach.targets)
    every = {stream: each.tree for stream, each in seen.items()}
    erased = {
        entry.id
        for tree in every.values()
        for entry in tree
        if entry.stream in heads and entry.id not in kept
    }
    derived = summaries_of(erased, every) if seen else set[EntryId]()
    if not (derived.isdisjoint(kept) or seen.keys() >= {*reach.forks}):
        return None
    kept -= derived
    sharing = kin.sharing(seen)
    found = [_whole(target, heads[target], kept, sharing) for target in reach.targets]
    for fork in reach.forks if derived else ():
        own = in_ranges(seqs_in(derived, fork))
        if own:
            found.append(StreamErasure(stream=fork, is_whole=False, erased=own))
    return found


def _whole(
    target: StreamId,
    head: int,
    kept: set[EntryId],
    sharing: Mapping[StreamId, Sequence[StreamId]],
) -> StreamErasure:
    staying = in_ranges(seqs_in(kept, target))
    return StreamErasure(
        stream=target,
        is_whole=True,
        erased=without(staying, head),
        kept=staying,
        kept_for=tuple(sharing.get(target, ())) if staying else (),
    )


class _Kin:
    """The relations between the forks and the targets of an erasure."""

    def __init__(self, reach: Reach, relations: Iterable[Relation]) -> None:
        self._reach = reach
        self._targets = frozenset(reach.targets)
        self.relation = {each.stream: each for each in relations if each.how == "fork"}

    def nearest(self) -> list[StreamId]:
        """Return the forks that together see all target entries that any fork sees."""
        live = frozenset(self._reach.forks)
        is_below: dict[StreamId, bool] = {}
        farthest: dict[StreamId, StreamId] = {}
        found: list[StreamId] = []
        for fork in self._reach.forks:
            relation = self.relation[fork]
            if self._is_below_live(relation.parent, live, is_below):
                continue
            if relation.is_path:
                found.append(fork)
                continue
            other = farthest.get(relation.parent)
            if other is None or relation.head > self.relation[other].head:
                farthest[relation.parent] = fork
        return [*found, *farthest.values()]

    def _is_below_live(
        self, stream: StreamId, live: frozenset[StreamId], known: dict[StreamId, bool]
    ) -> bool:
        """Return whether `stream` or one of its origins is a fork that the erasure keeps.

        The call follows the origins of `stream` only until a target of the erasure.
        """
        passed: list[StreamId] = []
        while stream not in known and stream not in live and stream not in self._targets:
            passed.append(stream)
            if stream not in self.relation:
                break
            stream = self.relation[stream].parent
        answer = known.get(stream, stream in live)
        known.update(dict.fromkeys(passed, answer))
        return answer

    def paths(self) -> list[StreamId]:
        """Return the forks that share only one branch.

        The result also contains erased forks that other forks need.
        """
        passed: dict[StreamId, None] = {}
        for fork in self._reach.forks:
            stream = fork
            while stream not in passed and stream not in self._targets:
                passed[stream] = None
                stream = self.relation[stream].parent
        return [stream for stream in passed if self.relation[stream].is_path]

    def sharing(self, seen: Mapping[StreamId, VisibleEntries]) -> dict[StreamId, list[StreamId]]:
        """Map each target to the forks that see some of the target's entries."""
        first = {stream: _first_seqs(each.tree, self._targets) for stream, each in seen.items()}
        found: dict[StreamId, list[StreamId]] = defaultdict(list)
        for fork in self._reach.forks:
            for target in self._shared_targets(fork, first):
                found[target].append(fork)
        return found

    def _shared_targets(
        self, fork: StreamId, first: dict[StreamId, dict[StreamId, int]]
    ) -> Mapping[StreamId, int]:
        """Map each target to the first of its seqs that `fork` sees.

        Targets that share nothing with `fork` are omitted. The call also stores the results for
        `fork` and its origins in `first`, for later calls.

        A fork of a whole tree sees its parent's log up to the fork point, and all entries of other
        streams that the parent sees.
        """
        passed: list[Relation] = []
        stream = fork
        while stream not in first:
            passed.append(self.relation[stream])
            stream = self.relation[stream].parent
        for relation in reversed(passed):
            origin, shared = relation.parent, first[relation.parent]
            if shared.get(origin, relation.head) > relation.head:
                shared = {target: seq for target, seq in shared.items() if target != origin}
            first[relation.stream] = shared
        return first[fork]


def _first_seqs(tree: Sequence[Entry], targets: frozenset[StreamId]) -> dict[StreamId, int]:
    found: dict[StreamId, int] = {}
    for entry in tree:
        if entry.stream in targets:
            found[entry.stream] = min(entry.seq, found.get(entry.stream, entry.seq))
    return found


def kept_for(seen: Iterable[VisibleEntries], targets: Iterable[StreamId]) -> set[EntryId]:
    """Return the entries of `targets` that stay because forks share them.

    `seen` has the visible entries of each fork.
    """
    streams = set(targets)
    kept: set[EntryId] = set()
    for each in seen:
        tree = {entry.id for entry in each.tree}
        kept |= {entry.id for entry in each.tree if entry.stream in streams}
        kept |= {
            note.id
            for note in each.notes
            if note.stream in streams and note.kind in ENTRY_NOTES and note.about in tree
        }
    return kept


def summaries_of(erased: set[EntryId], trees: Mapping[StreamId, Sequence[Entry]]) -> set[EntryId]:
    """Return the summaries that cover an entry of `erased`, and the summaries of these summaries.

    `trees` contains the visible entries of every stream that keeps entries. A summary cannot be
    split, so a summary that covers any erased entry is erased as a whole.
    """
    found: set[EntryId] = set()
    while True:
        gone = erased | found
        more = {
            entry.id
            for stream, tree in trees.items()
            for entry in tree
            if entry.stream == stream and entry.id not in gone and _covers(entry, gone, tree)
        }
        if not more:
            return found
        found |= more


def _covers(summary: Entry, gone: set[EntryId], tree: Sequence[Entry]) -> bool:
    if summary.kind not in (Compaction.kind, BranchSummary.kind) or summary.is_erased:
        return False
    parents = {entry.id: entry.parent_id for entry in tree}
    above = _above(summary.parent_id, parents)
    if summary.kind == Compaction.kind:
        kept = first_kept_by(summary)
        hidden = above[above.index(kept) + 1 :] if kept is not None and kept in above else above
        return not gone.isdisjoint(hidden)
    # It summarizes the abandoned branch: entries below the point where its own branch begins.
    before = [entry.id for entry in tree[: _index(summary, tree)] if entry.id in gone]
    point, path = summary.parent_id, set(above)
    return any(
        id_ not in path and (point is None or point in _above(id_, parents)) for id_ in before
    )


def _above(entry: EntryId | None, parents: Mapping[EntryId, EntryId | None]) -> list[EntryId]:
    """Return `entry` and its ancestors up to the root."""
    found: list[EntryId] = []
    while entry is not None:
        found.append(entry)
        entry = parents.get(entry)
    return found


def _index(entry: Entry, tree: Sequence[Entry]) -> int:
    return next(n for n, each in enumerate(tree) if each.id == entry.id)
