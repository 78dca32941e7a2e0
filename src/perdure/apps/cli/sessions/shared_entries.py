"""Finds, for an erasure's preview, the entries that stay because other sessions share them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from perdure.client.store import Store
from perdure.session.codec import ENTRY_NOTES
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import SessionInfo
from perdure.stores.retention.cascade import VisibleEntries, kept_for, summaries_of
from perdure.stores.retention.erase import ForkPolicy

_NO_FORKS = ("role", "subagent")
"""Origins of sessions that belong to their parent, but share no entries with it."""

_NAMED = 5
"""Maximum number of forks that a line names."""

Forks = Mapping[StreamId, Sequence[StreamId]]
"""Session that is erased -> its forks and copies that are not erased."""


def shares_with_parent(info: SessionInfo) -> bool:
    """Return whether the session `info` is a fork or a copy of its parent."""
    return info.parent is not None and info.origin not in _NO_FORKS


def remaining_forks(infos: Iterable[SessionInfo], erased: Collection[StreamId]) -> Forks:
    """Return, for each session of `erased`, the forks (and forks of forks) that are not erased."""
    below: dict[StreamId, list[StreamId]] = defaultdict(list)
    for info in infos:
        if info.parent is not None and shares_with_parent(info):
            below[info.parent].append(info.id)
    found: dict[StreamId, list[StreamId]] = {}
    for session in erased:
        reached = dict.fromkeys([session])
        waiting = [session]
        while waiting:
            new = [fork for fork in below[waiting.pop()] if fork not in reached]
            reached.update(dict.fromkeys(new))
            waiting += new
        if forks := [fork for fork in reached if fork not in erased]:
            found[session] = forks
    return found


async def kept_entries(store: Store, forks: Forks) -> set[EntryId]:
    """Return the entries of the erased sessions in `forks` that stay because a fork shares them.

    Entries that are erased already are omitted.
    """
    log = store.backend
    seen: dict[StreamId, VisibleEntries] = {}
    for fork in dict.fromkeys(fork for each in forks.values() for fork in each):
        seen[fork] = VisibleEntries(await log.tree(fork), await log.notes(fork, ENTRY_NOTES))
    kept = kept_for(seen.values(), forks)
    trees = {fork: each.tree for fork, each in seen.items()}
    trees |= {session: await log.tree(session) for session in forks}
    erased = {
        entry.id
        for tree in trees.values()
        for entry in tree
        if entry.stream in forks and entry.id not in kept
    }
    gone = {entry.id for tree in trees.values() for entry in tree if entry.is_erased}
    return kept - summaries_of(erased, trees) - gone


class EntryForks(msgspec.Struct, frozen=True):
    """The `forks` that share some of the entries to erase, and the `shared` entries."""

    forks: tuple[StreamId, ...]
    shared: frozenset[EntryId]

    def erasable(self, entries: Sequence[Entry], policy: ForkPolicy) -> Sequence[Entry]:
        """Return those `entries` that an erasure with `policy` erases."""
        if policy == "refuse" and self.shared:
            return ()
        staying = self.shared if policy == "keep" else ()
        return [each for each in entries if not each.is_erased and each.id not in staying]

    def lines(self, policy: ForkPolicy) -> Sequence[str]:
        """Return the line about the forks; none if no fork shares an entry."""
        if not self.shared:
            return ()
        numbers = ", ".join(id.rpartition("/")[2] for id in sorted(self.shared, key=_seq))
        which = f"{'entry' if len(self.shared) == 1 else 'entries'} {numbers}"
        forks = fork_names(self.forks)
        if policy == "erase":
            return (f"{which}: erased in the forks too ({forks})",)
        if policy == "keep":
            return (f"not erased: {which}, which forks share ({forks}); use --with-forks instead",)
        advice = "add --with-forks to erase in the forks too"
        return (f"nothing is erased: forks ({forks}) share {which}; {advice}",)


def _seq(entry: EntryId) -> int:
    return int(entry.rpartition("/")[2])


def fork_names(forks: Sequence[StreamId]) -> str:
    """Return the first ids of `forks` as text, and the number of the other forks."""
    more = f" and {len(forks) - _NAMED:,} more" if len(forks) > _NAMED else ""
    return ", ".join(forks[:_NAMED]) + more


async def forks_of_entries(store: Store, session: StreamId, entries: Sequence[Entry]) -> EntryForks:
    """Return the forks of `session` that share an entry of `entries`."""
    infos = await store.recent(None, scope="all")
    sought = {entry.id for entry in entries}
    forks: list[StreamId] = []
    shared: set[EntryId] = set()
    for fork in remaining_forks(infos, {session}).get(session, ()):
        if both := sought & {entry.id for entry in await store.backend.tree(fork)}:
            forks.append(fork)
            shared |= both
    return EntryForks(tuple(forks), frozenset(shared))
