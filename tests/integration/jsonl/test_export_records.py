"""The store of session files and the exporter write the same records for the same entries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from perdure.context.build import build_context
from perdure.interop.exports import export_session
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolResultPart,
    UnknownPart,
    Usage,
    assistant,
    system,
    tool_call,
    user,
)
from perdure.session.notes import Label, LeafMoved, SessionInfoChanged
from perdure.stores.jsonl.store import DialectName, JsonlStore
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import START_MS
from tests.fakes.session_files import file_of
from tests.fakes.sources import empty_store, imported

S = StreamId("s")
PIXELS = b"\x89PNG\r\n\x1a\n pixels"
PICTURE = MediaPart("image/png", "media://" + blob_hash(PIXELS), len(PIXELS))
GONE = MediaPart("image/png", "media://sha256-" + "0" * 64, 1)
SOUND = MediaPart("audio/ogg", "media://sha256-" + "1" * 64, 1)
USAGE = Usage(10, 2, 3, 4, 150)


def conversation() -> list[NewEntry]:
    """Return every kind of tree entry, in all forms that the two writers once wrote differently."""
    two = Message("tool", (ToolResultPart("a", "1", name="read"), ToolResultPart("b", "", True)))
    parts: tuple[Part, ...] = (TextPart("see\u2028"), PICTURE, GONE, SOUND)
    trees = [
        system("rules"),
        Message("context", (TextPart("recalled"),)),
        ModelChange("openai:gpt"),
        ModelChange("solo"),
        ThinkingChange("high"),
        Message("user", parts),
        assistant(
            ThinkingPart("hm"),
            ThinkingPart("", is_redacted=True),
            tool_call("a", "read", {"ratio": 5e-06, "whole": 1.0, "big": 1e22, "none": None}),
            tool_call("b", "read", {}),
            usage=USAGE,
        ),
        two,
        Message("tool", (ToolResultPart("c", "see", media=(PICTURE, GONE)),)),
        Message("assistant", (TextPart("no"),), "anthropic:x", "content_filter", error="no"),
        Message("user", (UnknownPart(msgspec.Raw(b'{"type":"new"}')),)),
        Custom("todo", {"n": 1.5}),
        CustomMessage("shown", (TextPart("x"), PICTURE), details=[1]),
        CustomMessage("private", (TextPart("secret"),), in_context=False),
        CustomMessage(
            "bash_execution", (TextPart("ran"),), details={"command": "ls", "output": ""}
        ),
        Compaction("c", EntryId("s/7"), 9, reason="hook", read_files=("r",), usage=USAGE),
        Compaction("again", retained=(user("kept", PICTURE), two, assistant("kept too"))),
        BranchSummary("left", EntryId("s/8"), modified_files=("m",), usage=USAGE),
        BranchSummary("  "),
        user("end"),
    ]
    made = [new_tree(body) for body in trees]
    made.append(NewEntry("future", b'{"a":1.50}', v=3))
    made.append(NewEntry("opaque", b'\xff{"half'))
    return made


async def write(store: JsonlStore, *entries: NewEntry, create: StreamHeader | None = None) -> None:
    blobs = (PIXELS,) if create else ()
    write = Write(stream=S, create=create, entries=entries)
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=blobs))


def lines_in(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def records_in(content: bytes) -> dict[str, dict[str, Any]]:
    """Return the records in `content` by id, each without its key `perdure`."""
    _, *records = lines_in(content)
    return {each["id"]: {k: v for k, v in each.items() if k != "perdure"} for each in records}


def of(record: dict[str, Any], *types: str) -> bool:
    return record["type"] in types


async def test_store_and_export_write_the_same_records(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    made = conversation()
    header = StreamHeader(S, START_MS, title="Tide", cwd="/srv")
    await write(store, *made[:3], create=header)
    await write(store, *made[3:12])
    for entry in made[12:]:
        await write(store, entry)
    await write(store, new_side(Label("here"), EntryId("s/7")))
    await write(store, new_side(SessionInfoChanged(title="Ebb")))
    await write(store, new_side(LeafMoved(EntryId("s/5"))))
    branch = new_tree(assistant("on the other branch"))
    await write(store, branch)

    stored = records_in(file_of(folder, S).read_bytes())
    exported = await export_session(store, S, dialect)
    written = records_in(exported.content)

    tree = [id for id in written if not of(written[id], "label", "session_info", "leaf")]
    assert len(tree) >= len(made) + 1
    for id in tree:
        assert (id, written[id]) == (id, stored[id])
    assert records_of_kind(stored, "label", "label") == records_of_kind(written, "label", "label")
    names = records_of_kind(stored, "session_info", "name")
    assert names[-1:] == records_of_kind(written, "session_info", "name") == ["Ebb"]
    first = lines_in(file_of(folder, S).read_bytes())[0]
    assert {**first, "perdure": None} == {**lines_in(exported.content)[0], "perdure": None}


def records_of_kind(records: dict[str, dict[str, Any]], type: str, key: str) -> list[object]:
    return [record.get(key) for record in records.values() if record["type"] == type]


async def test_store_and_export_write_numbers_in_same_form(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    call = tool_call("a", "read", {"ratio": 5e-06, "whole": 1.0, "big": 1e22, "small": 1e-7})
    await write(store, new_tree(assistant(call)), create=StreamHeader(S, START_MS))

    spelled = {"pi": b'"ratio":0.000005,"whole":1,"big":1e+22,"small":1e-7'}
    spelled["operator"] = b'"ratio":5e-6,"whole":1.0,"big":1e+22,"small":1e-7'
    content = (await export_session(store, S, dialect)).content
    assert spelled[dialect] in content
    assert spelled[dialect] in file_of(folder, S).read_bytes()
    (entry,) = await store.entries(S)
    assert b'"whole":1.0' in entry.body


async def test_session_file_is_imported_with_its_context_and_exported_unchanged(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    await write(store, *conversation(), create=StreamHeader(S, START_MS, title="Tide"))
    await write(store, NewEntry("a_note", b"{}", lane="side"), new_tree(user("go on")))
    content = file_of(folder, S).read_bytes()
    other = empty_store()

    report = await imported(other, content)

    assert (report.session, report.warnings) == (S, ())
    assert (await other.state(S)).info.title == "Tide"
    assert "a_note" not in {entry.kind for entry in await other.tree(S)}
    assert await said_in(other) == await said_in(store)
    assert (await export_session(other, S, dialect)).content == content


async def said_in(store: SessionStore) -> list[tuple[str, str]]:
    """Return the messages for a model."""
    leaf = (await store.state(S)).leaf
    context = build_context(await store.context_window(S, leaf))
    return [(each.message.role, each.message.text) for each in context.messages]
