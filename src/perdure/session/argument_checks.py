"""Check arguments and fields against their annotations before a call has any effect.

`takes_declared` checks the arguments of a function. `takes_all_declared` checks the arguments of
all public methods of a class. `check_fields` checks the fields of a value. `NamedParameters` checks
the keywords of a constructor. A value that does not match, or an unknown keyword, raises
`WrongArgument`. An annotation without a checkable type (``Any``, a type variable, an unknown name)
accepts every value. One-shot iterators are not consumed.
"""

from __future__ import annotations

import inspect
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sized
from functools import cache, wraps
from itertools import repeat
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ForwardRef,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from perdure.errors.arguments import is_utf8, unknown_parameter, wrong
from perdure.errors.usage import WrongArgument

Fits = Callable[[Any], bool]
Misfit = Callable[[str, Any], "tuple[str, Kind, object] | None"]


class Kind(msgspec.Struct, frozen=True):
    """The values that an annotation accepts; `words` describe them in error messages.

    If `fits` is None, every value is accepted. `misfit` searches a value for the part that does not
    match, and returns the part's name, the `Kind` that the part should have, and the part itself.
    """

    words: str
    fits: Fits | None = None
    misfit: Misfit | None = None


ANYTHING = Kind("anything")

_MADE_BY: dict[str, str] = {
    "Agent": "perdure.Agent('helper', model='provider:name')",
    "Chat": "Runtime.start gives one",
    "InFlightMessage": "perdure.user('...', perdure.media(content))",
    "Message": "perdure.user('...')",
    "Runtime": "perdure.Runtime(store)",
    "Session": "Store.create gives one",
    "Store": "perdure.open gives one",
}
"""Class name -> a hint on how to get an instance, for error messages."""

_TEXTS = (str, bytes, bytearray)

_MOST = 2**63
"""Upper bound of stored integers: not every JSON reader accepts larger integers."""

_UNIONS = (types.UnionType, get_origin(Literal[1] | None))
"""The two types that a union annotation, such as ``X | Y``, can have at runtime."""


@cache
def kind_of(annotation: Any) -> Kind:
    """Return the `Kind` that checks values against `annotation`."""
    if annotation is None or annotation is type(None):
        return Kind("None", lambda value: value is None)
    if annotation is Any or annotation is object:
        return ANYTHING
    if isinstance(annotation, TypeVar | ParamSpec | ForwardRef | str):
        return ANYTHING
    supertype = getattr(annotation, "__supertype__", None)
    if supertype is not None:  # a NewType
        return kind_of(supertype)
    origin = get_origin(annotation)
    if origin is None:
        return _of_class(annotation)
    return _of_origin(origin, get_args(annotation))


def _of_origin(origin: Any, args: tuple[Any, ...]) -> Kind:
    if origin is Annotated:
        return _with_bounds(kind_of(args[0]), args[1:])
    if origin is Literal:
        return Kind(" or ".join(map(repr, args)), lambda value: _is_one_of(value, args))
    if origin in _UNIONS:
        return _either([kind_of(arg) for arg in args])
    if origin is tuple:
        return _tuple(args)
    return _of_generic(origin, args) if isinstance(origin, type) else ANYTHING


def _of_generic(origin: type[Any], args: tuple[Any, ...]) -> Kind:
    if origin is type:
        return Kind("a class", lambda value: isinstance(value, type))
    if origin is cast("Any", Callable):
        return Kind("a function", callable)
    if issubclass(origin, Mapping):
        return _mapping(*map(kind_of, args))
    if issubclass(origin, Iterable) and len(args) == 1:
        return _items(origin, kind_of(args[0]))
    return _of_class(origin)


def _of_class(known: Any) -> Kind:
    if not isinstance(known, type):
        return ANYTHING
    if is_typeddict(known):
        return Kind("a dict of options", lambda value: isinstance(value, dict))
    if known is msgspec.UnsetType:
        return Kind("msgspec.UNSET", lambda value: value is msgspec.UNSET)
    if known is int:
        return Kind("int", _is_whole)
    if known is float:
        return Kind("a number", _is_number)
    if getattr(known, "_is_protocol", False):
        return _protocol(known)
    made = _MADE_BY.get(known.__name__)
    words = known.__name__ if made is None else f"{known.__name__} ({made})"
    return Kind(words, lambda value: isinstance(value, known))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    """Return True if `value` is a number that JSON supports: no NaN, no infinity."""
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def is_kept(value: object) -> bool:
    """Return False if `value` is a number that would change when stored and read back."""
    return not isinstance(value, int) or -_MOST <= value < _MOST


