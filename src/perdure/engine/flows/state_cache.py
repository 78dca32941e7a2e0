"""Cache of folded flow states: reading a flow again folds only the newer entries.

Each open store of a process has one cache. States are immutable values. A cached state is used only
if its last entry still exists and the set of trusted entries has not changed; otherwise the whole
log is folded.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import msgspec

from perdure.session.entries import Entry
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.stores.marks import TrustState
from perdure.stores.session_store import SessionStore

MOST_ENTRIES = 200_000
"""Maximum total entries of the logs whose states are cached: a state grows with its log."""


class CachedState(msgspec.Struct, frozen=True):
    """The state of a flow after its entry `last`; only entries in `trusted` grant permissions."""

    state: FlowState
    last: Entry
    trusted: TrustState


class StateCache:
    """The cached states of one store's flows."""

    def __init__(self) -> None:
        self._kept: dict[StreamId, CachedState] = {}
        self._completed: dict[StreamId, None] = {}
        self._entries = 0

    def take(self, flow: StreamId) -> CachedState | None:
        """Remove the cached state of `flow` and return it."""
        kept = self._kept.pop(flow, None)
        self._completed.pop(flow, None)
        if kept is not None:
            self._entries -= _size(kept)
        return kept

    def keep(self, kept: CachedState) -> None:
        """Cache the state if there is room; completed flows are removed first."""
        flow, is_completed = kept.last.stream, _is_completed(kept)
        self.take(flow)
        while not is_completed and self._completed and not self._has_room(kept):
            self.take(next(iter(self._completed)))
        if self._has_room(kept):
            self._kept[flow] = kept
            self._entries += _size(kept)
            if is_completed:
                self._completed[flow] = None

    def _has_room(self, kept: CachedState) -> bool:
        return self._entries + _size(kept) <= MOST_ENTRIES


def state_cache_of(store: SessionStore) -> StateCache:
    """Return this process's cache for the flows of `store`."""
    return _KEPT.setdefault(store, StateCache())


_KEPT: WeakKeyDictionary[SessionStore, StateCache] = WeakKeyDictionary()


def _is_completed(kept: CachedState) -> bool:
    return kept.state.run.status == "completed"


def _size(kept: CachedState) -> int:
    return kept.last.seq + 1
