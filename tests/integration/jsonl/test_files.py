"""The files of the store: their paths and content, and that they are append-only."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import CorruptLog, StoreTooNew, StoreUnavailable
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.kinds import OPAQUE, Compaction
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
    assistant,
    user,
)
from perdure.session.notes import Label, LeafMoved, SessionInfoChanged
from perdure.stores.jsonl.store import DialectName, JsonlStore
from perdure.stores.protocol import Commit, Write
from tests.conformance.store.building import append, create, fork, header, said, unknown
from tests.fakes.clock import START_MS
from tests.fakes.session_files import file_of, files_below
from tests.integration.jsonl.conftest import Opener, opened

S = StreamId("s")
PICTURE = b"\x89PNG\r\n\x1a\n picture"


def records(folder: Path, session: str = "s") -> list[dict[str, Any]]:
    """Return the records of a session's file except the second, without perdure's keys."""
    lines = file_of(folder, session).read_bytes().splitlines()
    first, second, *found = [json.loads(line) for line in lines]
    assert "perdure" not in first
    assert "perdure.session" in second.values()
    assert all(list(record)[-1] == "perdure" for record in (second, *found))
    return [first, *({k: v for k, v in each.items() if k != "perdure"} for each in found)]


LONG = "A title that no line of 512 bytes has room for." * 12


async def test_first_line_has_only_the_header_keys_of_its_file_format(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    metadata: dict[str, object] = {"ticket": LONG}
    made = StreamHeader(S, START_MS, title=LONG, cwd="/my/project", metadata=metadata)
    await create(store, made, said("hi"))
    await fork(store, S, "f", scope="path")

    for session in ("s", "f"):
        first, second, title, *_ = file_of(folder, session).read_bytes().splitlines()
        keys = {"operator": "parent_session", "pi": "parentSession"}
        known = {"type", "version", "id", "timestamp", "cwd", keys[dialect]}
        assert json.loads(first).keys() <= known
        assert len(first) <= 512
        assert json.loads(second)["type"] == "custom"
        assert json.loads(title)["name"] == LONG
        assert (await store.state(StreamId(session))).info.title == LONG


async def test_header_that_pi_ignores_causes_a_warning(
    store: JsonlStore, dialect: DialectName, caplog: pytest.LogCaptureFixture
) -> None:
    await create(store, StreamHeader(S, START_MS, cwd="/short"), said("hi"))
    assert caplog.messages == []
    await create(store, StreamHeader(StreamId("t"), START_MS, cwd="/" + "x" * 500), said("hi"))
    told = [message for message in caplog.messages if "`pi -c` passes over it" in message]
    assert len(told) == (1 if dialect == "pi" else 0)


async def test_session_without_title_has_no_title_record(store: JsonlStore, folder: Path) -> None:
    await create(store, S, said("hi"))
    assert b"session_info" not in file_of(folder, S).read_bytes()


async def test_header_of_a_newer_perdure_is_rejected(
    store: JsonlStore, open_store: Opener, folder: Path
) -> None:
    await create(store, S, said("hi"))
    path = file_of(folder, S)
    content = path.read_bytes().replace(
        b'"perdure":{"of":"s",', b'"perdure":{"of":"s","format":9,', 1
    )
    path.write_bytes(content)
    with pytest.raises(StoreTooNew):
        await (await open_store()).entries(S)


async def one_of_everything(store: JsonlStore) -> None:
    await create(store, header("s", cwd="/my/project"), said("hi"))
    call = ToolCallPart("c1", "read", {"path": "x"})
    usage = Usage(10, 2, cost_microcents=900)
    await append(store, S, new_tree(assistant("", call, model="openai:gpt", usage=usage)))
    results = (ToolResultPart("c1", "text", name="read"), ToolResultPart("c2", "no", is_error=True))
    await append(store, S, new_tree(Message("tool", results)))
    await append(store, S, new_side(Label("start"), EntryId("s/0")), new_tree(Compaction("gist")))
    await append(store, S, new_side(LeafMoved(EntryId("s/2"))), unknown())
    await append(store, S, new_side(SessionInfoChanged(title="Trip")))


async def test_records_in_the_operator_dialect_have_the_format_of_operator(tmp_path: Path) -> None:
    async with opened(tmp_path, "operator") as store:
        await one_of_everything(store)
    found = records(tmp_path)
    ids = [record["id"] for record in found]
    at = START_MS / 1000

    assert found[0] == {
        "type": "session",
        "version": 3,
        "id": "s",
        "timestamp": at,
        "cwd": "/my/project",
    }
    assert list(found[1]) == ["id", "timestamp", "type", "message"]
    assert list(found[1]["message"]) == ["contents", "id", "timestamp", "role"]
    assert found[1]["message"]["contents"] == [{"type": "text", "content": "hi"}]
    answer = found[2]
    assert list(answer) == ["id", "timestamp", "parent_id", "type", "message"]
    assert answer["parent_id"] == ids[1]
    assert answer["message"]["contents"][1] == {
        "type": "tool_call",
        "id": "c1",
        "name": "read",
        "args": {"path": "x"},
        "metadata": {},
    }
    assert answer["message"]["stop_reason"] == "tool_calls"
    assert answer["message"]["usage"]["input_tokens"] == 10
    assert answer["message"]["usage"]["cost"]["total"] == 9e-6
    results = found[3]["message"]["contents"]
    assert [(part["id"], part["content"], part["is_error"]) for part in results] == [
        ("c1", "text", False),
        ("c2", "no", True),
    ]
    # The label's parent is the leaf, and the label has no children.
    assert found[4] == {
        "id": ids[4],
        "timestamp": at,
        "parent_id": ids[3],
        "type": "label",
        "label": "start",
        "target_id": ids[1],
    }
    assert (found[5]["parent_id"], found[5]["first_kept_entry_id"]) == (ids[3], ids[5])
    assert (found[6]["type"], found[6]["parent_id"], found[6]["target_id"]) == (
        "leaf",
        ids[5],
        ids[3],
    )
    assert (found[7]["parent_id"], found[7]["custom_type"]) == (ids[3], "perdure.from_the_future")
    assert found[8]["name"] == "Trip"
    assert not set(ids[4::2]) & {record.get("parent_id") for record in found}


async def test_records_in_the_pi_dialect_have_the_format_of_pi(tmp_path: Path) -> None:
    async with opened(tmp_path, "pi") as store:
        await one_of_everything(store)
    found = records(tmp_path)
    ids = [record["id"] for record in found]

    assert found[0]["timestamp"] == "2023-11-14T22:13:20.000Z"
    assert list(found[1]) == ["type", "id", "parentId", "timestamp", "message"]
    assert (found[1]["parentId"], found[2]["parentId"]) == (None, ids[1])
    answer = found[2]["message"]
    assert (answer["provider"], answer["model"], answer["stopReason"]) == (
        "openai",
        "gpt",
        "toolUse",
    )
    # One message per result; the last one is the parent of what follows.
    assert [found[n]["message"]["toolCallId"] for n in (3, 4)] == ["c1", "c2"]
    assert [found[n]["parentId"] for n in (3, 4, 5, 6)] == [ids[2], ids[3], ids[4], ids[4]]
    assert found[6]["firstKeptEntryId"] == ids[6]
    # pi has no record of a move: the marker's parent is the new leaf, from which pi continues.
    assert (found[7]["customType"], found[7]["parentId"]) == ("perdure.leaf", ids[4])
    assert list(found[7]) == ["type", "customType", "data", "id", "parentId", "timestamp"]
    assert found[8]["parentId"] == ids[4]


async def test_record_fields_are_not_stored_twice(tmp_path: Path, dialect: DialectName) -> None:
    text = "said once " * 100
    async with opened(tmp_path, dialect) as store:
        await create(store, S, said(text), new_tree(assistant(text, model="openai:gpt")))

        entries = await store.entries(S)

    assert file_of(tmp_path, "s").read_text().count("said once") < 210
    assert [entry.message for entry in entries] == [user(text), assistant(text, model="openai:gpt")]


async def test_file_names_have_start_time_and_id(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    await create(store, header("a.b:c", created_at=START_MS))

    (path,) = files_below(folder, "*.jsonl")
    form = {
        "operator": r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{6}_a\.b:c\.jsonl",
        "pi": r"2023-11-14T22-13-20-000Z_a\.b:c\.jsonl",
    }
    assert re.fullmatch(form[dialect], path.name)


async def test_files_are_readable_only_by_their_owner(store: JsonlStore, folder: Path) -> None:
    write = Write(stream=S, create=header("s"), entries=(said(),))
    await store.commit(Commit(writes=(write,), at=1, blobs=(b"x",)))
    await store.acquire_lease(S, "me", 1000)

    for path in (folder, *files_below(folder)):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("durability", ["full", "normal"])
async def test_session_file_only_ever_grows(
    open_store: Opener, folder: Path, durability: str
) -> None:
    store = await open_store(durability=durability)
    before = b""
    await create(store)
    for number in range(20):
        await append(store, S, said(str(number)), NewEntry(OPAQUE, bytes([number])))
        now = file_of(folder, "s").read_bytes()
        assert now.startswith(before)
        before = now
    assert len(before.splitlines()) == 42


async def test_header_of_a_fork_contains_the_file_path_of_the_origin(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    await create(store, S, said("a"))
    await fork(store, S, "f", scope="path")

    key = {"operator": "parent_session", "pi": "parentSession"}[dialect]
    assert records(folder, "f")[0][key] == str(file_of(folder, "s"))


async def test_image_is_written_to_its_line_and_to_one_content_file(
    store: JsonlStore, folder: Path
) -> None:
    digest = blob_hash(PICTURE)
    part = MediaPart("image/png", f"media://{digest}", len(PICTURE))
    write = Write(
        stream=S, create=header("s"), entries=(new_tree(Message("user", (TextPart("see"), part))),)
    )
    await store.commit(Commit(writes=(write,), at=1, blobs=(PICTURE,)))

    assert b"iVBORw0KGgo" in file_of(folder, "s").read_bytes()
    assert (await store.entries(S))[0].message == Message("user", (TextPart("see"), part))
    assert await store.blob(digest) == PICTURE
    (path,) = files_below(folder, "sha256-*")
    assert (path.parent.name, path.name) == (digest[7:9], digest)


async def test_damaged_content_is_reported(store: JsonlStore, folder: Path) -> None:
    write = Write(stream=S, create=header("s"))
    await store.commit(Commit(writes=(write,), at=1, blobs=(b"whole",)))
    (path,) = files_below(folder, "sha256-*")
    path.write_bytes(b"whale")

    with pytest.raises(CorruptLog):
        await store.blob(blob_hash(b"whole"))
    assert [problem.problem for problem in (await store.maintenance.verify()).problems] == [
        f"the content {blob_hash(b'whole')} is damaged"
    ]


async def test_session_folder_that_cannot_be_created_is_rejected(
    tmp_path: Path, open_store: Opener
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="file"):
        await open_store(tmp_path / "file" / "folder")
