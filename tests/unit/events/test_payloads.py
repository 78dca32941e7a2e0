"""Payloads of events have the keys and types that are declared for type checkers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from perdure import event_types
from perdure.events.projection import TYPES, events_of
from perdure.session.codec import entry_of_line
from tests.fakes.samples import case

STUB = Path(event_types.__file__).with_suffix(".pyi")
GOLDEN = Path(__file__).parents[2] / "golden" / "v1"
ENTRIES = [
    entry_of_line(line)
    for file in sorted(GOLDEN.glob("*.jsonl"))
    for line in file.read_bytes().removesuffix(b"\n").split(b"\n")
]


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
