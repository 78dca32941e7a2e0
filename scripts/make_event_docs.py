"""Write the tables of docs/events.md from the classes of events and the table of kinds.

Run `python scripts/make_event_docs.py` after a change to events; with `--check` it only says
whether it has to be run (`make style` does).
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from perdure.events import projection
from perdure.events.plain_json import camel
from perdure.events.types import SNAPSHOT, Event, LiveEvent, LiveType, Snapshot
from perdure.session.codec import BODIES
from perdure.session.kinds import MESSAGE
from perdure.session.messages import Message

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "events.md"
BEGIN = "<!-- written by scripts/make_event_docs.py -->\n"
END = "<!-- end -->\n"
TYPE = re.compile(r'"([a-z]+:[a-z_]+)"')
WHOLE = "[log format](log-format.md)"


def main(arguments: Sequence[str]) -> int:
    """Write the tables, or with --check compare them; the exit code."""
    before = DOCUMENT.read_text(encoding="utf-8")
    head, _, rest = before.partition(BEGIN)
    after = f"{head}{BEGIN}{tables()}{END}{rest.partition(END)[2]}"
    if after == before:
        return 0
    if "--check" in arguments:
        print("docs/events.md is not what scripts/make_event_docs.py writes: run it")
        return 1
    DOCUMENT.write_text(after, encoding="utf-8")
    print("wrote docs/events.md")
    return 0


def tables() -> str:
    """The tables of classes, live types and durable types."""
    lines = ["", "| Class | Fields |", "|---|---|"]
    for kind in (Event, LiveEvent, Snapshot):
        fields = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(kind))
        lines.append(f"| `perdure.{kind.__name__}` | {fields} |")
    lines += ["", "| Type of a live event | Class |", "|---|---|"]
    lines += [f"| `{name}` | `LiveEvent` |" for name in typing.get_args(LiveType)]
    lines += [f"| `{SNAPSHOT}` | `Snapshot` |"]
    lines += ["", "| Type of a durable event | Entry kind | Payload |", "|---|---|---|"]
    lines += [f"| `{type_}` | `{kind}` | {payload} |" for type_, kind, payload in sorted(durable())]
    return "\n".join([*lines, "", ""])


def durable() -> Iterator[tuple[str, str, str]]:
    """Type, kind and payload of every durable event."""
    for kind, type_ in projection.SIMPLE.items():
        body = Message if kind == MESSAGE else BODIES[kind]
        yield (
            type_,
            kind,
            ", ".join(f"`{camel(name)}`" for name in body.__struct_fields__) or "none",
        )
    for kind, function in projection.SPECIAL.items():
        for type_ in TYPE.findall(inspect.getsource(function)):
            yield type_, kind, WHOLE
    for type_ in TYPE.findall(inspect.getsource(projection.turn_finished)):
        yield type_, "turn_finished", WHOLE
    yield projection.OTHER, "any other", "`kind`, `lane`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
