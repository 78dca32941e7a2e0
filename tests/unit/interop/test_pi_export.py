from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from perdure.codecs.lines import LEVELS, lines_of
from perdure.codecs.pi.words import LEAF_MARKER
from perdure.interop.formats.pi.reader import parse
from perdure.interop.pi_export import export_pi
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.kinds import Compaction, Custom
from perdure.session.messages import (
    Message,
    TextPart,
    ToolResultPart,
    UnknownPart,
    assistant,
    system,
    tool_call,
    user,
)
from perdure.session.notes import (
    CompactionUndone,
    Label,
    LeafMoved,
    SessionEnded,
    SessionInfoChanged,
)
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import START_MS
from tests.fakes.sources import (
    CLAUDE_CODE,
    PI,
    claude_file,
    empty_store,
    imported,
    path_of,
    pi_file,
    spoilt,
    texts_on,
)
from tests.fakes.streams import append, create, say

S = StreamId("s")
FILES = [pi_file(name) for name in PI]


def records(content: bytes) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line.content, type=dict[str, Any]) for line in lines_of(content)]


async def exported(store: MemoryStore, stream: StreamId = S) -> bytes:
    return (await export_pi(store, stream)).content


async def branch(store: MemoryStore, stream: StreamId) -> list[str]:
    path = await store.branch(stream, (await store.state(stream)).leaf)
    return [entry.message.text for entry in path if entry.message is not None]


# -- unchanged import


@pytest.mark.parametrize("name", PI)
async def test_unchanged_pi_import_is_exported_with_original_bytes(name: str) -> None:
    for content in (pi_file(name), pi_file(name).removesuffix(b"\n"), pi_file(name) + b"\n\n"):
        store = empty_store()
        stream = (await imported(store, content)).session
        assert await exported(store, stream) == content


@given(spoilt(FILES))
async def test_damaged_pi_import_is_exported_with_original_bytes(content: bytes) -> None:
    store = empty_store()
    if parse(content).items:
        stream = (await imported(store, content, format="pi")).session
        assert await exported(store, stream) == content


async def test_entries_outside_the_tree_do_not_change_the_pi_export() -> None:
    store = empty_store()
    stream = (await imported(store, pi_file("v3.jsonl"))).session
    await append(store, new_side(SessionEnded()), stream=stream)
    export = await export_pi(store, stream)
    assert export.content == pi_file("v3.jsonl")
    assert export.warnings == ("not exported: perdure's own entries (session_ended 1)",)


# -- continued import


@pytest.mark.parametrize("name", ["v3.jsonl", "newer.jsonl", "damaged.jsonl"])
async def test_entries_added_in_perdure_follow_the_original_lines(name: str) -> None:
    store = empty_store()
    stream = (await imported(store, pi_file(name))).session
    before = await branch(store, stream)
    await append(store, new_tree(user("More")), new_tree(assistant("Yes.")), stream=stream)
    content = await exported(store, stream)
    assert content.startswith(pi_file(name))
    assert content.count(b"\n") == pi_file(name).count(b"\n") + 2
    assert texts_on(path_of(parse(content))) == [*before, "More", "Yes."]
    told = "the file differs from the imported one: 2 lines added here"
    assert told in (await export_pi(store, stream)).warnings


async def test_final_line_feed_is_added_before_new_records() -> None:
    store = empty_store()
    stream = (await imported(store, pi_file("v3.jsonl").removesuffix(b"\n"))).session
    await say(store, "More", stream=stream)
    assert (await exported(store, stream)).startswith(pi_file("v3.jsonl"))


@pytest.mark.parametrize("name", ["v1.jsonl", "v2.jsonl"])
async def test_old_pi_file_with_additions_is_exported_as_version_3(name: str) -> None:
    store = empty_store()
    stream = (await imported(store, pi_file(name))).session
    before = await branch(store, stream)
    await say(store, "More", stream=stream)
    content = await exported(store, stream)
    header, *entries = records(content)
    assert header["version"] == 3
    assert all(entry["id"] for entry in entries)
    assert len({entry["id"] for entry in entries}) == len(entries)
    assert texts_on(path_of(parse(content))) == [*before, "More"]


