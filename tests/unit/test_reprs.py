"""Each handle has a short repr with its type, ids and counts, without text and secrets."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from types import UnionType
from typing import Any

import msgspec

import perdure
from perdure import types
from perdure.session.ids import StreamId
from perdure.testing import ScriptedModel
from tests.fakes.samples import case


async def test_handles_show_ids_and_counts_but_no_content(tmp_path: Path) -> None:
    agent = perdure.Agent("helper", model="x:y", instructions="private words")
    opening = perdure.open(f"sqlite:///{tmp_path / 'a.db'}", key=b"k" * 32)
    assert "not opened" in repr(opening)
    async with (
        opening as store,
        perdure.Runtime(store, agents=[agent], models=ScriptedModel(["private"])) as runtime,
    ):
        assert repr(store) == "<Store sqlite 'a.db'>"
        assert repr(runtime) == "<Runtime agents=['helper'] running=0>"
        chat = await runtime.start("helper", id="s")
        assert repr(chat) == "<Chat 's' agent='helper' idle>"
        turn = chat.send("private")
        assert repr(turn) == "<Turn session='s' running>"
        await turn
        assert repr(turn) == "<Turn session='s' ended>"
        session = await store.open("s")
        assert repr(session) == "<Session 's' entries=7 leaf='s/5'>"
        draft = await store.create(id="d", lazy=True)
        assert repr(draft) == "<Session 'd' entries=0 leaf=None draft>"
        assert repr(session.watch(after=3)) == "<Watch after=3>"
        flows = perdure.Flows(runtime)
        assert repr(flows) == "<Flows agents=['helper']>"
        assert repr(flows.look(StreamId("f"))) == "<Flow 'f'>"
        assert repr(flows.look(StreamId("f")).feed("owner")) == "<RoleFeed flow='f' role='owner'>"
        assert repr(perdure.Hooks()) == "<Hooks {}>"
        assert repr(perdure.Follower(4)) == "<Follower resume_after=4>"


def test_repr_of_a_blocking_handle_contains_its_module() -> None:
    with perdure.blocking.open("memory:") as store:
        assert repr(store) == "<blocking Store memory>"
        assert repr(store.create(id="s")) == "<blocking Session 's' entries=0 leaf=None>"


LONG = "words " * 500
SECRET = "sk-the-secret"
UNIONS = (UnionType, typing.get_origin(Path | None))


def exported_values() -> dict[str, type[msgspec.Struct]]:
    """Return the exported values by name: every `msgspec.Struct` of the public modules."""
    found: dict[str, type[msgspec.Struct]] = {}
    for module in (perdure, types):
        for name in dir(module):
            value = getattr(module, name)
            if inspect.isclass(value) and issubclass(value, msgspec.Struct):
                found[name] = value
    return found


def unchecked_init(_: object) -> None:
    """Check nothing."""


def filled(kind: type[msgspec.Struct], depth: int = 3) -> msgspec.Struct:
    """Return a value whose fields are as long as possible."""
    make: Any = type(kind)
    unchecked: Any = make(kind.__name__, (kind,), {"__post_init__": unchecked_init})
    hints = typing.get_type_hints(kind)
    return unchecked(**{name: long_value(hints[name], depth) for name in kind.__struct_fields__})


def long_value(annotation: Any, depth: int) -> Any:  # noqa: PLR0911 - one for each form
    """Return a value of `annotation` that is as long as possible."""
    arguments = typing.get_args(annotation)
    kind = typing.get_origin(annotation) or annotation
    kind = getattr(kind, "__supertype__", kind)
    if kind is typing.Literal:
        return arguments[0]
    if kind in UNIONS:
        return max((long_value(each, depth) for each in arguments), key=lambda each: len(str(each)))
    if kind is type(None):
        return None
    if not inspect.isclass(kind):
        return LONG
    if issubclass(kind, msgspec.Struct):
        return filled(kind, depth - 1) if depth else None
    if issubclass(kind, Mapping):
        return {f"KEY_{number}": SECRET for number in range(20)}
    if issubclass(kind, bytes | msgspec.Raw):
        return b"\0" * 5_000
    if not issubclass(kind, str) and issubclass(kind, Sequence | Set):
        return (long_value(arguments[0], depth),) * 8 if arguments else (LONG,) * 8
    if issubclass(kind, int | float):
        return kind(2_000_000_000)
    return LONG


def test_repr_of_every_exported_value_is_one_short_line_without_contents() -> None:
    values = exported_values()
    of_ids = {"Entry", "InlineMedia", "TreeNode"}  # these show only ids and counts
    for name in sorted(values.keys() - of_ids):
        kind = values[name]
        with case(name):
            text = repr(filled(kind))
            assert text.startswith((name, f"<{name}"))
            assert len(text) < 360
            assert "\n" not in text
            assert SECRET not in text
            assert LONG[:100] not in text
            assert r"\x00\x00" not in text
    assert len(values) > 100
