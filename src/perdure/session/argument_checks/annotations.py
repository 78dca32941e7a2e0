"""Annotations as questions: does this value fit, and what is it called that would.

Every annotation has an answer; one that nothing can be said of (``Any``, a type variable, a name
that cannot be found) lets everything in. An iterator that could be read only once is not read.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sized
from functools import cache
from typing import (
    Annotated,
    Any,
    ForwardRef,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
    is_typeddict,
)

import msgspec

Fits = Callable[[Any], bool]


class Kind(msgspec.Struct, frozen=True):
    """What an annotation lets in; `words` say it to whoever gave something else.

    `fits` None lets everything in.
    """

    words: str
    fits: Fits | None = None


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
"""Class -> how one is had, for those who do not know it yet."""

_TEXTS = (str, bytes, bytearray)

_MOST = 2**63
"""What no whole number reaches that is kept: not all that read JSON read more."""

_UNIONS = (types.UnionType, get_origin(Literal[1] | None))
"""``X | Y``, as classes write it, and as special forms do."""


@cache
def kind_of(annotation: Any) -> Kind:
    """What `annotation` lets in."""
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
    """Whether `value` is a number that JSON has: no NaN, nothing infinite."""
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def is_kept(value: object) -> bool:
    """Whether `value`, if it is a number, is one that is read again as it was written."""
    return not isinstance(value, int) or -_MOST <= value < _MOST


def is_utf8(text: str) -> bool:
    """Whether `text` can be written down at all: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _with_bounds(kind: Kind, notes: tuple[object, ...]) -> Kind:
    """`kind` within the bounds that `notes`, those of msgspec, set."""
    for note in notes:
        told = _bounds_text(note) if isinstance(note, msgspec.Meta) else ""
        if told and isinstance(note, msgspec.Meta) and kind.fits is not None:
            kind = Kind(f"{kind.words} {told}", _both(kind.fits, note))
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
    """Whatever has the methods of `known`."""
    classes = [each for each in known.__mro__ if getattr(each, "_is_protocol", False)]
    names = {name for each in classes for name in vars(each)}
    wanted = [n for n in names if not n.startswith("_") or n == "__call__"]
    return Kind(known.__name__, lambda value: all(hasattr(value, name) for name in wanted))


def _is_one_of(value: object, allowed: tuple[object, ...]) -> bool:
    return any(value == each and type(value) is type(each) for each in allowed)


def _either(kinds: list[Kind]) -> Kind:
    if any(kind.fits is None for kind in kinds):
        return ANYTHING
    questions = [kind.fits for kind in kinds if kind.fits is not None]
    words = [kind.words for kind in kinds if kind.words != "None"]
    has_none = len(words) < len(kinds)
    told = " or ".join(dict.fromkeys([*words, *(["None"] if has_none else [])]))
    return Kind(told, lambda value: any(fits(value) for fits in questions))


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

    return Kind(f"a tuple of {told}", fits)


def _items(holder: Any, kind: Kind) -> Kind:
    """A `holder` of what `kind` lets in; text is none, although it can be iterated over."""

    def fits(value: Any) -> bool:
        if not isinstance(value, holder) or isinstance(value, _TEXTS):
            return False
        if kind.fits is None or not isinstance(value, Sized):
            return True
        return all(map(kind.fits, cast("Iterable[object]", value)))

    return Kind("a list" if kind.fits is None else f"a list of {kind.words}", fits)


def _mapping(keys: Kind = ANYTHING, values: Kind = ANYTHING) -> Kind:
    def fits(value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        items = cast("Mapping[object, object]", value).items()
        return all(_fit(keys, key) and _fit(values, each) for key, each in items)

    words = [kind.words for kind in (keys, values) if kind.fits is not None]
    return Kind(f"a dict of {' and '.join(words)}" if words else "a dict", fits)


def _fit(kind: Kind, value: object) -> bool:
    return kind.fits is None or kind.fits(value)