async def test_new_ids_differ_from_ids_in_file() -> None:
    store = empty_store()
    stream = (await imported(store, pi_file("v3.jsonl"))).session
    await say(store, *map(str, range(50)), stream=stream)
    ids = [record["id"] for record in records(await exported(store, stream))]
    assert len(set(ids)) == len(ids)


async def test_branch_added_in_perdure_is_exported_with_its_parent() -> None:
    store = empty_store()
    stream = (await imported(store, pi_file("v2.jsonl"))).session
    target = await store.resolve(stream, "a0000002")
    await append(store, new_side(LeafMoved(target)), new_tree(user("Again")), stream=stream)
    last = records(await exported(store, stream))[-1]
    assert (last["parentId"], last["message"]["content"][0]["text"]) == ("a0000002", "Again")


async def test_changed_leaf_is_exported_as_a_marker_record() -> None:
    store = empty_store()
    stream = (await imported(store, pi_file("v3.jsonl"))).session
    target = await store.resolve(stream, "b0000003")
    await append(store, new_side(LeafMoved(target)), stream=stream)
    content = await exported(store, stream)
    last = records(content)[-1]
    assert (last["customType"], last["parentId"]) == (LEAF_MARKER, "b0000003")
    other = empty_store()
    await imported(other, content)
    assert (await other.state(stream)).leaf == await other.resolve(stream, "b0000003")


async def test_labels_and_title_set_in_perdure_are_written_at_the_end() -> None:
    store = empty_store()
    stream = (await imported(store, pi_file("v3.jsonl"))).session
    first = await store.resolve(stream, "b0000003")
    end = await store.resolve(stream, "b0000011")
    await append(
        store,
        new_side(Label("question"), first),
        new_side(Label(None), end),
        new_side(SessionInfoChanged(title="Two pixels")),
        stream=stream,
    )
    content = await exported(store, stream)
    label, cleared, name = records(content)[-3:]
    assert (label["targetId"], label["label"]) == ("b0000003", "question")
    assert cleared["targetId"] == "b0000011"
    assert "label" not in cleared
    assert name["name"] == "Two pixels"
    assert label["parentId"] == "b0000011"
    assert (cleared["parentId"], name["parentId"]) == (label["id"], cleared["id"])
    assert texts_on(path_of(parse(content)))[-1] == "Thanks"


async def test_cleared_title_causes_an_export_warning() -> None:
    store = empty_store()
    stream = (await imported(store, pi_file("v3.jsonl"))).session
    await append(store, new_side(SessionInfoChanged(title=None)), stream=stream)
    assert any("title" in text for text in (await export_pi(store, stream)).warnings)


async def test_reimported_export_is_recognized() -> None:
    store = empty_store()
    for name in PI:
        stream = (await imported(store, pi_file(name))).session
        results = Message("tool", (ToolResultPart("a", "1"), ToolResultPart("b", "2")))
        first = (await store.tree(stream))[0].id
        await append(
            store,
            new_tree(assistant(tool_call("a", "x"), tool_call("b", "x"))),
            new_tree(results),
            new_side(Label("here"), first),
            stream=stream,
        )
        content = await exported(store, stream)
        assert (await imported(store, content)).entries == 0
        assert await exported(store, stream) == content


# -- session not of pi


async def native(store: MemoryStore) -> list[EntryId]:
    header = StreamHeader(S, START_MS, cwd="/home/ana", title="Named at birth")
    said: tuple[NewEntry, ...] = (
        new_tree(user("one")),
        new_tree(assistant("two", tool_call("c", "ls"), model="openai:gpt")),
        new_tree(Message("tool", (ToolResultPart("c", "three", name="ls"),))),
        new_tree(assistant("four")),
    )
    write = Write(stream=S, create=header, entries=said)
    committed = await store.commit(Commit(writes=(write,), at=START_MS))
    return [entry.id for entry in committed.entries[0]]


