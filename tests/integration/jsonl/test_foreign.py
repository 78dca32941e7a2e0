"""Files of another program are read by that program's rules, extended, and never rewritten."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import InvalidParent, SessionNotFound, Unsupported
from perdure.session.codec import new_tree
from perdure.session.entries import Entry
from perdure.session.fold import labels_of
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import Custom
from perdure.session.messages import MediaPart, TextPart, assistant, user
from perdure.stores.jsonl.store import DialectName, JsonlStore
from tests.conformance.store.building import append, fork, ids, said, texts
from tests.fakes.session_files import context_of, file_of
from tests.fakes.session_tools import Operator, tool
from tests.integration.jsonl.conftest import Opener, opened

S = StreamId("0197-abc")
NAME = "2024-01-15T10-30-00-000000_0197-abc.jsonl"
PICTURE = b"\x89PNG picture"

Record = dict[str, Any]


def message(role: str, text: str, **more: Any) -> Record:
    return {
        "contents": [{"type": "text", "content": text}],
        "id": f"m-{text}",
        "timestamp": 1705314600.2,
        "role": role,
        **more,
    }


def operator_entry(id: str, parent: str | None, type: str, **fields: Any) -> Record:
    place = {"id": id, "timestamp": 1705314601.25}
    return place | ({} if parent is None else {"parent_id": parent}) | {"type": type, **fields}


OPERATOR = [
    {"type": "session", "version": 3, "id": S, "timestamp": 1705314600.0, "cwd": "/my/project"},
    operator_entry("a1", None, "message", message=message("user", "first")),
    operator_entry(
        "a2", "a1", "message", message=message("assistant", "second", stop_reason="stop")
    ),
    operator_entry(
        "a3", "a2", "compaction", summary="gist", first_kept_entry_id="a2", tokens_before=9
    ),
    operator_entry("a4", "a3", "message", message=message("user", "after")),
    operator_entry("l1", "a4", "label", label="here", target_id="a1"),
    operator_entry("a5", "l1", "channel", name="telegram", chat_id="7"),
    operator_entry(
        "a6", "a5", "message", message=message("assistant", "below", stop_reason="stop")
    ),
    operator_entry("a7", "a6", "leaf", target_id="a2"),
]


def pi_entry(id: str, parent: str | None, type: str, **fields: Any) -> Record:
    at = "2024-01-15T10:30:01.250Z"
    return {"type": type, "id": id, "parentId": parent, "timestamp": at, **fields}


def pi_message(role: str, content: Any, **more: Any) -> Record:
    return {"role": role, "content": content, "timestamp": 1705314601250, **more}


PI = [
    {
        "type": "session",
        "version": 3,
        "id": S,
        "timestamp": "2024-01-15T10:30:00.000Z",
        "cwd": "/my/project",
    },
    pi_entry("a1", None, "message", message=pi_message("user", "first")),
    pi_entry(
        "a2",
        "a1",
        "message",
        message=pi_message(
            "assistant",
            [{"type": "text", "text": "second"}],
            provider="openai",
            model="gpt",
            stopReason="stop",
        ),
    ),
    pi_entry("a3", "a2", "compaction", summary="gist", firstKeptEntryId="a2", tokensBefore=9),
    pi_entry("a4", "a3", "message", message=pi_message("user", "after")),
    pi_entry("l1", "a4", "label", targetId="a1", label="here"),
    pi_entry("n1", "l1", "session_info", name="Trip"),
    pi_entry("u1", "n1", "of_the_future", x=[1, None]),
    pi_entry(
        "a6",
        "u1",
        "message",
        message=pi_message("bashExecution", None, command="ls", output="x", exitCode=0),
    ),
    pi_entry("l2", "a4", "label", targetId="a2", label="there"),
]

FILES: dict[str, list[Record]] = {"operator": OPERATOR, "pi": PI}


def written(folder: Path, records: list[Record] | bytes, name: str = NAME) -> Path:
    """Write a session file of another program to `folder`; return its path."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    if not isinstance(records, bytes):
        lines = (json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in records)
        records = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(records)
    return path


def content(path: Path) -> bytes:
    return path.read_bytes()


def extend(path: Path, added: bytes) -> None:
    with path.open("ab") as file:
        file.write(added)


