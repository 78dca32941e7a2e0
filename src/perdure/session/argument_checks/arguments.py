"""Arguments and fields held against their annotations, before anything is done with them.

`takes_declared` is for functions that programs call, `takes_all_declared` for all public methods of
a class; `check_fields` for values whose fields programs set. What does not fit is `WrongArgument`,
which names the argument and says what it takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sized
from functools import cache, wraps
from typing import Any, TypeVar, cast, get_type_hints

import msgspec

from perdure.errors.usage import WrongArgument
from perdure.session.argument_checks.annotations import Kind, is_kept, is_utf8, kind_of

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


def takes_declared(function: F, *, leaving: tuple[str, ...] = ()) -> F:
    """`function`, refusing what its annotations do not name.

    `leaving` are parameters that it looks at itself.
    Raises: WrongArgument, before the function runs: a coroutine's when it is awaited.
    """
    guard = _Guard(function, leaving)
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            guard.check(args, kwargs)
            return await function(*args, **kwargs)

        return cast("F", awaited)

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        guard.check(args, kwargs)
        return function(*args, **kwargs)

    return cast("F", called)


def takes_all_declared(known: C) -> C:
    """The class `known`, its constructor and public methods guarded as `takes_declared` does."""
    return takes_all_declared_but()(known)


def takes_all_declared_but(*leaving: str) -> Callable[[C], C]:
    """As `takes_all_declared`, but for the parameters `leaving`, which the methods look at."""

    def guarded(known: C) -> C:
        _guard_methods(known, leaving)
        return known

    return guarded


def _guard_methods(known: type, leaving: tuple[str, ...]) -> None:
    for name, value in list(vars(known).items()):
        is_public = not name.startswith("_") or name == "__init__"
        if is_public and inspect.isfunction(value) and _has_parameters(value):
            setattr(known, name, takes_declared(value, leaving=leaving))


def check_fields(value: msgspec.Struct, *, has_any_text: bool = False) -> None:
    """Refuse a value whose fields hold something else than they are declared as.

    With `has_any_text` also text that nobody can write down is let in, for who mends it later.
    A list where a tuple is declared is made one. For ``__post_init__``.
    Raises: WrongArgument.
    """
    owner = type(value).__name__
    for name, kind, is_tuple in _fields_of(type(value)):
        given = getattr(value, name)
        if kind.fits is not None and not (kind.fits(given) and is_kept(given)):
            raise wrong(owner, name, kind.words, given)
        if isinstance(given, str) and not (has_any_text or is_utf8(given)):
            raise wrong(owner, name, kind.words, given)
        if is_tuple and isinstance(given, list):
            made: tuple[object, ...] = tuple(cast("list[object]", given))
            msgspec.structs.force_setattr(value, name, made)


def check_whole(value: msgspec.Struct, place: str) -> None:
    """Refuse a value that holds something undeclared in a field, or in a value in one.

    For what is written down for good as it is; `place` is what it is called.
    Raises: WrongArgument.
    """
    for name, kind, _ in _fields_of(type(value)):
        given = getattr(value, name)
        if kind.fits is not None and not (kind.fits(given) and is_kept(given)):
            raise wrong(place, name, kind.words, given)
        below = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
        for each in below:
            if isinstance(each, msgspec.Struct):
                check_whole(each, type(each).__name__)


def wrong(owner: str, name: str, takes: str, given: object) -> WrongArgument:
    """The error for `given` as `name` of `owner`; it does not repeat what was given."""
    kind = "None" if given is None else f"{type(given).__name__}"
    if takes.endswith("not empty") and isinstance(given, Sized) and not given:
        kind = "an empty one"
    elif takes.startswith("a list of") and isinstance(given, list | tuple | set | frozenset | dict):
        kind = f"{kind} of something else"
    elif isinstance(given, str) and not is_utf8(given):
        kind = "text with half of a character pair in it"
    elif isinstance(given, str) and ("'" in takes or "fits" in takes):
        kind = f"{given!r:.40}"
    elif isinstance(given, int | float) and not isinstance(given, bool):
        kind = _number(given) if "number" in takes or "int" in takes else kind
    elif kind in takes:
        kind = f"one of {type(given).__module__}"
    return WrongArgument(f"{owner} takes {takes} as {name}, not {kind}", argument=name, takes=takes)


def _number(given: int | float) -> str:
    """`given` where it is short enough to be told."""
    if isinstance(given, int) and abs(given) >= 10**20:
        return "one of more than 20 digits"
    return f"{given}"


class _Guard:
    """The parameters of one function. They are looked up when it is called for the first time."""

    __slots__ = ("_by_name", "_function", "_is_method", "_leaving", "_places", "_rest")

    def __init__(self, function: Callable[..., Any], leaving: tuple[str, ...]) -> None:
        self._function = function
        self._leaving = leaving
        self._is_method = False
        self._by_name: Mapping[str, Kind] | None = None
        self._places: tuple[tuple[str, Kind | None], ...] = ()
        self._rest: tuple[str, Kind] | None = None

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raises: WrongArgument."""
        by_name = self._by_name
        if by_name is None:
            by_name = self._learnt()
        for (name, kind), value in zip(self._places, args, strict=False):
            if kind is not None and not cast("Any", kind.fits)(value):
                raise wrong(self._name(args), name, kind.words, value)
        for name, value in kwargs.items():
            kind = by_name.get(name)
            if kind is not None and not cast("Any", kind.fits)(value):
                raise wrong(self._name(args), name, kind.words, value)
        if self._rest is not None:
            name, kind = self._rest
            for value in args[len(self._places) :]:
                if not cast("Any", kind.fits)(value):
                    raise wrong(self._name(args), name, kind.words, value)

    def _name(self, args: tuple[Any, ...]) -> str:
        """What it is called by who calls it: a method by the class of the handle."""
        name = self._function.__name__
        if not self._is_method or not args:
            return name
        owner = type(args[0]).__name__
        return owner if name == "__init__" else f"{owner}.{name}"

    def _learnt(self) -> Mapping[str, Kind]:
        hints = _hints_of(self._function)
        by_name: dict[str, Kind] = {}
        places: list[tuple[str, Kind | None]] = []
        for parameter in inspect.signature(self._function).parameters.values():
            kind = kind_of(hints[parameter.name]) if parameter.name in hints else None
            if kind is not None and (kind.fits is None or parameter.name in self._leaving):
                kind = None
            self._is_method = self._is_method or parameter.name == "self"
            if parameter.kind is parameter.VAR_POSITIONAL:
                self._rest = None if kind is None else (parameter.name, kind)
            elif parameter.kind is not parameter.VAR_KEYWORD:
                if kind is not None:
                    by_name[parameter.name] = kind
                if parameter.kind is not parameter.KEYWORD_ONLY:
                    places.append((parameter.name, kind))
        self._places = tuple(places)
        self._by_name = by_name
        return by_name


def _hints_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError:  # a name that only checkers see
        return {}


def _has_parameters(function: Callable[..., Any]) -> bool:
    code: Any = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return False
    has_more = bool(code.co_flags & inspect.CO_VARARGS)
    return code.co_argcount + code.co_kwonlyargcount > 1 or has_more


@cache
def _fields_of(known: type[msgspec.Struct]) -> tuple[tuple[str, Kind, bool], ...]:
    return tuple(_read_fields(known))


def _read_fields(known: type[msgspec.Struct]) -> Iterator[tuple[str, Kind, bool]]:
    for field in msgspec.structs.fields(known):
        kind = kind_of(field.type)
        if kind.fits is not None:
            yield field.name, kind, "tuple[" in str(field.type)
