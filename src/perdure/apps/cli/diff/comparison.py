"""Two branches of one tree, held against each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.session.entries import Entry


class Difference(msgspec.Struct, frozen=True):
    """What two branches have in common from the root on, and what each has after they part."""

    shared: tuple[Entry, ...]
    first: tuple[Entry, ...]
    second: tuple[Entry, ...]

    @property
    def parting(self) -> Entry | None:
        """The last entry that both have; None when they begin at different roots."""
        return self.shared[-1] if self.shared else None

    @property
    def is_none(self) -> bool:
        """They are the same branch."""
        return not self.first and not self.second


def difference(first: Sequence[Entry], second: Sequence[Entry]) -> Difference:
    """How the branches `first` and `second`, each root -> leaf, differ.

    Entries are the same when their ids are: a branch never has an entry twice, and two entries
    with equal words are still two.
    """
    shared = 0
    for one, other in zip(first, second, strict=False):
        if one.id != other.id:
            break
        shared += 1
    return Difference(tuple(first[:shared]), tuple(first[shared:]), tuple(second[shared:]))
