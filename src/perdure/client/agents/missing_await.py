"""Raises a clear error if ``await`` or ``async`` is missing in a use of a runtime.

Without ``await``, ``chat.send(...)`` would call the method `send` of the coroutine.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

C = TypeVar("C", bound=type)
T = TypeVar("T")


class Unawaited(Coroutine[Any, Any, T]):
    """The coroutine of a call to `name`; the call must be awaited before its result is used."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], name: str) -> None:
        self._coroutine = coroutine
        self._name = self.__name__ = self.__qualname__ = name

    def __repr__(self) -> str:
        return f"<{self._name}: not awaited>"

    def __await__(self) -> Generator[Any, None, T]:
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        """Continue the coroutine.

        Raises: TypeError if `value` is a message that was meant for a chat.
        """
        if value is not None and inspect.getcoroutinestate(self._coroutine) == "CORO_CREATED":
            raise TypeError(self._advice())
        return self._coroutine.send(value)

    def throw(self, *raised: Any) -> Any:
        """Raise an error in the coroutine."""
        return self._coroutine.throw(*raised)

    def close(self) -> None:
        """End the coroutine."""
        self._coroutine.close()

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # of a protocol, as `copy` asks: also before __init__
                raise AttributeError(name, name=name, obj=self)
            if name.startswith("cr_"):  # the state that `inspect` and debuggers read
                return getattr(self._coroutine, name)
            raise AttributeError(f"no {name!r} yet: {self._advice()}", name=name, obj=self)

    def _advice(self) -> str:
        return f"{self._name} was not awaited; write `chat = await {self._name.lower()}(...)`"


def explains_missing_await(*names: str) -> Callable[[C], C]:
    """Make the coroutine methods `names` of a class return an `Unawaited`."""

    def explained(known: C) -> C:
        for name in names:
            setattr(known, name, _explained(vars(known)[name], f"{known.__name__}.{name}"))
        return known

    return explained


def explains_missing_async(known: C) -> C:
    """Make a ``with`` without ``async`` raise a TypeError that names both correct forms.

    The methods ``__enter__`` and ``__exit__`` are set at run time, because a type checker that saw
    them would allow a plain ``with``.
    """
    name = known.__name__

    def enter(_: object) -> NoReturn:
        use = f"{name}(...) as {name.lower()}"
        raise TypeError(
            f"perdure.{name} needs `async with perdure.{use}`; without async, use "
            f"`with perdure.blocking.{use}`"
        )

    def leave(*_: object) -> None:
        """Python requires this method before it calls `enter`, which raises the error."""

    setattr(known, "__enter__", enter)  # noqa: B010 - pyright knows no such attribute
    setattr(known, "__exit__", leave)  # noqa: B010 - pyright knows no such attribute
    return known


def _explained(
    method: Callable[..., Coroutine[Any, Any, Any]], name: str
) -> Callable[..., Coroutine[Any, Any, Any]]:
    @wraps(method)
    def called(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        return Unawaited(method(*args, **kwargs), name)

    _mark_as_coroutine_function(called)
    return called


def _mark_as_coroutine_function(function: Callable[..., Any]) -> None:
    """Let mocks and frameworks see that `function` has to be awaited.

    On Python 3.11, only `asyncio.iscoroutinefunction` returns True, because
    `inspect.iscoroutinefunction` supports no mark in that version. `unittest.mock` calls
    `asyncio.iscoroutinefunction`.
    """
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(function)
    else:
        vars(function)["_is_coroutine"] = vars(asyncio.coroutines)["_is_coroutine"]
