"""Import of files that perdure wrote for other programs, unchanged or continued there."""

from __future__ import annotations

import json
from datetime import UTC

import msgspec
import pytest

from perdure.client.records.edits import newest_edits
from perdure.client.records.tool_calls import newest_calls
from perdure.client.records.usage import Tallies
from perdure.errors import SessionHasForks
from perdure.interop.continuation import PROGRAMS, Program, continuation_of
from perdure.interop.formats.sources.reader import Bounds
from perdure.interop.imports import import_source
from perdure.session.codec import new_side, new_tree
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import (
    Message,
    ToolCallPart,
    ToolResultPart,
    Usage,
    assistant,
    user,
)
from perdure.session.notes import SessionInfoChanged
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.erase import EraseRequest
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.sources import empty_store, imported
from tests.fakes.streams import append, create

SESSION = StreamId("s")
HANDED: tuple[Program, ...] = ("claude-code", "codex", "opencode")
"""Programs whose files contain no entry ids of perdure."""


async def edited() -> MemoryStore:
    """Return a store with a session that has written a file."""
    store = empty_store()
    header = StreamHeader(SESSION, START_MS, cwd="/srv/birds", title="Birds")
    await store.commit(Commit(writes=(Write(stream=SESSION, create=header),), at=START_MS))
    call = ToolCallPart("call_1", "write", {"path": "heron.md", "content": "Grey."})
    said = (
        user("Write it down."),
        Message("assistant", (call,), model="anthropic:m", usage=Usage(input_tokens=90)),
        Message("tool", (ToolResultPart("call_1", "Written."),)),
        assistant("It is written."),
    )
    await append(store, *map(new_tree, said), stream=SESSION)
    return store


async def written(store: MemoryStore, program: Program) -> bytes:
    """Return the file with which `program` continues the session."""
    return (await continuation_of(store, SESSION, program, cwd="/srv/birds")).exported.content


def continued_there(content: bytes, program: Program) -> bytes:
    """Return the file after one more question in `program`."""
    if program == "opencode":
        document = json.loads(content)
        first, own = document["messages"][0], document["info"]["id"]
        info = {**first["info"], "id": "msg_fffffffffff1AAAAAAAAAAAAAA", "time": {"created": 9**14}}
        part = {"id": "prt_1", "sessionID": own, "messageID": info["id"], "type": "text"}
        document["messages"].append({"info": info, "parts": [{**part, "text": "And a stork?"}]})
        return json.dumps(document, indent=2).encode()
    added: dict[str, object]
    if program == "codex":
        said = {"type": "input_text", "text": "And a stork?"}
        payload = {"type": "message", "role": "user", "content": [said]}
        added = {"timestamp": "2031-01-01T00:00:00Z", "type": "response_item", "payload": payload}
    else:
        records = [json.loads(line) for line in content.splitlines()]
        parent = [each["uuid"] for each in records if "uuid" in each][-1]
        kept = {key: value for key, value in records[0].items() if key != "perdure"}
        question = {"role": "user", "content": "And a stork?"}
        own = "1b4e28ba-2fa1-4d2e-883f-0016d3cca427"
        added = {**kept, "uuid": own, "parentUuid": parent, "message": question}
    return content + json.dumps(added).encode() + b"\n"


async def activity_of(store: MemoryStore) -> tuple[int, int]:
    """Return the counts of messages and tool calls over all sessions."""
    totals = await Tallies(store).activity("day", None, None, UTC)
    return sum(each.messages for each in totals), sum(each.tool_calls for each in totals)


@pytest.mark.parametrize("program", PROGRAMS)
async def test_exported_file_without_changes_is_not_imported(program: Program) -> None:
    store = await edited()
    content = await written(store, program)
    await append(store, new_side(SessionInfoChanged(title="Herons")), stream=SESSION)
    report = await imported(store, content)
    assert (report.session, report.entries, report.is_new) == (SESSION, 0, False)
    assert len(await store.sessions(limit=None, scope="all")) == 1
    if program in HANDED:
        assert report.warnings == (
            f"perdure wrote this file of session {SESSION}, and it has nothing new",
        )


@pytest.mark.parametrize("program", HANDED)
async def test_import_of_a_continued_export_counts_only_new_entries(program: Program) -> None:
    store = await edited()
    before, calls = await activity_of(store)
    content = continued_there(await written(store, program), program)
    report = await imported(store, content)
    assert report.session != SESSION
    info = (await store.state(report.session)).info
    assert (info.parent, info.origin) == (SESSION, "import")
    texts = [each.message.text for each in await store.tree(report.session) if each.message]
    assert texts[0] == "Write it down."
    assert texts[-1] == "And a stork?"
    assert await activity_of(store) == (before + 1, calls)
    (edit,) = await newest_edits(store, None, None)
    assert (edit.session, edit.edits) == (SESSION, 1)
    assert len(await newest_calls(store, None, None, failed=None, last=None)) == 1
    assert len(await newest_calls(store, report.session, None, failed=None, last=None)) == 1
    assert (await imported(store, content)).entries == 0


@pytest.mark.parametrize("program", HANDED)
async def test_large_continued_export_counts_only_new_entries(
    program: Program,
) -> None:
    store = await edited()
    before, calls = await activity_of(store)
    content = continued_there(await written(store, program), program)
    await imported(store, content, bounds=Bounds(whole_bytes=64, piece_bytes=64))
    assert await activity_of(store) == (before + 1, calls)


@pytest.mark.parametrize("program", HANDED)
async def test_file_of_unknown_session_is_imported_whole(program: Program) -> None:
    store, other = await edited(), empty_store()
    report = await imported(other, await written(store, program))
    assert report.is_new
    assert (await other.state(report.session)).info.parent is None
    assert await activity_of(other) == await activity_of(store)


@pytest.mark.parametrize("program", HANDED)
async def test_forged_session_id_in_an_export_is_ignored(program: Program) -> None:
    store = await edited()
    await create(store, StreamId("other"))
    content = await written(store, program)
    forged = content.replace(b'"session":"s"', b'"session":"other"')
    forged = forged.replace(b'"session": "s"', b'"session": "other"')
    assert forged != content
    report = await imported(store, forged)
    assert report.is_new
    assert (await store.state(report.session)).info.parent is None


@pytest.mark.parametrize("program", HANDED)
async def test_erasure_certificate_lists_copies_continued_in_other_programs(
    program: Program,
) -> None:
    store = await edited()
    content = continued_there(await written(store, program), program)
    copied = (await imported(store, content)).session
    erasing = EraseRequest(id="e", scope="session", by="me", at=START_MS, name=SESSION)
    with pytest.raises(SessionHasForks) as caught:
        await store.retention.erase(erasing)
    assert caught.value.forks == (copied,)
    done = await store.retention.erase(msgspec.structs.replace(erasing, forks="keep"))
    assert copied in [each.session for each in done.copies if each.kind == "fork"]


@pytest.mark.parametrize("program", HANDED)
async def test_file_of_erased_session_is_imported_only_on_second_attempt(program: Program) -> None:
    store = await edited()
    content = await written(store, program)
    erasing = EraseRequest(id="e", scope="session", by="me", at=START_MS, name=SESSION)
    await store.retention.erase(erasing)
    report = await imported(store, content)
    assert (report.session, report.is_erased) == (SESSION, True)
    assert not await store.sessions(limit=None, scope="all")
    again = await import_source(
        store, content, clock=ManualClock(), random=SeededRandom(2), again=True
    )
    assert again.is_new
    assert (await store.state(again.session)).info.parent is None