async def test_session_file_of_another_program_is_read_and_unchanged(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    path = written(folder, FILES[dialect])
    before = content(path)

    (info,) = await store.sessions()
    context = await context_of(store, S)

    assert (info.id, info.cwd, info.created_at) == (S, "/my/project", 1705314600000)
    assert info.first_text == "first"
    assert context == [p for p in tool(dialect, path).context() if p[1] is not None]
    assert content(path) == before
    assert (await store.maintenance.verify()).problems == ()


async def test_operator_file_is_read_with_the_rules_of_operator(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, OPERATOR)
    async with opened(tmp_path, "operator") as store:
        tree = await store.tree(S)
        state = await store.state(S)
        aliases = await store.aliases(S)

        assert state.leaf == aliases["a2"]
        assert texts(tree) == ["first", "second", "after", "below"]
        assert labels_of(await store.notes(S, ["label"])) == {aliases["a1"]: "here"}
        below = await store.entry(S, await store.resolve(S, "a6"))
        channel = await store.entry(S, below.parent_id or EntryId(""))
        # The label's child gets the label's parent.
        assert channel.parent_id == aliases["a4"]
        assert b"operator:channel" in channel.body
        assert b"telegram" in channel.body
        assert await context_of(store, S) == Operator(path).context()


async def test_pi_file_is_read_with_the_rules_of_pi(
    tmp_path: Path,
) -> None:
    written(tmp_path, PI)
    async with opened(tmp_path, "pi") as store:
        state = await store.state(S)
        aliases = await store.aliases(S)

        # pi continues from its last record; the label's parent is a4, so that is the leaf.
        assert state.leaf == aliases["a4"]
        assert [e.kind for e in await store.notes(S, ["leaf"])] == ["leaf"]
        assert (state.info.title, state.info.messages) == ("Trip", 3)
        unknown = await store.entry(S, aliases["u1"])
        assert (unknown.kind, unknown.lane) == ("custom", "tree")
        assert b'"custom_type":"pi:of_the_future","data":{"x":[1,null]}' in unknown.body
        bash = await store.entry(S, aliases["a6"])
        assert (bash.kind, bash.parent_id) == ("custom_message", unknown.id)
        window = await store.context_window(S, aliases["a6"])
        assert (window.hidden, texts(list(window.entries))) == (1, ["second", "after"])


async def test_other_program_and_perdure_append_alternately_to_one_file(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    path = written(folder, FILES[dialect])
    before = content(path)
    leaf = (await store.state(S)).leaf

    (ours,) = await append(store, S, said("ours"))
    after_ours = tool(dialect, path)
    assert after_ours.context() == await context_of(store, S)
    after_ours.say("assistant", "theirs")
    (again,) = await append(store, S, said("ours again"), expected_head=ours.seq + 1)

    assert ours.parent_id == leaf
    assert texts(await store.branch(S, again.id))[-3:] == ["ours", "theirs", "ours again"]
    assert content(path).startswith(before)
    assert tool(dialect, path).context() == await context_of(store, S)
    assert (await store.maintenance.verify()).problems == ()


async def test_changed_line_of_another_program_is_detected_after_an_append(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    path = written(folder, FILES[dialect])
    await append(store, S, said("ours"))
    changed = content(path).replace(b'"first"', b'"frist"', 1)
    path.unlink()
    written(folder, changed)

    (problem,) = (await store.maintenance.verify()).problems

    assert problem.stream == S
    assert problem.seq == 0
    assert "altered" in problem.problem


async def test_invalid_text_is_repaired_in_the_entry_but_not_in_the_file(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    records = FILES[dialect][:3]
    whole = b"".join(json.dumps(each).encode() + b"\n" for each in records)
    odd = whole.replace(b'"second"', b'"sec\\ud800ond \xff"').replace(b'"first"', b'"fir\\u2028st"')
    path = written(folder, odd)

    assert texts(await store.tree(S)) == ["fir\u2028st", "sec\ufffdond \ufffd"]
    await append(store, S, said("on"))
    assert content(path).startswith(odd)
    assert (await store.maintenance.verify()).problems == ()


async def test_invalid_lines_are_skipped_reported_and_kept(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    lines = [json.dumps(each).encode() for each in FILES[dialect][:3]]
    odd = b"\n".join([lines[0], b"", b"{broken", lines[1], b"[1]", b'"text"', b"  ", lines[2], b""])
    path = written(folder, odd)

    assert texts(await store.tree(S)) == ["first", "second"]
    problems = (await store.maintenance.verify()).problems
    assert len([p for p in problems if "is no record" in p.problem]) == 3
    await append(store, S, said("on"))
    assert content(path).startswith(odd)
    assert texts(await store.branch(S, (await store.state(S)).leaf)) == ["first", "second", "on"]


async def test_record_with_an_empty_id_can_be_found_by_the_empty_id(tmp_path: Path) -> None:
    named = operator_entry("", None, "message", message=message("user", "nameless"))
    other = operator_entry("a2", "", "message", message=message("user", "named"))
    written(tmp_path, [OPERATOR[0], named, other])

    async with opened(tmp_path, "operator") as store:
        assert await store.aliases(S) == {"": f"{S}/0", "a2": f"{S}/1"}
        assert await store.find_entry(S, "") == await store.resolve(S, "") == f"{S}/0"


async def test_next_append_starts_a_new_line_after_an_unfinished_line(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    lines = [json.dumps(each).encode() for each in FILES[dialect][:3]]
    odd = b"\n".join(lines)[:-10]
    path = written(folder, odd)
    assert texts(await store.tree(S)) == ["first"]

    await append(store, S, said("on"))

    assert content(path).startswith(odd + b"\n{")
    assert texts(await store.tree(S)) == ["first", "on"]
    assert tool(dialect, path).context() == await context_of(store, S)
    assert (await store.maintenance.verify()).problems == ()


async def test_append_completes_a_last_line_without_lf(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    lines = [json.dumps(each).encode() for each in FILES[dialect][:3]]
    path = written(folder, b"\n".join(lines))
    assert texts(await store.tree(S)) == ["first", "second"]

    await append(store, S, said("on"))

    assert content(path).startswith(b"\n".join(lines) + b"\n{")
    assert texts(await store.branch(S, (await store.state(S)).leaf)) == ["first", "second", "on"]


@pytest.mark.parametrize("odd", [b"", b"\n", b"{}\n", b"hello\n", b'{"type":"message","id":"a"}\n'])
async def test_file_without_header_is_ignored_and_unchanged(
    store: JsonlStore, folder: Path, odd: bytes
) -> None:
    path = written(folder, odd)

    assert await store.sessions(scope="all") == []
    with pytest.raises(SessionNotFound):
        await store.state(S)
    assert [p.problem for p in (await store.maintenance.verify()).problems] == [
        f"{NAME} does not begin as a session file does"
    ]
    assert content(path) == odd


async def test_session_is_found_under_any_file_name(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    path = written(folder, FILES[dialect], "renamed.jsonl")

    assert await store.find("0197") == S
    await append(store, S, said("on"))

    assert tool(dialect, path).context()[-1] == ("user", "on")


async def test_rewrite_by_another_program_keeps_the_conversation_without_perdure_data(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, "operator") as store:
        written(tmp_path, OPERATOR)
        await append(store, S, said("ours"), new_tree(assistant("answer", model="openai:x")))
        lease = await store.acquire_lease(S, "me", 1000)
        await store.release_lease(lease)
        context = await context_of(store, S)
        agent = Operator(file_of(tmp_path, S))

        agent.rewrite()

        assert await context_of(store, S) == context
        await append(store, S, said("on"))
        assert Operator(file_of(tmp_path, S)).context() == [*context, ("user", "on")]
        assert (await store.maintenance.verify()).problems == ()


async def test_line_added_by_another_program_during_an_append_gets_the_next_seq(
    store: JsonlStore, open_store: Opener, folder: Path, dialect: DialectName
) -> None:
    """The program appends after perdure has read the file and before perdure writes to it."""
    path = written(folder, FILES[dialect][:3])
    await append(store, S, said("ours"))
    *before, ours = content(path).splitlines(keepends=True)
    agent = tool(dialect, written(folder, b"".join(before)))
    agent.say("user", "theirs")
    extend(path, ours)

    other = await open_store()
    entries = await other.entries(S)

    assert texts(entries) == ["first", "second", "ours", "theirs"]
    assert [entry.seq for entry in entries] == [0, 1, 2, 3]
    assert entries[3].parent_id == entries[1].id
    assert (await other.maintenance.verify()).problems == ()
    (last,) = await append(other, S, said("on"))
    assert last.seq == 4


def with_picture(dialect: DialectName) -> list[Record]:
    """Return a session with a message that contains PICTURE."""
    data = base64.b64encode(PICTURE).decode()
    if dialect == "operator":
        parts = [{"type": "image", "images": [f"data:image/png;base64,{data}", "https://x/y.png"]}]
        said = message("user", "") | {"contents": parts}
        return [OPERATOR[0], operator_entry("a1", None, "message", message=said)]
    parts = [{"type": "image", "data": data, "mimeType": "image/png"}]
    return [PI[0], pi_entry("a1", None, "message", message=pi_message("user", parts))]


async def test_fork_keeps_the_pictures_of_a_session_of_another_program(
    folder: Path, dialect: DialectName
) -> None:
    path = written(folder, with_picture(dialect))
    async with opened(folder, dialect) as store:
        await fork(store, S, "f", said("on"))
    assert base64.b64encode(PICTURE) in content(file_of(folder, "f"))
    path.unlink()
    async with opened(folder, dialect) as store:
        assert (await store.maintenance.verify()).problems == ()
        entry, _ = await store.tree(StreamId("f"))
        assert entry.message is not None
        part = entry.message.parts[0]
        assert isinstance(part, MediaPart)
        assert await store.blob(part.handle.removeprefix("media://")) == PICTURE


async def test_image_in_a_line_of_another_program_can_be_read_as_content(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    written(folder, with_picture(dialect))

    (entry,) = await store.entries(S)

    assert entry.message is not None
    part = entry.message.parts[0]
    assert isinstance(part, MediaPart)
    assert (part.mime_type, part.byte_length) == ("image/png", len(PICTURE))
    assert await store.blob(part.handle.removeprefix("media://")) == PICTURE


async def test_files_of_older_versions_are_read_and_not_appended_to(tmp_path: Path) -> None:
    """pi rewrites files of older versions, with other ids, when it opens them."""
    header = {"type": "session", "id": S, "timestamp": "2024-01-15T10:30:00.000Z", "cwd": "/p"}
    at = "2024-01-15T10:30:01.000Z"
    lines = [
        {"type": "message", "timestamp": at, "message": pi_message("user", "one")},
        {"type": "message", "timestamp": at, "message": pi_message("user", "two")},
    ]
    path = written(tmp_path, [header, *lines])
    before = content(path)
    async with opened(tmp_path, "pi") as store:
        tree = await store.tree(S)

        assert texts(await store.branch(S, tree[-1].id)) == ["one", "two"]
        with pytest.raises(Unsupported):
            await append(store, S, said("x"))
        assert content(path) == before
        await fork(store, S, "f", said("on"))
        assert texts(await store.tree(StreamId("f"))) == ["one", "two", "on"]


async def test_session_forked_by_another_program_is_a_separate_session(tmp_path: Path) -> None:
    """When pi forks a session, it copies all records, including the keys of perdure."""
    async with opened(tmp_path, "pi") as store:
        written(tmp_path, PI[:3])
        await append(store, S, said("ours"), said("more"))
        copied = content(file_of(tmp_path, S)).splitlines(keepends=True)[1:]
        header = json.dumps({**PI[0], "id": "forked"}).encode() + b"\n"
        written(tmp_path, header + b"".join(copied), "2024-01-16T10-30-00-000Z_forked.jsonl")

        forked = await store.tree(StreamId("forked"))

        assert texts(forked) == ["first", "second", "ours", "more"]
        assert ids(forked)[0] == "forked/0"
        await append(store, StreamId("forked"), said("on"))
        with pytest.raises(InvalidParent):
            await append(store, StreamId("forked"), said("x", forked_from(forked)))
        assert (await store.maintenance.verify()).problems == ()


def forked_from(entries: list[Entry]) -> EntryId:
    return EntryId(f"{S}/{entries[0].seq}")


async def test_append_of_another_program_wakes_watchers(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    path = written(folder, FILES[dialect][:3])
    position = await store.position()
    changes = store.changes()
    await anext(changes)

    tool(dialect, path).say("user", "new")
    await anext(changes)

    (item,) = await store.feed(position)
    assert (position, item.position) == (2, 3)
    assert texts([item.entry]) == ["new"]
    assert item.entry.message == user("new")


async def test_custom_records_keep_their_data(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    path = written(folder, FILES[dialect][:2])
    await append(store, S, new_tree(Custom("state", {"n": 1e-7, "list": [1.0, None]})))

    record = json.loads(content(path).splitlines()[-1])

    assert record["data"] == {"n": 1e-7, "list": [1.0, None]}
    assert isinstance(user("x").parts[0], TextPart)
