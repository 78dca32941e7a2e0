"""Return types of public calls: every type can be imported from a public module."""

from __future__ import annotations

import inspect
import typing
from functools import cached_property
from typing import Any, cast

import msgspec

import perdure
from perdure import blocking, errors, testing, types
from perdure.session.entries import Entry
from perdure.session.ids import StreamId

MODULES = (perdure, blocking, errors, testing, types)

INTERNAL = {"Runtime.host"}
"""Internal attributes of handles, which programs are not meant to use."""


class ReturnedTypes:
    """Every type of perdure that public calls return, and the place where it was found."""

    def __init__(self) -> None:
        self.found: dict[type, str] = {}
        for module in (perdure, blocking):
            for name in dir(module):
                value = getattr(module, name)
                if isinstance(value, type):
                    self.visit(value, name)
                elif inspect.isfunction(value):
                    self.visit_return(value, name)

    def visit(self, annotation: Any, place: str) -> None:
        """Add the types in `annotation`, and the types of their fields and return values."""
        for argument in typing.get_args(annotation):
            is_list = isinstance(argument, list | tuple)
            inner = cast("list[Any]", argument) if is_list else [argument]
            for each in inner:
                self.visit(each, place)
        kind: Any = typing.get_origin(annotation) or annotation
        if not isinstance(kind, type) or not kind.__module__.startswith("perdure"):
            return
        if kind in self.found or issubclass(kind, BaseException):
            return
        self.found[kind] = place
        self.visit_members(kind)

    def visit_members(self, kind: Any) -> None:
        """Add the types of a value's fields, and the return types of a class's methods."""
        marks = ("__struct_fields__", "__dataclass_fields__", "_fields")
        if any(hasattr(kind, mark) for mark in marks):
            for name, field in typing.get_type_hints(kind).items():
                if not name.startswith("_"):
                    self.visit(field, f"{kind.__name__}.{name}")
        for name in dir(kind):
            if not name.startswith("_") and f"{kind.__name__}.{name}" not in INTERNAL:
                self.visit_member(inspect.getattr_static(kind, name), f"{kind.__name__}.{name}")

    def visit_member(self, member: Any, place: str) -> None:
        """Add the return type of a method, or the type of a property."""
        for wrapper in ("__func__", "fget"):
            member = getattr(member, wrapper, member)
        if isinstance(member, cached_property):
            member = cast("cached_property[object]", member).func
        if inspect.isfunction(member):
            self.visit_return(member, place)

    def visit_return(self, function: Any, place: str) -> None:
        """Add the return type of `function`."""
        function = inspect.unwrap(function)
        if function.__module__.startswith("perdure"):
            self.visit(typing.get_type_hints(function).get("return"), place)


def test_every_returned_type_is_importable_from_a_public_module() -> None:
    public = {id(getattr(module, name)) for module in MODULES for name in dir(module)}
    returned = ReturnedTypes().found
    missing = {
        f"{kind.__module__}.{kind.__name__}": via
        for kind, via in returned.items()
        if id(kind) not in public
    }
    assert missing == {}
    assert len(returned) > 120  # fewer would mean that the search missed types


def test_types_module_and_perdure_export_different_names() -> None:
    named = {name for name in dir(types) if not name.startswith("_")}
    assert not named & {name for name in dir(perdure) if name[0].isupper()}


def test_raw_json_of_a_custom_entry_is_returned_unchanged() -> None:
    given = b'{"n": 123456789012345678901234, "n": 1.0}'
    with blocking.open("memory:") as store:
        entry = store.create().append(perdure.Custom("mine", raw_json=given))
    assert perdure.raw_data(entry.body) == given


def test_repr_of_an_entry_shows_id_kind_and_size_but_no_text() -> None:
    entry = Entry(StreamId("s"), 3, "tree", None, None, 0, "message", 1, b'{"secret":1}')
    assert repr(entry) == "<Entry 's/3' message 12 bytes>"
    assert repr(msgspec.structs.replace(entry, body=b"")) == "<Entry 's/3' message erased>"
