"""A handle without async, which wraps a handle with async.

Each public method of the async handle becomes a method that runs in the portal's loop. A coroutine
runs to its end; an iterator runs step by step. If a method returns an async handle, the program
gets a handle without async that wraps it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

from perdure.client.sync.portal import Portal
from perdure.errors.arguments import wrong
from perdure.session.argument_checks import is_kept, kind_of

H = TypeVar("H")

HIDDEN = frozenset({"backend", "outside", "bus", "aclose"})
"""Attributes and methods of async handles that handles without async lack."""

_HANDLES: dict[type, type[Handle[Any]]] = {}
"""Async class -> the class that wraps it without async."""


class Handle(Generic[H]):
    """A handle without async; `portal` runs each call on the async handle `asynchronous`."""

    portal: Portal
    asynchronous: H

    def __init_subclass__(cls, *, of: type | None = None, made_from: str | None = None) -> None:
        """Wrap the async class `of`.

        If programs can construct the handle, `made_from` is the name of the argument that must be
        another handle, for example ``store``.
        """
        if of is not None:
            _HANDLES[of] = cls
            _copy_members(of, cls)
        if of is not None and made_from is not None:
            _set(cls, "__init__", _constructor(of, made_from))

    @classmethod
    def behind(cls, portal: Portal, asynchronous: H) -> Self:
        """Return a handle for `asynchronous`, which belongs to the loop of `portal`."""
        handle = cls.__new__(cls)
        handle.portal = portal
        handle.asynchronous = asynchronous
        return handle

    def __repr__(self) -> str:
        return f"<blocking {repr(self.asynchronous).removeprefix('<')}"


def _copy_members(original: type, to: type[Handle[Any]]) -> None:
    """Copy the public members of the async class `original` to the class `to`, without async."""
    for name, value in inspect.getmembers_static(original):
        if name in HIDDEN or name in vars(to):
            continue
        if name in _SPECIAL:
            _set(to, *_SPECIAL[name])
        elif not name.startswith("_") and isinstance(value, property):
            _set(to, name, _property(name, value))
        elif not name.startswith("_") and inspect.isfunction(value):
            _set(to, name, _method(value))


def _set(to: type, name: str, member: object) -> None:
    setattr(to, name, member)


def _constructor(original: type[Any], made_from: str) -> Callable[..., None]:
    @wraps(original.__init__)
    def make(self: Handle[Any], *args: Any, **named: Any) -> None:
        handle, *others = args or (named.pop(made_from, None),)
        if not isinstance(handle, Handle):
            known = "a handle of perdure.blocking (its open gives a Store)"
            raise wrong(original.__name__, made_from, known, handle)
        first = cast("Handle[Any]", handle)
        self.portal = first.portal
        self.asynchronous = first.portal.run(lambda: original(first.asynchronous, *others, **named))

    return make


def _property(name: str, original: property) -> property:
    def value(self: Handle[Any]) -> Any:
        return _returned(self.portal, getattr(self.asynchronous, name))

    return property(value, doc=original.__doc__)


def _method(original: Callable[..., Any]) -> Callable[..., Any]:
    is_coroutine = inspect.iscoroutinefunction(inspect.unwrap(original))
    is_iterator = str(original.__annotations__["return"]).startswith("AsyncIterator[")

    @wraps(original)
    def method(self: Handle[Any], *args: Any, **named: Any) -> Any:
        known, portal = self.asynchronous, self.portal
        args = tuple(_with_async(each) for each in args)
        named = {key: _with_async(each) for key, each in named.items()}
        if is_iterator:
            return portal.iterate(original(known, *args, **named))
        if is_coroutine:
            return _returned(portal, portal.call(original(known, *args, **named)))
        return _returned(portal, portal.run(lambda: original(known, *args, **named)))

    return method


def _returned(portal: Portal, value: Any) -> Any:
    """Return `value` with each async handle replaced by a handle without async."""
    if isinstance(value, list):
        values = cast("list[Any]", value)
        if values and _is_known(values[0]):
            return [_returned(portal, each) for each in values]
        return values
    return _HANDLES[type(value)].behind(portal, value) if _is_known(value) else value


def _is_known(value: object) -> bool:
    return type(value) in _HANDLES


def _with_async(argument: Any) -> Any:
    """Return `argument` with each handle replaced by its async handle, also in lists of tuples."""
    if not isinstance(argument, list | tuple):
        return argument
    rows = cast("list[Any]", argument)
    if not any(isinstance(row, tuple) for row in rows):
        return rows
    return [
        tuple(
            cast("Handle[Any]", part).asynchronous if isinstance(part, Handle) else part
            for part in cast("tuple[Any, ...]", row)
        )
        if isinstance(row, tuple)
        else row
        for row in rows
    ]


def _enter(self: Handle[Any]) -> Handle[Any]:
    self.portal.call(self.asynchronous.__aenter__())
    return self


def _exit(
    self: Handle[Any],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    self.portal.call(self.asynchronous.__aexit__(kind, error, trace))


def _iter(self: Handle[Any]) -> Iterator[Any]:
    return self.portal.iterate(self.asynchronous)


def _result(self: Handle[Any], timeout_s: float | None = None) -> Any:
    """Wait until the turn has ended, and return its reply.

    Raises: WrongArgument; TimeoutError after `timeout_s` seconds. After a timeout, the turn
    continues; call `abort` to end it.
    """
    kind = kind_of(float | None)
    if kind.fits is not None and not (kind.fits(timeout_s) and is_kept(timeout_s)):
        raise wrong("Turn.result", "timeout_s", kind.words, timeout_s)

    async def awaited() -> Any:
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await self.asynchronous
        except TimeoutError:
            if not limit.expired():
                raise
            told = (
                f"the turn has not ended within {timeout_s:g} s; it continues: call result() again"
            )
            raise TimeoutError(told) from None

    return self.portal.call(awaited())


def _attribute(self: Handle[Any], name: str) -> Any:
    """Return an attribute that the constructor of the async class sets."""
    if name.startswith("_") or name in HIDDEN or name in Handle.__annotations__:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
    return _returned(self.portal, getattr(self.asynchronous, name))


_SPECIAL = {
    "__aenter__": ("__enter__", _enter),
    "__aexit__": ("__exit__", _exit),
    "__aiter__": ("__iter__", _iter),
    "__await__": ("result", _result),
    "__init__": ("__getattr__", _attribute),
}
"""Special method of an async class -> the name and the function of the method that replaces it."""

for _name, _replacement in _SPECIAL.values():
    _replacement.__name__ = _replacement.__qualname__ = _name  # errors about arguments show it