async def test_session_of_perdure_is_exported_as_a_pi_file_of_version_3() -> None:
    store = empty_store()
    await native(store)
    content = await exported(store)
    header, *entries = records(content)
    assert header == {
        "type": "session",
        "version": 3,
        "id": "s",
        "timestamp": "2023-11-14T22:13:20.000Z",
        "cwd": "/home/ana",
    }
    kinds = [entry["type"] for entry in entries]
    assert kinds == ["message", "message", "message", "message", "session_info"]
    assert texts_on(path_of(parse(content))) == ["one", "two", "three", "four"]
    assert parse(content).warnings == ()


@pytest.mark.parametrize("name", CLAUDE_CODE)
async def test_transcript_is_exported_as_pi_file_with_same_branch(name: str) -> None:
    store, other = empty_store(), empty_store()
    stream = (await imported(store, claude_file(name))).session
    await imported(other, await exported(store, stream))
    assert [text for text in await branch(other, stream) if text] == [
        text for text in await branch(store, stream) if text
    ]
    state, again = await store.state(stream), await other.state(stream)
    assert (again.info.title, again.info.cwd) == (state.info.title, state.info.cwd)


async def test_media_are_included_in_the_pi_export() -> None:
    store, other = empty_store(), empty_store()
    stream = (await imported(store, claude_file("tools.jsonl"))).session
    await imported(other, await exported(store, stream))
    pictures = list(parse(await exported(other, stream)).blobs)
    assert [picture[:4] for picture in pictures] == [b"\x89PNG"]


async def test_empty_session_is_exported_to_pi_as_only_a_header() -> None:
    store = empty_store()
    await create(store)
    assert [record["type"] for record in records(await exported(store))] == ["session"]


async def test_exported_leaf_change_is_not_reported_as_lost() -> None:
    store = empty_store()
    await create(store)
    first = (await append(store, new_tree(user("a"))))[0]
    await append(store, new_tree(assistant("b")))
    await append(store, new_side(LeafMoved(first.id)))
    told = (await export_pi(store, S)).warnings
    assert records(await exported(store))[-1]["customType"] == LEAF_MARKER
    assert not [each for each in told if "branch switch" in each]

    await append(store, new_tree(user("c")))  # nothing says any more that the leaf was moved
    (lost,) = [each for each in (await export_pi(store, S)).warnings if "branch switch" in each]
    assert lost.startswith("not exported: ")
    await append(store, new_side(LeafMoved(first.id)))
    (lost,) = [each for each in (await export_pi(store, S)).warnings if "branch switch" in each]
    assert lost.startswith("not exported: ")


async def test_leaf_before_the_root_is_exported_without_a_parent() -> None:
    store = empty_store()
    await native(store)
    await append(store, new_side(LeafMoved(None)), new_side(SessionInfoChanged(title=None)))
    last = records(await exported(store))[-1]
    assert (last["customType"], last["parentId"]) == (LEAF_MARKER, None)


async def test_header_that_pi_would_ignore_is_reported() -> None:
    for cwd, is_told in (("/short", False), ("/" + "x" * 500, True)):
        store = empty_store()
        header = StreamHeader(S, START_MS, cwd=cwd)
        await store.commit(Commit(writes=(Write(stream=S, create=header),), at=START_MS))
        warnings = " ".join((await export_pi(store, S)).warnings)
        assert ("`pi -c` passes over it" in warnings) == is_told


async def test_data_that_the_pi_format_cannot_express_is_reported() -> None:
    store = empty_store()
    await create(store)
    await append(store, new_tree(system("rules")), new_tree(user("x")))
    unknown = UnknownPart(msgspec.Raw(b'{"type":"new"}'))
    await append(store, new_tree(Message("user", (TextPart("y"), unknown))))
    (compaction,) = await append(store, new_tree(Compaction("sum")))
    await append(store, new_side(CompactionUndone(), compaction.id))
    warnings = " ".join((await export_pi(store, S)).warnings)
    for told in ("message of role system", "unknown type", "undone compaction"):
        assert told in warnings