def _with_bounds(kind: Kind, notes: tuple[object, ...]) -> Kind:
    """Return `kind`, limited to the bounds that the msgspec metadata in `notes` declares."""
    for note in notes:
        if isinstance(note, msgspec.Meta) and kind.fits is not None:
            told = _bounds_text(note)
            kind = Kind(f"{kind.words} {told}", _both(kind.fits, note)) if told else kind
    return kind


def _both(fits: Fits, bounds: msgspec.Meta) -> Fits:
    return lambda value: fits(value) and _is_within(value, bounds)


def _bounds_text(bounds: msgspec.Meta) -> str:
    parts = [
        f"{word} {bound:,}".removesuffix(".0")
        for word, bound in (
            ("above", bounds.gt),
            ("from", bounds.ge),
            ("below", bounds.lt),
            ("up to", bounds.le),
        )
        if bound is not None
    ]
    if bounds.min_length:
        parts.append("that is not empty")
    if bounds.pattern is not None:
        parts.append(f"that fits {bounds.pattern}")
    return " ".join(parts)


def _is_within(value: Any, bounds: msgspec.Meta) -> bool:
    return not (
        (bounds.gt is not None and value <= bounds.gt)
        or (bounds.ge is not None and value < bounds.ge)
        or (bounds.lt is not None and value >= bounds.lt)
        or (bounds.le is not None and value > bounds.le)
        or (bounds.min_length is not None and len(value) < bounds.min_length)
        or (bounds.pattern is not None and re.search(bounds.pattern, value) is None)
    )


def _protocol(known: type) -> Kind:
    """Return a `Kind` that accepts every value with all public methods of the protocol `known`."""
    classes = [each for each in known.__mro__ if getattr(each, "_is_protocol", False)]
    names = {name for each in classes for name in vars(each)}
    wanted = [n for n in names if not n.startswith("_") or n == "__call__"]
    words = "Store.backend" if known.__name__ == "SessionStore" else known.__name__
    return Kind(words, lambda value: all(hasattr(value, name) for name in wanted))


def _is_one_of(value: object, allowed: tuple[object, ...]) -> bool:
    return any(value == each and type(value) is type(each) for each in allowed)


def _either(kinds: list[Kind]) -> Kind:
    if any(kind.fits is None for kind in kinds):
        return ANYTHING
    questions = [kind.fits for kind in kinds if kind.fits is not None]
    words = [kind.words for kind in kinds if kind.words != "None"]
    has_none = len(words) < len(kinds)
    told = " or ".join(dict.fromkeys([*words, *(["None"] if has_none else [])]))

    def misfit(name: str, value: Any) -> tuple[str, Kind, object] | None:
        found = (kind.misfit(name, value) for kind in kinds if kind.misfit is not None)
        return next((each for each in found if each is not None), None)

    has_parts = any(kind.misfit is not None for kind in kinds)
    found_by = misfit if has_parts else None
    return Kind(told, lambda value: any(fits(value) for fits in questions), found_by)


def _tuple(args: tuple[Any, ...]) -> Kind:
    if len(args) == 2 and args[1] is Ellipsis:
        return _items(list | tuple, kind_of(args[0]))
    kinds = [kind_of(arg) for arg in args]
    told = ", ".join(kind.words for kind in kinds)

    def fits(value: Any) -> bool:
        if not isinstance(value, tuple):
            return False
        found = cast("tuple[object, ...]", value)
        return len(found) == len(kinds) and all(map(_fit, kinds, found))

    def misfit(name: str, value: Any) -> tuple[str, Kind, object] | None:
        if not isinstance(value, tuple) or len(cast("tuple[object, ...]", value)) != len(kinds):
            return None
        return _first_misfit(name, kinds, cast("tuple[object, ...]", value))

    return Kind(f"a tuple of {told}", fits, misfit)


