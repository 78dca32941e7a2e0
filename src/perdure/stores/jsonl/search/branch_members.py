"""Find the entries on a session's branch from the few places where the session branched.

The parent of nearly every tree entry is the tree entry before it. Only the tree entries whose
parent is not the preceding tree entry are stored. So a search finds the entries of a branch without
reading the session's file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from perdure.stores.jsonl.rows import Row

ROOT = -1
"""Number used as the parent of an entry that has no parent."""


class BranchMap(msgspec.Struct, array_like=True, frozen=True):
    """Tree entries whose parent is not the preceding tree entry, and the parents of these entries.

    Shape: seqs, ascending. `tip` is the last tree entry.
    """

    tip: int = ROOT
    seqs: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()

    def grown(self, rows: Sequence[Row], first: int, end: int) -> BranchMap:
        """Return this map, extended by the entries from `first` to before `end`."""
        tip, seqs, parents = self.tip, list(self.seqs), list(self.parents)
        for seq in range(first, end):
            row = rows[seq]
            if row.lane != "tree":
                continue
            parent = ROOT if row.parent is None else row.parent
            if parent != tip or tip == ROOT:
                seqs.append(seq)
                parents.append(parent)
            tip = seq
        return BranchMap(tip, tuple(seqs), tuple(parents))

    def branch(self, leaf: int | None) -> Branch:
        """Return the branch to `leaf`."""
        runs: list[tuple[int, int]] = []
        last = ROOT if leaf is None else leaf
        while last != ROOT:
            place = bisect_right(self.seqs, last) - 1
            runs.append((self.seqs[place], last))
            last = self.parents[place]
        return Branch(runs[::-1])


class Branch:
    """A branch; each of its `runs` contains the tree entries from a first to a last seq."""

    def __init__(self, runs: list[tuple[int, int]]) -> None:
        self._runs = runs
        self._firsts = [first for first, _ in runs]

    def has(self, seq: int) -> bool:
        """Return True if the tree entry `seq` is on the branch."""
        place = bisect_right(self._firsts, seq) - 1
        return place >= 0 and seq <= self._runs[place][1]
