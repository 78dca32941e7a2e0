"""Runs the calls of an adapter on the event loop of its store."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar

import perdure
from perdure.errors import WrongArgument

T = TypeVar("T")


class StoreLoop:
    """A store whose calls can be awaited from the event loop of a program.

    A `perdure.Store` belongs to the loop that opened it; a `perdure.blocking.Store` serves every
    loop and thread. Raises: WrongArgument if the store is of any other type.
    """

    def __init__(self, store: perdure.Store | perdure.blocking.Store) -> None:
        _require_store(store)
        self._portal = None if isinstance(store, perdure.Store) else store.portal
        self.store = store if isinstance(store, perdure.Store) else store.asynchronous

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop of the store and return its result."""
        if self._portal is None:
            return await work
        try:
            return await asyncio.to_thread(self._portal.call, work)
        except asyncio.CancelledError:
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()  # no thread took it
            raise

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end even if the caller is cancelled; then raise the cancellation."""
        task = asyncio.ensure_future(self.call(work))
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = cancelled or error
        if cancelled is not None:
            if not task.cancelled():
                task.exception()  # nobody awaits it, and asyncio would report it as lost
            raise cancelled
        return task.result()

    def wait(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Run `work` and return its result. The caller has no event loop.

        `what` names the caller's object in the error.
        Raises: TypeError if the store is a `perdure.Store`, because it works only on its event
        loop.
        """
        if self._portal is None:
            work.close()
            raise TypeError(
                f"this {what} has a store of an event loop: use the async calls of the graph, "
                f"or a {what} with perdure.blocking.open(...)"
            )
        return self._portal.call(work)


def _require_store(store: object) -> None:
    if not isinstance(store, perdure.Store | perdure.blocking.Store):
        raise WrongArgument(
            f"store is {type(store).__name__}, not a store: give what perdure.open(...) or "
            "perdure.blocking.open(...) opened",
            argument="store",
        )