def _items(holder: Any, kind: Kind) -> Kind:
    """Return a `Kind` for a `holder`, such as a list, whose items all match `kind`.

    Text is rejected, although it is a sequence.
    """

    def fits(value: Any) -> bool:
        if not isinstance(value, holder) or isinstance(value, _TEXTS):
            return False
        if kind.fits is None or not isinstance(value, Sized):
            return True
        return all(map(kind.fits, cast("Iterable[object]", value)))

    def misfit(name: str, value: Any) -> tuple[str, Kind, object] | None:
        if kind.misfit is None or not isinstance(value, list | tuple):
            return None
        return _first_misfit(name, repeat(kind), cast("list[object]", value))

    return Kind("a list" if kind.fits is None else f"a list of {kind.words}", fits, misfit)


def _mapping(keys: Kind = ANYTHING, values: Kind = ANYTHING) -> Kind:
    def fits(value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        items = cast("Mapping[object, object]", value).items()
        return all(_fit(keys, key) and _fit(values, each) for key, each in items)

    def misfit(name: str, value: Any) -> tuple[str, Kind, object] | None:
        items = cast("Mapping[object, object]", value).items() if isinstance(value, Mapping) else ()
        for key, each in items:
            if not _fit(keys, key):
                return f"a key of {name}", keys, key
            if not _fit(values, each):
                return f"{name}[{key!r:.40}]", values, each
        return None

    words = [kind.words for kind in (keys, values) if kind.fits is not None]
    return Kind(f"a dict of {' and '.join(words)}" if words else "a dict", fits, misfit)


def _first_misfit(
    name: str, kinds: Iterable[Kind], items: Iterable[object]
) -> tuple[str, Kind, object] | None:
    for number, (kind, item) in enumerate(zip(kinds, items, strict=False)):
        if not _fit(kind, item):
            return f"{name}[{number}]", kind, item
    return None


def _fit(kind: Kind, value: object) -> bool:
    return kind.fits is None or kind.fits(value)


def _wrong(owner: str, name: str, kind: Kind, given: object) -> WrongArgument:
    """Return the error for the innermost wrong part of `given`, which `kind` does not accept."""
    while kind.misfit is not None and (found := kind.misfit(name, given)) is not None:
        name, kind, given = found
    return wrong(owner, name, kind.words, given)


F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


def takes_declared(function: F, *, leaving: tuple[str, ...] = ()) -> F:
    """Return a wrapper of `function` that checks all arguments against the annotations.

    `leaving` names parameters that the wrapper skips, because `function` checks them itself.
    Raises: WrongArgument, before the function runs; a coroutine function raises the error when it
    is awaited.
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
    """Apply `takes_declared` to the constructor and all public methods of the class `known`."""
    return takes_all_declared_but()(known)


def takes_all_declared_but(*leaving: str) -> Callable[[C], C]:
    """Return a decorator that checks all parameters of a class's methods, except `leaving`.

    `takes_declared` checks the parameters of the constructor and of all public methods. The methods
    check the parameters `leaving` themselves.
    """

    def guarded(known: C) -> C:
        for name, value in list(vars(known).items()):
            is_public = not name.startswith("_") or name == "__init__"
            if is_public and inspect.isfunction(value) and _has_parameters(value):
                setattr(known, name, takes_declared(value, leaving=leaving))
        return known

    return guarded


def check_fields(value: msgspec.Struct, *, has_any_text: bool = False) -> None:
    """Reject a value whose fields do not match their declared types.

    If `has_any_text` is True, text that cannot be encoded is accepted, because the caller repairs
    it later. A list is converted to a tuple if the field is declared as a tuple. A class calls this
    function in its ``__post_init__``.
    Raises: WrongArgument.
    """
    owner = type(value).__name__
    for name, kind, is_tuple in _fields_of(type(value)):
        given = getattr(value, name)
        if kind.fits is not None and not (kind.fits(given) and is_kept(given)):
            raise _wrong(owner, name, kind, given)
        if isinstance(given, str) and not (has_any_text or is_utf8(given)):
            raise _wrong(owner, name, kind, given)
        if is_tuple and isinstance(given, list):
            made: tuple[object, ...] = tuple(cast("list[object]", given))
            msgspec.structs.force_setattr(value, name, made)


class NamedParameters(type(msgspec.Struct)):
    """A metaclass of structs; its error for an unknown keyword suggests the most similar field.

    Raises: WrongArgument.
    """

    if not TYPE_CHECKING:  # type checkers use the signature of the fields

        def __call__(cls, *args: object, **kwargs: object) -> object:
            names = cls.__struct_fields__
            for name in kwargs:
                if name not in names:
                    raise unknown_parameter(cls.__name__, name, names)
            return super().__call__(*args, **kwargs)


def check_whole(value: msgspec.Struct, place: str) -> None:
    """Reject a value if a field at any depth has a type other than the declared one.

    Use this check for values that are stored permanently without further changes. `place` is the
    name of the value in error messages.
    Raises: WrongArgument.
    """
    for name, kind, _ in _fields_of(type(value)):
        given = getattr(value, name)
        if kind.fits is not None and not (kind.fits(given) and is_kept(given)):
            raise _wrong(place, name, kind, given)
        below = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
        for each in below:
            if isinstance(each, msgspec.Struct):
                check_whole(each, type(each).__name__)


class _Guard:
    """Checks the arguments of one function. The annotations are resolved at the first call."""

    __slots__ = ("_by_name", "_function", "_has_more", "_is_method", "_leaving", "_places", "_rest")

    def __init__(self, function: Callable[..., Any], leaving: tuple[str, ...]) -> None:
        self._function = function
        self._leaving = leaving
        self._is_method = self._has_more = False
        self._by_name: Mapping[str, Kind] | None = None
        self._places: tuple[tuple[str, Kind | None], ...] = ()
        self._rest: tuple[str, Kind] | None = None

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise WrongArgument if an argument does not match or has an unknown name."""
        by_name = self._learnt() if self._by_name is None else self._by_name
        for (name, kind), value in zip(self._places, args, strict=False):
            if kind is not None and not cast("Any", kind.fits)(value):
                raise _wrong(self._name(args), name, kind, value)
        for name, value in kwargs.items():
            kind = by_name.get(name)
            if kind is None and not self._has_more:
                raise unknown_parameter(self._name(args), name, by_name)
            if kind is not None and not _fit(kind, value):
                raise _wrong(self._name(args), name, kind, value)
        if self._rest is not None:
            name, kind = self._rest
            for value in args[len(self._places) :]:
                if not cast("Any", kind.fits)(value):
                    raise _wrong(self._name(args), name, kind, value)

    def _name(self, args: tuple[Any, ...]) -> str:
        """Return the function's name for error messages; a method includes its public class."""
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
            name = parameter.name
            kind = ANYTHING if name in self._leaving else kind_of(hints.get(name, Any))
            checked = None if kind.fits is None else kind
            self._is_method = self._is_method or name == "self"
            self._has_more = self._has_more or parameter.kind is parameter.VAR_KEYWORD
            if parameter.kind is parameter.VAR_POSITIONAL:
                self._rest = None if checked is None else (name, checked)
            elif parameter.kind is not parameter.VAR_KEYWORD:
                if parameter.kind is not parameter.POSITIONAL_ONLY and name != "self":
                    by_name[name] = kind
                if parameter.kind is not parameter.KEYWORD_ONLY:
                    places.append((name, checked))
        self._places, self._by_name = tuple(places), by_name
        return by_name


def _hints_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError:  # a name defined only for type checkers
        return {}


def _has_parameters(function: Callable[..., Any]) -> bool:
    code: Any = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return False
    has_more = bool(code.co_flags & inspect.CO_VARARGS)
    return code.co_argcount + code.co_kwonlyargcount > 1 or has_more


@cache
def _fields_of(known: type[msgspec.Struct]) -> tuple[tuple[str, Kind, bool], ...]:
    fields = [(field, kind_of(field.type)) for field in msgspec.structs.fields(known)]
    return tuple(
        (field.name, kind, "tuple[" in str(field.type))
        for field, kind in fields
        if kind.fits is not None
    )
