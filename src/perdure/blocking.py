"""`perdure.blocking`: the same calls without async, for scripts, notebooks and threads.

    with perdure.blocking.open("sqlite:///agents.db") as store:
        session = store.create(title="Trip")

A store runs an event loop on its own thread; all handles of the store use that loop, and any number
of threads may use the handles. ``await turn`` is ``turn.result()`` here. Flows are those of
``Flows(runtime)``.
"""

from __future__ import annotations

import importlib
from types import TracebackType
from typing import TYPE_CHECKING

from perdure.client.clock import Outside, SystemClock, system_random
from perdure.client.open import Durability, LockTimeout, connect_store
from perdure.client.sync import handles
from perdure.client.sync.handles import Chat, Memory, Runtime, Session, Turn, Watch
from perdure.client.sync.portal import Portal
from perdure.session.argument_checks import takes_declared
from perdure.session.clock import Clock, RandomSource
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.key import StoreKey

if TYPE_CHECKING:
    from perdure.client.sync.flow_handles import Flow, Flows, RoleFeed

__all__ = [
    "Chat",
    "Flow",
    "Flows",
    "Memory",
    "RoleFeed",
    "Runtime",
    "Session",
    "Store",
    "Turn",
    "Watch",
    "open",
]

_OF_FLOWS = frozenset({"Flow", "Flows", "RoleFeed"})
"""Imported at first use: a program without flows does not load their modules."""


def __getattr__(name: str) -> object:
    if name not in _OF_FLOWS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("perdure.client.sync.flow_handles"), name)


class Store(handles.Store):
    """One namespace of a store. Created by `open`; its loop ends with it."""

    def close(self) -> None:
        """Finish running work, close the store, and stop its loop. May be called twice."""
        self.portal.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@takes_declared
def open(
    address: str | None = None,
    *,
    namespace: str = "default",
    durability: Durability = "full",
    key: bytes | str | StoreKey | None = None,
    clock: Clock | None = None,
    random: RandomSource | None = None,
    is_trusted: bool = True,
    lock_timeout_s: LockTimeout = LOCK_TIMEOUT_S,
) -> Store:
    """Open the store at `address` until its ``with`` block ends or `close`; see `perdure.open`.

    Raises: as `perdure.open`.
    """
    outside = Outside(clock or SystemClock(), random or system_random)
    portal = Portal()
    try:
        work = connect_store(
            address,
            namespace,
            durability,
            outside,
            key,
            is_trusted=is_trusted,
            lock_timeout_s=lock_timeout_s,
        )
        store = Store.behind(portal, portal.call(work))
        portal.closes(store.asynchronous.close)
        return store
    except BaseException:
        portal.close()
        raise
