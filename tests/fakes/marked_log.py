"""A store in which every free text contains a marker of control characters.

The texts come from the golden logs: an entry of every kind.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import msgspec

from perdure.errors import PerdureError
from perdure.session.codec import entry_of_line, new_side
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.memory.kinds import FactRemembered, memory_stream
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import START_MS

OWN = "\x1b[2mOWN"
"""A control code that commands print, too, and a word after it that only the marker has."""

MARK = f"<\x1b]0;t\x07\x1b[31;41m\x9b2J\x7f\x85\x00\x08\u202e\u2066\u061c\u200f\u2028{OWN}>"

SESSION = StreamId("marked")
FLOW = StreamId("20260527T143000123Z-a1b2c3")

_GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "v1"
_STRUCTURE = frozenset(
    {
        *("agent_hash", "as_id", "base", "blob", "call_id"),
        *("choice", "choices", "consent", "digest", "effect"),
        *("end", "entry_kind", "feedback", "first_kept", "flow"),
        *("format", "from_id", "handle", "id", "improvement"),
        *("initialization_mode", "key", "mode", "node", "nodes"),
        *("on_interrupt", "on_unknown", "outcome", "purpose", "record_folder"),
        *("result", "role", "roleName", "session", "sessions"),
        *("source", "start", "status", "stop_reason", "target"),
        *("to_node", "topic", "type", "whole", "workspace_root"),
    }
)
"""Fields that allow only texts of a list, or names: a text with a marker would be invalid."""

_OPEN_UNTIL = 16
"""After this number of entries, the golden flow still runs."""

_PICTURE = b"a picture"
_LATER = frozenset({"turn_started", "turn_finished", "content_erased", "hologram"})
"""Kinds that only the store itself may write, or whose body must not change."""


def marked(value: object, field: str = "") -> object:
    """Return JSON data with `MARK` after every free text in it."""
    match value:
        case str():
            return value if field in _STRUCTURE else value + MARK
        case list():
            return [marked(each, field) for each in cast("list[object]", value)]
        case dict():
            fields = cast("dict[str, object]", value)
            return {name: marked(each, name) for name, each in fields.items()}
        case _:
            return value


async def plant_marks(store: SessionStore) -> int:
    """Fill `store` with a session and a flow of marked entries; return the number of entries."""
    header = StreamHeader(
        SESSION,
        START_MS,
        cwd=f"/tmp/{MARK.replace(chr(0), '')}",
        title=f"title {MARK}",
        metadata={f"key {MARK}": f"value {MARK}"},
        subject=f"ann {MARK}",
    )
    await _commit(store, Write(stream=SESSION, create=header))
    count = 0
    for line in (_GOLDEN / "entries.jsonl").read_bytes().splitlines():
        count += await _planted(store, SESSION, entry_of_line(line))
    started = StreamHeader(FLOW, START_MS, "flow", title=f"flow {MARK}")
    await _commit(store, Write(stream=FLOW, create=started))
    for role in ("owner", "developer_2"):
        session = StreamId(f"{FLOW}__{role}")
        said = StreamHeader(session, START_MS, origin="role", title=MARK)
        await _commit(store, Write(stream=session, create=said))
        for line in (_GOLDEN / "entries.jsonl").read_bytes().splitlines()[:3]:
            count += await _planted(store, session, entry_of_line(line))
    for line in (_GOLDEN / "flows.jsonl").read_bytes().splitlines()[:_OPEN_UNTIL]:
        count += await _planted(store, FLOW, entry_of_line(line))
    facts = memory_stream(None)
    remembered = tuple(new_side(FactRemembered(f"fact {n} {MARK}", MARK)) for n in range(2))
    made = StreamHeader(facts, START_MS, "memory")
    await _commit(store, Write(stream=facts, create=made, entries=remembered))
    return count + len(remembered)


async def _planted(store: SessionStore, stream: StreamId, golden: Entry) -> int:
    """Append `golden` with marks; return 0 if the store rejects it."""
    if golden.kind in _LATER:
        return 0
    try:
        text = golden.body.decode().replace(f"sha256-{'0' * 64}", blob_hash(_PICTURE))
        body = msgspec.json.encode(marked(json.loads(text)))
        entry = NewEntry(golden.kind, body, golden.v, golden.lane)
        blobs = (_PICTURE,) if blob_hash(_PICTURE) in text else ()
        write = Write(stream=stream, entries=(entry,))
        await store.commit(Commit(writes=(write,), at=START_MS, blobs=blobs))
    except (PerdureError, ValueError):
        return 0
    return 1


async def _commit(store: SessionStore, write: Write) -> None:
    await store.commit(Commit(writes=(write,), at=START_MS))
