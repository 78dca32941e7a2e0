"""What public calls return: every type can be imported, and every value has a JSON form."""

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import assistant, blocking, errors, testing, tool_call, types, user
from perdure.errors import WrongArgument
from perdure.session.entries import Entry
from perdure.session.ids import StreamId

MODULES = (perdure, blocking, errors, testing, types)

INTERNAL = {"Runtime.host"}
"""What handles are built on; no program is meant to use it."""


class ReturnedTypes:
    """Every type of perdure that public calls return, and where each was found."""

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
        """Add the types in `annotation`, and those that their fields and calls give."""
        for argument in typing.get_args(annotation):
            for each in argument if isinstance(argument, list | tuple) else (argument,):
                self.visit(each, place)
        kind = typing.get_origin(annotation) or annotation
        if not isinstance(kind, type) or not kind.__module__.startswith("perdure"):
            return
        if kind in self.found or issubclass(kind, BaseException):
            return
        self.found[kind] = place
        is_value = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
        if is_value or issubclass(kind, msgspec.Struct):
            for name, field in typing.get_type_hints(kind).items():
                if not name.startswith("_"):
                    self.visit(field, f"{kind.__name__}.{name}")
        for name in dir(kind):
            if not name.startswith("_") and f"{kind.__name__}.{name}" not in INTERNAL:
                self.visit_member(inspect.getattr_static(kind, name), f"{kind.__name__}.{name}")

    def visit_member(self, member: Any, place: str) -> None:
        """Add what a method or property gives."""
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        elif isinstance(member, property):
            member = member.fget
        elif isinstance(member, cached_property):
            member = member.func
        if inspect.isfunction(member):
            self.visit_return(member, place)

    def visit_return(self, function: Any, place: str) -> None:
        """Add what `function` returns."""
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
    assert len(returned) > 120  # else the walk has lost its way


def test_types_names_each_type_once() -> None:
    assert sorted(types.__all__) == list(types.__all__)
    assert not set(types.__all__) & {name for name in dir(perdure) if name[0].isupper()}


async def test_every_returned_value_has_a_json_form(tmp_path: Path) -> None:
    async with perdure.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        session = await store.create(id="s", title="Trip", cwd=tmp_path, metadata={"a": 1})
        first, _ = await session.append(
            user("hello", said_at=datetime.now(UTC), foreign={"format": "x", "item": {"n": 1}}),
            assistant("hi", tool_call("c1", "read_file", {"path": "x"})),
        )
        await session.append(perdure.Custom("mine", raw_json=b'{"n": 123456789012345678901234}'))
        (tmp_path / "bad.jsonl").write_text("{")
        values: dict[str, object] = {
            "entry": first,
            "entries": await session.tree_entries(),
            "tree": await session.tree(),
            "context": await session.context(),
            "messages": await session.messages(),
            "info": await session.info(),
            "labels": await session.labels(),
            "recent": await store.recent(),
            "hits": await store.search("hello"),
            "import": await store.import_files([tmp_path / "bad.jsonl"]),
            "export": await session.export("markdown", tmp_path / "out.md"),
            "exports": await store.export("perdure", tmp_path / "all"),
            "capabilities": store.capabilities,
            "store": await store.info(),
            "verification": await store.verify(),
            "calls": await store.tool_calls(),
            "usage": await store.usage(),
            "activity": await store.activity(),
            "edits": await store.edits(),
            "questions": await store.questions(),
            "replay": await session.append_many([user("x")], idempotency_key="k"),
            "certificate": await session.erase(),
            "erasures": await store.erasures(),
            "error": errors.SessionNotFound("x"),
        }
        forms = {name: perdure.wire(value) for name, value in values.items()}
        assert json.loads(json.dumps(forms)) == forms
        handles = (store, session, object())
    entry: Any = forms["entry"]
    assert (entry["id"], entry["kind"]) == ("s/0", "message")
    assert entry["body"]["parts"][0]["text"] == "hello"
    imported: Any = forms["import"]
    assert imported["files"][0]["error"]["code"] == "format_error"
    assert forms["error"] == {
        "code": "session_not_found",
        "message": str(errors.SessionNotFound("x")),
        "stream": "x",
    }
    for handle in handles:
        with pytest.raises(WrongArgument, match="wire takes events and returned values"):
            perdure.wire(handle)


async def test_json_form_of_a_deep_tree_needs_no_stack() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        await session.append_many([user(str(number)) for number in range(5000)])
        node: Any = perdure.wire(await session.tree())
    depth = 0
    while node:
        node, depth = node[0]["children"], depth + 1
    assert depth == 5000


def test_raw_data_reads_the_json_as_it_was_given() -> None:
    given = b'{"n": 123456789012345678901234, "n": 1.0}'
    with blocking.open("memory:") as store:
        entry = store.create().append(perdure.Custom("mine", raw_json=given))
    assert perdure.raw_data(entry.body) == given


def test_repr_of_entry_shows_place_kind_and_size_but_no_text() -> None:
    entry = Entry(StreamId("s"), 3, "tree", None, None, 0, "message", 1, b'{"secret":1}')
    assert repr(entry) == "<Entry 's/3' message 12 bytes>"
    assert repr(msgspec.structs.replace(entry, body=b"")) == "<Entry 's/3' message erased>"
