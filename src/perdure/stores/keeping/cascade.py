"""Which sessions an erasure takes with it, which stand in its way, and what of them has to stay.

Pure: relations between streams and the entries they see come in, names of entries go out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perdure.errors import SessionHasForks
from perdure.session.codec import new_side
from perdure.session.entries import Entry
from perdure.session.fold import first_kept_by
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import BranchSummary, Compaction
from perdure.session.notes import CompactionUndone, ContentErased, Label
from perdure.stores.keeping.erasing import (
    ErasedSession,
    EraseRequest,
    ForkPolicy,
    Range,
    Relation,
    in_ranges,
    seqs_in,
    without,
)
from perdure.stores.protocol import ErasingWrite, StreamState

KEPT_NOTES = (Label.kind, CompactionUndone.kind)
"""Notes on shared entries that a fork goes on seeing."""


class Reach(msgspec.Struct, frozen=True):
    """What an erasure reaches: `targets` are erased, `forks` and `copies` of them stay."""

    targets: tuple[StreamId, ...]
    forks: tuple[StreamId, ...] = ()
    copies: tuple[StreamId, ...] = ()


def reach_of(roots: Sequence[StreamId], relations: Iterable[Relation], policy: ForkPolicy) -> Reach:
    """What erasing `roots` reaches: children always, forks and copies as `policy` says.

    Raises: SessionHasForks when the policy is "refuse" and there are some.
    """
    below: dict[StreamId, list[Relation]] = defaultdict(list)
    for relation in relations:
        below[relation.parent].append(relation)
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


def _live_forks(
    targets: Mapping[StreamId, None], below: Mapping[StreamId, Sequence[Relation]]
) -> list[StreamId]:
    """Forks of the targets that stay, and forks of those: an erased one may have some that live."""
    found: dict[StreamId, bool] = {}
    waiting = list(targets)
    while waiting:
        for relation in below.get(waiting.pop(), ()):
            if relation.how != "fork" or relation.stream in targets or relation.stream in found:
                continue
            found[relation.stream] = not relation.is_erased
            waiting.append(relation.stream)
    return [stream for stream, is_live in found.items() if is_live]


class Taking(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken of one stream: ranges of seqs that are `erased`, and those `kept` for forks."""

    stream: StreamId
    is_whole: bool
    erased: tuple[Range, ...]
    kept: tuple[Range, ...] = ()
    kept_for: tuple[StreamId, ...] = ()

    def write(self, request: EraseRequest) -> ErasingWrite:
        """What says so in the stream."""
        note = ContentErased(request.id, request.by, self.erased, self.is_whole)
        return ErasingWrite(stream=self.stream, entries=(new_side(note),))

    def done(
        self, before: StreamState, hash_after: bytes, *, entries: int, body_bytes: int
    ) -> ErasedSession:
        """The line of a certificate for it, once its `write` was appended."""
        return ErasedSession(
            session=self.stream,
            is_whole=self.is_whole,
            erased=self.erased,
            entries=entries,
            bytes=body_bytes,
            digests=entries,
            head=before.head + 1,
            hash_before=before.hash.hex(),
            hash_after=hash_after.hex(),
            kept=self.kept,
            kept_for=self.kept_for,
        )


class Seen(msgspec.Struct, frozen=True):
    """What a stream sees: every tree entry in log order, an origin's first, and its notes."""

    tree: Sequence[Entry]
    notes: Sequence[Entry] = ()


def takings(
    reach: Reach,
    heads: Mapping[StreamId, int],
    seen: Mapping[StreamId, Seen],
    trees: Mapping[StreamId, Sequence[Entry]],
) -> list[Taking]:
    """What is taken of every stream that `reach` names.

    `heads` are those of the targets, `seen` is what each fork sees, `trees` what each target does;
    `trees` is only needed where there are forks.
    """
    kept = kept_for(seen.values(), reach.targets)
    every = dict(trees) | {fork: each.tree for fork, each in seen.items()}
    erased = {
        entry.id
        for tree in every.values()
        for entry in tree
        if entry.stream in heads and entry.id not in kept
    }
    derived = summaries_of(erased, every) if seen else set[EntryId]()
    kept -= derived
    found = [_whole(target, heads[target], kept, seen) for target in reach.targets]
    for fork in reach.forks:
        own = in_ranges(seqs_in(derived, fork))
        if own:
            found.append(Taking(stream=fork, is_whole=False, erased=own))
    return found


def _whole(
    target: StreamId, head: int, kept: set[EntryId], seen: Mapping[StreamId, Seen]
) -> Taking:
    staying = in_ranges(seqs_in(kept, target))
    sharing = (f for f, each in seen.items() if any(e.stream == target for e in each.tree))
    return Taking(
        stream=target,
        is_whole=True,
        erased=without(staying, head),
        kept=staying,
        kept_for=tuple(sharing) if staying else (),
    )


def kept_for(seen: Iterable[Seen], targets: Iterable[StreamId]) -> set[EntryId]:
    """The entries of `targets` that the forks which see `seen` go on sharing."""
    streams = set(targets)
    kept: set[EntryId] = set()
    for each in seen:
        tree = {entry.id for entry in each.tree}
        kept |= {entry.id for entry in each.tree if entry.stream in streams}
        kept |= {
            note.id
            for note in each.notes
            if note.stream in streams and note.kind in KEPT_NOTES and note.about in tree
        }
    return kept


def summaries_of(erased: set[EntryId], trees: Mapping[StreamId, Sequence[Entry]]) -> set[EntryId]:
    """The summaries that cover one of `erased`, and those that cover such a summary.

    `trees` holds what each stream sees, of every stream that keeps something. What a summary says
    nobody can take apart, so one that covers anything erased is erased whole.
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
    # It tells of what was left behind: something below the point where its branch begins.
    before = [entry.id for entry in tree[: _index(summary, tree)] if entry.id in gone]
    point, path = summary.parent_id, set(above)
    return any(
        id_ not in path and (point is None or point in _above(id_, parents)) for id_ in before
    )


def _above(entry: EntryId | None, parents: Mapping[EntryId, EntryId | None]) -> list[EntryId]:
    """`entry` and what it hangs on, up to the root."""
    found: list[EntryId] = []
    while entry is not None:
        found.append(entry)
        entry = parents.get(entry)
    return found


def _index(entry: Entry, tree: Sequence[Entry]) -> int:
    return next(n for n, each in enumerate(tree) if each.id == entry.id)
