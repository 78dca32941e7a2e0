"""`perdure.blocking`: the same calls without async, for scripts, notebooks and threaded programs.

    with perdure.blocking.open("sqlite:///agents.db") as store:
        session = store.create(title="Trip")

A store has an event loop on a thread of its own; every handle that comes from it uses that loop,
and any number of threads may use the handles. ``await turn`` is ``turn.result()`` here. Flows are
those of ``Flows(runtime)``.
"""

from __future__ import annotations

import importlib
from types import TracebackType
from typing import TYPE_CHECKING

from perdure.client.clock import Outside, SystemClock, system_random
from perdure.client.open import Durability, LockTimeout, connect_store
from perdure.client.store import Store as AsyncStore
from perdure.client.sync import handles
from perdure.client.sync.handles import Chat, Runtime, Session, Turn, Watch
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
    "RoleFeed",
    "Runtime",
    "Session",
    "Store",
    "Turn",
    "Watch",
    "open",
]

_OF_FLOWS = frozenset({"Flow", "Flows", "RoleFeed"})
"""Loaded when they are first used: a program without flows does not load what they need."""


def __getattr__(name: str) -> object:
    if name not in _OF_FLOWS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("perdure.client.sync.flow_handles"), name)


class Store(handles.Store):
    """One namespace of a store. Made by `open`; its loop ends with it."""

    def __init__(self, portal: Portal, asynchronous: AsyncStore) -> None:
        super().__init__(portal, asynchronous)
        portal.closes(asynchronous.close)

    def close(self) -> None:
        """Finish what is under way, let go of the store, end its loop. May be called twice."""
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
    """The store at `address`, open until its ``with`` ends or it is closed; see `perdure.open`.

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
        return Store(portal, portal.call(work))
    except BaseException:
        portal.close()
        raise