# -- forks


async def test_fork_of_an_import_keeps_the_records_of_its_origin() -> None:
    store = empty_store()
    origin = (await imported(store, pi_file("v2.jsonl"))).session
    point = await store.resolve(origin, "a0000005")
    head = (await store.state(origin)).head
    header = StreamHeader(S, START_MS, fork=ForkPoint(origin, point, head, "path"))
    await store.commit(Commit(writes=(Write(stream=S, create=header),), at=START_MS))
    await say(store, "More")
    content = await exported(store)
    _, *entries = records(content)
    assert [entry["id"] for entry in entries[:4]] == [
        "a0000001",
        "a0000002",
        "a0000004",
        "a0000005",
    ]
    # In the origin the third hung on a label, which was on no path.
    assert [entry["parentId"] for entry in entries[:4]] == [
        None,
        "a0000001",
        "a0000002",
        "a0000004",
    ]
    assert b'"cost":{"input":0.000009,' in content
    assert texts_on(path_of(parse(content)))[-1] == "More"
    assert any(entry.get("label") == "choice" for entry in entries)


async def test_exported_fork_of_a_version_1_file_keeps_compactions() -> None:
    store = empty_store()
    origin = (await imported(store, pi_file("v1.jsonl"))).session
    state = await store.state(origin)
    header = StreamHeader(S, START_MS, fork=ForkPoint(origin, state.leaf, state.head, "tree"))
    await store.commit(Commit(writes=(Write(stream=S, create=header),), at=START_MS))
    before, after = parse(pi_file("v1.jsonl")), parse(await exported(store))
    assert [item.references for item in after.items] == [item.references for item in before.items]
    assert texts_on(path_of(after)) == texts_on(path_of(before))


async def test_extension_state_becomes_custom_record() -> None:
    store = empty_store()
    await create(store)
    await append(store, new_tree(Custom("todo", {"ratio": 0.000005})))
    assert b'"data":{"ratio":0.000005}' in await exported(store)


def nested(levels: int) -> object:
    value: object = "x"
    for _ in range(levels):
        value = [value]
    return value


async def test_too_deep_value_is_written_as_text_and_reported() -> None:
    store = empty_store()
    await create(store, S)
    await append(store, new_tree(assistant(tool_call("c", "t", {"a": nested(LEVELS)}))))
    made = await export_pi(store, S)
    parsed = parse(made.content)
    assert parsed.malformed == ()
    [item] = parsed.items
    assert isinstance(item.body, Message)
    assert len(item.body.tool_calls) == 1
    assert any("nested too deeply" in warning for warning in made.warnings)


HALF = (
    b'{"message":{"role":"user","content":"half"},"type":"message","id":"h","parentId":"b0000010"}'
)
WHOLE = HALF + b'{"type":"message"\n'


async def test_half_written_line_is_replaced_by_the_complete_line() -> None:
    store, head = empty_store(), pi_file("v3.jsonl")
    stream = (await imported(store, head + HALF)).session
    await imported(store, head + WHOLE)
    made = await export_pi(store, stream)
    assert made.content == head + WHOLE
    assert any("half-written" in warning for warning in made.warnings)


async def test_perdure_entries_after_a_half_written_line_are_exported() -> None:
    store, head = empty_store(), pi_file("v3.jsonl")
    stream = (await imported(store, head + HALF)).session
    await say(store, "ours", stream=stream)
    await imported(store, head + WHOLE)
    made = await exported(store, stream)
    assert made.startswith(head + WHOLE)
    assert texts_on(path_of(parse(made)))[-2:] == ["half", "ours"]


async def test_half_written_id_is_not_reused() -> None:
    store, head = empty_store(), pi_file("v3.jsonl")
    named = b'{"type":"session_info","id":"n","parentId":null,"name":"Half"}'
    stream = (await imported(store, head + named)).session
    await imported(store, head + named + b"}\n")
    assert await exported(store, stream) == head + named + b"}\n"
