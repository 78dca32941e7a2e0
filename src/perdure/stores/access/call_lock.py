"""Serialize the calls on in-memory data across threads and event loops."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar

from perdure.stores.access.process import OwnProcess


class Serial(Protocol):
    """An object with a lock that serializes its calls."""

    process: OwnProcess
    lock: threading.RLock


C = TypeVar("C", bound=type[Any])


def one_at_a_time(serial: C) -> C:
    """Decorate the class `serial`: its coroutine methods, also inherited ones, run one at a time.

    In a forked child, all coroutine methods of `serial` except `close` raise an error. The
    coroutine methods of `serial` must not wait for other coroutines.
    """
    for name, method in inspect.getmembers(serial, inspect.iscoroutinefunction):
        if name != "close":
            setattr(serial, name, _alone(method))
    return serial


def _alone(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def alone(self: Serial, *args: Any, **kwargs: Any) -> Any:
        self.process.check()
        with self.lock:
            return await method(self, *args, **kwargs)

    return alone
