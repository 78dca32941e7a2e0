"""Every class that a public call returns has a JSON form with each of its fields."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

import perdure
from perdure import Chat, Flow, Flows, Memory, Runtime, Session, Store, Turn, Watch
from perdure.client.flows.feeds import RoleFeed
from perdure.errors import PerdureError, SessionNotFound
from perdure.session.messages import UnknownPart
from tests.fakes.samples import case

HANDLES = (Store, Memory, Session, Chat, Runtime, Flows, Flow, Turn, Watch, RoleFeed)
PLAIN: Mapping[Any, object] = {
    str: "a",
    int: 1,
    float: 1.5,
    bool: True,
    bytes: b"\xff",
    NoneType: None,
    object: {"any": [1]},
    Any: {"any": [1]},
    date: date(2026, 1, 2),
    datetime: datetime(2026, 1, 2, tzinfo=UTC),
    Path: Path("a"),
    PurePath: PurePath("a"),
    msgspec.Raw: msgspec.Raw(b'{"n": 1}'),
    msgspec.UnsetType: msgspec.UNSET,
}


MADE: Mapping[Any, object] = {
    # classes without fields, or whose fields depend on each other -> an example
    PerdureError: SessionNotFound("a"),
}


UNIONS = (UnionType, get_origin(Literal[1] | None))
"""The two runtime forms of ``X | Y``."""

FORMS_OF_THEIR_OWN = (perdure.Event, perdure.LiveEvent, perdure.Snapshot, UnknownPart)
"""Classes whose JSON form is not an object of their fields."""


def returned() -> Iterator[tuple[str, Any]]:
    """Return the name and return type of each public method and property of a handle."""
    for known in HANDLES:
        for name, member in inspect.getmembers_static(known):
            read = member.fget if isinstance(member, property) else member
            is_public = not name.startswith("_") or name in ("__await__", "__aiter__")
            if is_public and inspect.isfunction(read):
                yield f"{known.__name__}.{name}", get_type_hints(read)["return"]


def parts_of(kind: Any) -> Iterator[Any]:
    """Return the classes in the annotation `kind`."""
    if get_origin(kind) in (Callable, Literal):
        return
    if args := get_args(kind):
        for each in args:
            yield from parts_of(each)
    elif isinstance(kind, type):
        yield kind


def classes() -> dict[type, str]:
    """Map each struct that a public call returns to the call or field that contains it."""
    found: dict[type, str] = {}
    waiting = list(returned())
    while waiting:
        where, kind = waiting.pop()
        for known in parts_of(kind):
            if issubclass(known, msgspec.Struct) and known not in found:
                found[known] = where
                fields = msgspec.structs.fields(known)
                waiting += [(f"{known.__name__}.{each.name}", each.type) for each in fields]
    return found


def sample(kind: Any, above: tuple[Any, ...] = ()) -> Any:
    """Return a value of `kind` with every field set, except fields that repeat `kind`."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if kind in MADE:
        return MADE[kind]
    if origin is Literal:
        return args[0]
    if origin in UNIONS:
        return sample(next(each for each in args if each is not NoneType), above)
    if origin is Annotated or hasattr(kind, "__supertype__"):
        return sample(args[0] if args else kind.__supertype__, above)
    if origin is not None and issubclass(origin, Mapping):
        return {sample(args[0], above): sample(args[1], above)}
    if origin is not None:
        below = () if args[0] in above else (sample(args[0], above),)
        return frozenset(below) if issubclass(origin, frozenset) else below
    assert issubclass(kind, msgspec.Struct), kind
    fields = msgspec.structs.fields(kind)
    return kind(**{each.name: sample(each.type, (*above, kind)) for each in fields})


def test_every_class_that_a_call_returns_has_a_json_form() -> None:
    known = classes()
    assert len(known) > 60
    for each, where in known.items():
        with case(f"{each.__name__} of {where}"):
            value = sample(each)
            form: Any = perdure.wire(value)
            assert json.loads(json.dumps(form)) == form
            if each not in FORMS_OF_THEIR_OWN:
                assert {field.name for field in msgspec.structs.fields(each)} <= set(form)
