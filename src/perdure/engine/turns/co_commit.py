"""What is committed together with a turn: the seam between a turn and whoever has it run.

A turn that belongs to something greater begins and ends in one commit with it, so that no crash can
come between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from perdure.session.entries import Entry, NewEntry
from perdure.stores.protocol import Write


class CoCommit(msgspec.Struct, frozen=True):
    """Writes to other streams, contents they name, and `notes` in the turn's own stream.

    Shape: `notes` are side entries that come after the turn's own of that commit, and may be about
    one of them. `writes` are none to the turn's own stream.
    """

    writes: tuple[Write, ...] = ()
    blobs: tuple[bytes, ...] = ()
    notes: tuple[NewEntry, ...] = ()


class CommitParticipant(Protocol):
    """Goes along with one turn."""

    async def beside(self, entries: Sequence[NewEntry]) -> CoCommit:
        """What is to be committed together with `entries`, the turn's next ones.

        Asked before every commit of the turn, and again when a commit was refused because a
        stream, the turn's or another, had moved. What it raises ends the running of the turn;
        nothing was appended then.
        """
        ...

    def committed(self, entries: Sequence[Sequence[Entry]]) -> None:
        """What it gave beside was appended: its writes' entries, in their order."""
        ...
