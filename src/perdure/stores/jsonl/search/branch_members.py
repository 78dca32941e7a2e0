"""Which entries of a session are on its branch, told by the few places where it branched.

Nearly every tree entry hangs on the one before it. Only where one does not is written down, so a
search can tell what is on a branch without reading a session's file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from perdure.stores.jsonl.rows import Row

ROOT = -1
"""In place of a parent that is none."""


class BranchMap(msgspec.Struct, array_like=True, frozen=True):
    """The tree entries that do not hang on the one before them, and what each hangs on.

    Shape: seqs, ascending. `tip` is the last tree entry.
    """

    tip: int = ROOT
    seqs: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()

    def grown(self, rows: Sequence[Row], first: int, end: int) -> BranchMap:
        """With the entries from `first` to before `end`."""
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
        """The branch to `leaf`."""
        runs: list[tuple[int, int]] = []
        last = ROOT if leaf is None else leaf
        while last != ROOT:
            place = bisect_right(self.seqs, last) - 1
            runs.append((self.seqs[place], last))
            last = self.parents[place]
        return Branch(runs[::-1])


class Branch:
    """A branch: of each of its `runs` the tree entries from the first to the last."""

    def __init__(self, runs: list[tuple[int, int]]) -> None:
        self._runs = runs
        self._firsts = [first for first, _ in runs]

    def has(self, seq: int) -> bool:
        """The tree entry `seq` is on it."""
        place = bisect_right(self._firsts, seq) - 1
        return place >= 0 and seq <= self._runs[place][1]
