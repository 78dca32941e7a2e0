"""Where flows stood when somebody last looked, so that the next look reads only what is new.

One for each store that a process has open. A state is a value: whoever begins with it changes it
for nobody else. It counts only while its last entry is still there, and what was trusted then is
what is trusted now; else the log is folded from its beginning.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import msgspec

from perdure.session.entries import Entry
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.stores.marks import Trusted
from perdure.stores.protocol import SessionStore

MOST_ENTRIES = 200_000
"""Entries of the logs whose states are kept together: what a state takes grows with its log."""


class Kept(msgspec.Struct, frozen=True):
    """Where a flow stood after its entry `last`, as far as `trusted` gave authority."""

    state: FlowState
    last: Entry
    trusted: Trusted


class KeptStates:
    """The states of one store's flows."""

    def __init__(self) -> None:
        self._kept: dict[StreamId, Kept] = {}
        self._entries = 0

    def take(self, flow: StreamId) -> Kept | None:
        """Where `flow` stood; from now on nothing is kept of it."""
        kept = self._kept.pop(flow, None)
        if kept is not None:
            self._entries -= _size(kept)
        return kept

    def keep(self, kept: Kept) -> None:
        """Keep it, where it fits; what is completed makes room for what is not."""
        self.take(kept.last.stream)
        if not _is_completed(kept):
            for flow in [flow for flow, each in self._kept.items() if _is_completed(each)]:
                if self._entries + _size(kept) > MOST_ENTRIES:
                    self.take(flow)
        if self._entries + _size(kept) <= MOST_ENTRIES:
            self._kept[kept.last.stream] = kept
            self._entries += _size(kept)


def kept_in(store: SessionStore) -> KeptStates:
    """What this process keeps of the flows of `store`."""
    found = _KEPT.get(store)
    if found is None:
        found = _KEPT[store] = KeptStates()
    return found


_KEPT: WeakKeyDictionary[SessionStore, KeptStates] = WeakKeyDictionary()


def _is_completed(kept: Kept) -> bool:
    return kept.state.run.status == "completed"


def _size(kept: Kept) -> int:
    return kept.last.seq + 1
