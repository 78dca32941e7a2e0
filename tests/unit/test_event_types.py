"""`perdure.event_types`: each type of durable event has a class, and its events use it."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path
from typing import Any

import msgspec

import perdure
from perdure import event_types, user
from perdure.events.projection import TYPES, events_of
from perdure.session.codec import entry_of_line
from perdure.session.ids import StreamId
from scripts import make_event_docs
from tests.fakes.samples import case

STUB = Path(event_types.__file__).with_suffix(".pyi")
GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
ENTRIES = [
    entry_of_line(line)
    for file in sorted(GOLDEN.glob("*.jsonl"))
    for line in file.read_bytes().removesuffix(b"\n").split(b"\n")
]


def test_every_event_type_has_a_class_and_static_type() -> None:
    assert {type_ for type_, _, _ in make_event_docs.durable()} == TYPES
    made = {name for name, each in vars(event_types).items() if isinstance(each, type)}
    stub = ast.parse(STUB.read_text(encoding="utf-8"))
    typed = {node.name for node in stub.body if isinstance(node, ast.ClassDef)}
    assert len(made) == len(TYPES)
    assert {name for name in typed if not name.startswith("_")} == made


def test_event_payloads_match_their_static_types() -> None:
    known: dict[str, Any] = {"__name__": "stub"}
    code = compile(STUB.read_text(encoding="utf-8"), STUB, "exec", dont_inherit=True)
    exec(code, known)
    checked: set[str] = set()
    for entry in ENTRIES:
        for event in events_of(entry):
            name = type(event).__name__
            with case(f"{event.type} of {entry.id}"):
                assert type(event) is getattr(event_types, name)
                keys = known[name].__annotations__["payload"]
                assert set(event.payload) <= keys.__annotations__.keys()
                msgspec.convert(event.payload, keys)
                checked.add(event.type)
    assert checked == TYPES


async def test_match_statement_can_match_an_event_by_class() -> None:
    told: list[object] = []
    async with perdure.open("memory:") as store:
        session = await store.create(id="s")
        entry = await session.append(user("Hello"))
        await session.label(entry, "start")
        await session.rename("Trip")
        async for event in session.watch(after=-1):
            match event:
                case event_types.AgentMessage(seq=seq, payload={"role": role}):
                    told.append((seq, role))
                case event_types.SessionLabeled(payload={"text": text, "about": about}):
                    told.append((text, about))
                case event_types.SessionRenamed(type=type_):
                    told.append(type_)
                    break
                case _:
                    raise AssertionError(event)
            assert isinstance(event, perdure.Event)
    assert told == [(0, "user"), ("start", "s/0"), "session:renamed"]


def test_event_keeps_its_class_when_pickled_and_printed() -> None:
    event = event_types.SessionEnded(StreamId("s"), 3, 0, "session:ended", 1, {"entryId": "s/3"})
    again = pickle.loads(pickle.dumps(event))
    assert again == event
    assert type(again) is event_types.SessionEnded
    assert repr(event).startswith("SessionEnded(")
