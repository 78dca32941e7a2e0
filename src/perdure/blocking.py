"""`perdure.blocking`: the calls of `perdure` without async, for scripts, notebooks and threads.

    with perdure.blocking.open("sqlite:///agents.db") as store:
        session = store.create(title="Trip")

Each store runs an event loop on a thread of its own; all handles of the store use that loop, and
any number of threads can use the handles. ``turn.result()`` replaces ``await turn``.
``Flows(runtime)`` provides the flows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from perdure.client.open import StoreOpening
from perdure.client.open import open as open_async
from perdure.client.store import Store as AsyncStore
from perdure.client.sync import handles
from perdure.client.sync.handles import Chat, Memory, Runtime, Schedule, Session, Turn, Watch
from perdure.client.sync.portal import Portal

if TYPE_CHECKING:
    from perdure.client.sync.flow_handles import Flow, Flows, RoleFeed

__all__ = [
    "Chat",
    "Flow",
    "Flows",
    "Memory",
    "RoleFeed",
    "Runtime",
    "Schedule",
    "Session",
    "Store",
    "Turn",
    "Watch",
    "open",
]

_OF_FLOWS = frozenset({"Flow", "Flows", "RoleFeed"})
"""Names that are imported at first use, so that programs without flows do not load flow modules."""


def __getattr__(name: str) -> object:
    if name not in _OF_FLOWS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("perdure.client.sync.flow_handles"), name)


class Store(handles.Store):
    """One namespace of a store.

    `open` creates a `Store`; the event loop of the store stops when the store is closed.
    """

    def close(self) -> None:
        """Finish running work, close the store, and stop its loop.

        Calling `close` twice is allowed.
        """
        self.portal.close()

    def __exit__(self, *_: object) -> None:  # pyrefly: ignore[bad-override] # given by position
        self.close()


P = ParamSpec("P")


def _without_async(opening: Callable[P, StoreOpening]) -> Callable[P, Store]:
    @wraps(opening, assigned=("__qualname__", "__annotations__"))
    def open(*args: P.args, **kwargs: P.kwargs) -> Store:
        """Open a store. The end of the store's ``with`` block, or `Store.close`, closes the store.

        See `perdure.open`.
        """

        async def opened() -> AsyncStore:
            return await opening(*args, **kwargs)

        portal = Portal()
        try:
            store = Store.behind(portal, portal.call(opened()))
        except BaseException:
            portal.close()
            raise
        portal.closes(store.asynchronous.close)
        return store

    return open


open = _without_async(open_async)
