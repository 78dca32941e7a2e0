"""Commit entries of a turn atomically, together with entries of other streams.

A turn can be part of a larger unit, such as a node of a flow. The same commits begin and end the
turn and the unit, so no crash can separate the turn from the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from perdure.session.entries import Entry, NewEntry
from perdure.stores.protocol import Write


class CoCommit(msgspec.Struct, frozen=True):
    """Writes to other streams, the blobs of these writes, and `notes` for the turn's own stream.

    Shape: `notes` are side entries that follow the turn's own entries in the same commit, and can
    refer to those entries. `writes` never target the turn's own stream.
    """

    writes: tuple[Write, ...] = ()
    blobs: tuple[bytes, ...] = ()
    notes: tuple[NewEntry, ...] = ()


class CommitParticipant(Protocol):
    """Takes part in the commits of one turn."""

    async def beside(self, entries: Sequence[NewEntry]) -> CoCommit:
        """Return the writes that are committed together with the turn's next `entries`.

        The runner calls `beside` before every commit of the turn. If a commit is rejected because
        the turn's stream or another stream has changed, the runner calls `beside` again. If
        `beside` raises an error, the run of the turn ends before anything is appended.
        """
        ...

    def committed(self, entries: Sequence[Sequence[Entry]]) -> None:
        """Receive the entries appended to the other streams, in the order of the writes."""
        ...
