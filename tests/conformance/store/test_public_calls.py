"""Calls of `Store` and `Session` that read and name entries or add notes, on every backend."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from perdure import AppendOptions, Note, assistant, body_of, content, media, user
from perdure.client.clock import Outside
from perdure.client.store import Store
from perdure.errors import (
    AmbiguousId,
    ContentNotFound,
    EntryNotFound,
    Erased,
    HeadConflict,
    PathExists,
    Unsupported,
    WrongArgument,
)
from perdure.session.info import SessionInfo
from perdure.session.kinds import Custom, raw_data
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.sources import pi_file


@pytest.fixture
def opened(store: SessionStore, clock: ManualClock) -> Store:
    return Store(store, Outside(clock, SeededRandom(1)))


async def test_entries_are_selected_by_kind_direction_and_limit(opened: Store) -> None:
    session = await opened.create(id="s")
    for number in range(4):
        entry = await session.append(user(str(number)))
        await session.label(entry, f"l{number}")

    async def seqs(after: int = -1, **how: object) -> list[int]:
        return [entry.seq async for entry in session.entries(after, **how)]  # pyright: ignore[reportArgumentType] - one helper for all options

    assert await seqs() == list(range(8))
    assert await seqs(newest_first=True) == list(range(7, -1, -1))
    assert await seqs(kind="message") == [0, 2, 4, 6]
    assert await seqs(kind="label", newest_first=True, limit=2) == [7, 5]
    assert await seqs(3, newest_first=True, kind="message") == [2, 0]
    assert await seqs(4, newest_first=True, limit=2) == [3, 2]
    assert await seqs(0, newest_first=True) == []
    assert await seqs(100, newest_first=True, limit=1) == [7]
    assert await seqs(3, kind="label", limit=1) == [5]
    assert await seqs(limit=0) == []
    assert await seqs(kind="no_such_kind") == []
    assert await seqs(kind="\ud800") == []
    assert await seqs(100) == []


async def test_more_entries_than_a_page_are_read_in_both_directions(opened: Store) -> None:
    session = await opened.create()
    await session.append_many([user(str(number)) for number in range(1103)])
    forward = [entry.seq async for entry in session.entries(kind="message")]
    backward = [entry.seq async for entry in session.entries(newest_first=True, limit=1100)]
    assert forward == list(range(1103))
    assert backward == list(range(1102, 2, -1))
    older = [entry.seq async for entry in session.entries(1050, newest_first=True)]
    assert older == list(range(1049, -1, -1))


async def test_path_with_limit_and_kind_returns_newest_entries(opened: Store) -> None:
    session = await opened.create()
    first = await session.append(user("1"))
    await session.append(Custom("state", {"a": 1}))
    last = await session.append(assistant("2"))
    messages = await session.path(kind="message")
    assert [entry.id for entry in messages] == [first.id, last.id]
    assert [entry.id for entry in await session.path(last=1)] == [last.id]
    assert [entry.kind for entry in await session.path(first, last=5)] == ["message"]
    with pytest.raises(WrongArgument):
        await session.path(last=-1)


async def test_entry_is_found_by_alias_in_session_and_store(opened: Store) -> None:
    session = await opened.create(id="a")
    first, second = await session.append_many([user("1"), user("2")], aliases=["run7/3", None])
    assert (await session.entry("run7/3")).id == first.id
    assert (await session.entry(second.id)).id == second.id
    assert (await opened.entry("run7/3")).id == first.id
    assert (await opened.entry(second.id)).id == second.id

    other = await opened.create(id="b")
    await other.append_many([user("x")], aliases=["run7/3"])
    with pytest.raises(AmbiguousId):
        await opened.entry("run7/3")
    for missing in ("nowhere", "a/99", "no/0", ""):
        with pytest.raises(EntryNotFound):
            await opened.entry(missing)
        with pytest.raises(EntryNotFound):
            await session.entry(missing)


async def test_newer_entry_takes_over_alias(opened: Store) -> None:
    session = await opened.create()
    await session.append_many([user("1")], aliases=["here"])
    (newer,) = await session.append_many([user("2")], aliases=["here"])
    assert (await session.entry("here")).id == newer.id
    assert (await opened.entry("here")).id == newer.id
    with pytest.raises(WrongArgument, match="two items have the same alias"):
        await session.append_many([user("3"), user("4")], aliases=["there", "there"])


async def test_sessions_can_use_the_same_alias_for_different_entries(opened: Store) -> None:
    sessions = [await opened.create() for _ in range(2)]
    made = [await each.append_many([user("1")], aliases=["here"]) for each in sessions]
    for session, (entry,) in zip(sessions, made, strict=True):
        assert (await session.entry("here")).id == entry.id


async def test_invalid_aliases_are_rejected(opened: Store) -> None:
    session = await opened.create()
    for aliases in (["a"], ["a", "a"], ["a", ""], ["a", "\ud800"]):
        with pytest.raises(WrongArgument):
            await session.append_many([user("1"), user("2")], aliases=aliases)
    assert session.head == -1


async def test_notes_can_be_listed_by_type_or_by_entry(opened: Store) -> None:
    session = await opened.create()
    said = await session.append(user("hello"))
    about = await session.note(Note("my.rating", {"stars": 5}), about=said)
    await session.note(Note("my.run", {"id": "r1"}))
    _, beside = await session.append_many([user("again"), Note("my.rating", {"stars": 1})])

    assert (about.lane, about.about, session.leaf) == ("side", said.id, beside.about)
    listed = [entry async for entry in session.notes("my.rating")]
    assert [entry.id for entry in listed] == [about.id, beside.id]
    assert [entry.id async for entry in session.notes(about=said)] == [about.id]
    assert len([entry async for entry in session.notes()]) == 3
    assert body_of(listed[0]) == Note("my.rating", {"stars": 5})
    assert [message.text for message in await session.messages()] == ["hello", "again"]
    with pytest.raises(EntryNotFound):
        await session.note(Note("x"), about="nowhere/1")


async def test_content_of_an_entry_can_be_read_by_handle(
    opened: Store,
) -> None:
    session = await opened.create()
    archive = content(b"PK\x03\x04", media_type="application/zip")
    with pytest.raises(EntryNotFound):
        await opened.content(archive)
    entry = await session.append(Custom("upload", {"file": archive}))
    await session.note(Note("my.file", {"file": content(b"of a note")}), about=entry)
    body = body_of(entry)
    assert isinstance(body, Custom)
    assert cast("Any", body.data)["file"]["handle"] == archive.handle
    assert await opened.content(archive) == b"PK\x03\x04"
    assert await opened.content(archive.handle) == b"PK\x03\x04"
    assert await opened.content(content(b"of a note")) == b"of a note"
    for wrong in ("", "media://sha256-12", archive.handle.removeprefix("media://")):
        with pytest.raises(WrongArgument):
            await opened.content(wrong)
    with pytest.raises(WrongArgument):
        user("look", archive)


async def test_open_or_create_opens_an_existing_session_unchanged(opened: Store) -> None:
    made = await opened.open_or_create("user-12", title="Ana", metadata={"k": 1}, subject="ana")
    await made.append(user("hello"))
    again = await opened.open_or_create("user-12", title="other", subject="bo")
    assert (again.title, again.subject, again.metadata) == ("Ana", "ana", {"k": 1})
    assert again.head == 0
    await again.erase()
    with pytest.raises(Erased):
        await opened.open_or_create("user-12")


async def test_fork_can_have_different_metadata_and_subject(opened: Store) -> None:
    session = await opened.create(subject="ana", metadata={"k": 1})
    first, second = await session.append_many([user("1"), assistant("2")])
    fork = await session.fork(metadata={"z": 1}, subject="bo")
    heir = await session.fork(at=first)
    assert (fork.subject, fork.metadata) == ("bo", {"z": 1})
    assert (heir.subject, heir.metadata) == ("ana", {})
    if opened.capabilities.pointer_fork:
        assert fork.entry_ids == {}
        return
    ids = fork.entry_ids
    assert set(ids) == {first.id, second.id}
    assert (await fork.entry(ids[second.id])).message == second.message
    assert set(heir.entry_ids) == {first.id}


async def test_repeated_append_is_reported_as_a_replay(
    opened: Store,
) -> None:
    session = await opened.create()
    first = await session.append_many([user("1")], idempotency_key="k")
    again = await session.append_many([user("1")], idempotency_key="k")
    assert (first.is_replay, again.is_replay, again == first) == (False, True, True)


async def test_exported_store_is_imported_whole(
    opened: Store, tmp_path: Path, clock: ManualClock
) -> None:
    one = await opened.create(id="one", title="One", subject="ana")
    await one.append(user("the password=hunter2-hunter2 is here"))
    await one.append(assistant("hi"))
    await one.note(Note("my.note", {"a": 1}))
    two = await one.fork(id="two")
    await two.append(user("only in two"))
    folder = tmp_path / "out"

    files = await opened.export("perdure", folder)
    assert {file.session for file in files} == {"one", "two"}
    assert all(file.error is None and file.path is not None for file in files)
    assert not [
        error for file in await opened.export("perdure", folder) if not (error := file.error)
    ]

    from_files = Store(
        MemoryStore(clock=clock, random=SeededRandom(3)), Outside(clock, SeededRandom(2))
    )
    report = await from_files.import_files([folder])
    assert report.is_ok
    assert set(report.sessions) == {"one", "two"}
    for session in (one, two):
        copy = await from_files.open(session.id)
        assert await copy.messages() == await session.messages()
        assert copy.title == session.title
    assert (await from_files.import_files([folder])).entries == 0


async def test_exported_file_contains_no_redacted_secret(opened: Store, tmp_path: Path) -> None:
    draft = await opened.create(lazy=True)
    await draft.append(user("my key is sk-ant-api03-" + "a" * 40))
    file = tmp_path / "out.html"
    exported = await draft.export("html", file, redact=["secrets"])
    assert exported.redacted
    assert file.read_bytes() == exported.content
    assert b"sk-ant-api03-aaaa" not in exported.content
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(PathExists):
        await draft.export("html", file)
    await draft.export("markdown", file, replace=True)
    assert (await draft.export("perdure")).content
    with pytest.raises(WrongArgument):
        await draft.export("html", tmp_path)


async def test_import_reports_each_file_that_fails(opened: Store, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b"\x00nonsense")
    report = await opened.import_files([tmp_path / "bad.jsonl", tmp_path / "missing.jsonl"])
    assert (report.is_ok, len(report.errors), report.sessions) == (False, 2, ())
    with pytest.raises(WrongArgument):
        await opened.import_files(str(tmp_path))


async def test_commit_to_several_sessions_is_atomic(opened: Store) -> None:
    one, two = await opened.create(id="one"), await opened.create(id="two")
    writes = [
        (one, [user("1"), Note("my.x")], AppendOptions(aliases=["first", None])),
        (two, [Custom("file", content(b"beside"))], AppendOptions(expected_head=-1)),
    ]
    if not opened.capabilities.multi_stream_commit:
        with pytest.raises(Unsupported, match="multi stream commit"):
            await opened.commit(writes)
        alone = await opened.commit(writes[:1], idempotency_key="k")
        assert (one.head, len(alone), two.head) == (1, 1, -1)
        return
    made = await opened.commit(writes, idempotency_key="k")
    again = await opened.commit(writes, idempotency_key="k")
    assert (made.is_replay, again.is_replay, again == made) == (False, True, True)
    assert [[entry.id for entry in each] for each in made] == [["one/0", "one/1"], ["two/0"]]
    assert (one.head, two.head, (await one.entry("first")).id) == (1, 0, "one/0")
    assert await opened.content(content(b"beside")) == b"beside"

    with pytest.raises(HeadConflict):
        await opened.commit([(one, [user("2")], {}), (two, [user("2")], {"expected_head": 7})])
    draft = await opened.create(lazy=True)
    await opened.commit([(draft, [user("3")], {}), (two, [user("3")], {})])
    assert ((await opened.open("one")).head, (await opened.open("two")).head) == (1, 1)
    assert (await opened.open(draft.id)).head == 0
    wrong: list[Any] = [[], [(one, [user("x")], {"expected": 1})]]
    for writes in wrong:
        with pytest.raises(WrongArgument):
            await opened.commit(writes)


RAW = b'{"1":2,"1":123456789012345678901234567890,"u":"data:image/png;base64,aaaa","s":[1.50]}'


async def test_raw_json_is_stored_byte_for_byte(opened: Store) -> None:
    session = await opened.create()
    entry = await session.append(Custom("state", raw_json=RAW))
    lines = await session.append(Custom("state", raw_json=b'{"a":\n 1}'))
    found = await session.entry(entry.id)
    assert raw_data(found.body) == RAW
    assert raw_data((await session.entry(lines.id)).body) == b'{"a":\n 1}'
    assert (await opened.verify()).is_ok


CHANGED_BY_JSON: list[Any] = [
    {1: 2},
    {"a": {(1, 2): 3}},
    {"at": datetime(2026, 1, 1, tzinfo=UTC)},
    {1, 2},
    2**70,
    float("nan"),
    "\ud800",
    {"k": "\ud800"},
    b"bytes",
    "data:image/png;base64,aaaa",
    object(),
]
NO_JSON = [b"{", b'"\\ud800"', b"1e400", b"NaN", b"\xff", b""]


async def test_data_changed_by_a_json_round_trip_is_rejected(opened: Store) -> None:
    session = await opened.create()
    for data in CHANGED_BY_JSON:
        for item in (Custom("k", data), Note("k", {"v": data}), user("x", foreign={"v": data})):
            with pytest.raises(WrongArgument):
                await session.append(item)
    for raw in NO_JSON:
        with pytest.raises(WrongArgument):
            Custom("k", raw_json=raw)
    with pytest.raises(WrongArgument):
        Custom("k", 1, raw_json=b"1")
    with pytest.raises(WrongArgument):
        await session.append(user("x", said_at=2**70))
    assert session.head == -1


async def test_message_keeps_author_time_and_original_format(opened: Store) -> None:
    session = await opened.create()
    at = datetime(2026, 1, 2, tzinfo=UTC)
    foreign: dict[str, object] = {"format": "openai", "item": {"key": "sk-ant-api03-" + "b" * 40}}
    await session.append(user("hello", author="Ana", said_at=at, foreign=foreign))
    await session.append(user("see", media(b"\x89PNG\r\n\x1a\nxx"), author="Bo"))
    await session.append(assistant("hi", author="helper", foreign={"id": "m1"}))
    said = await session.messages()
    assert [message.author for message in said] == ["Ana", "Bo", "helper"]
    assert (said[0].said_at, said[0].foreign) == (1_767_312_000_000, foreign)
    exported = await session.export("perdure", redact=["secrets"])
    assert b"sk-ant-api03-bbbb" not in exported.content


async def test_recent_sessions_are_filtered_and_read_by_pages(
    opened: Store, clock: ManualClock, tmp_path: Path
) -> None:
    for number in range(7):
        session = await opened.create(
            id=f"lg:{number}" if number % 2 else f"x{number}", metadata={"n": number % 3}
        )
        await session.append(user("hello"))
        if number > 4:
            await session.end()
        clock.advance(float(number != 3))  # two of the same time
    (tmp_path / "pi.jsonl").write_bytes(pi_file("v3.jsonl"))
    report = await opened.import_files([tmp_path / "pi.jsonl"])
    everything = [str(info.id) for info in await opened.recent(None)]
    assert len(everything) == 8

    pages: list[str] = []
    after: SessionInfo | str | None = None
    while page := await opened.recent(3, after=after):
        pages += [info.id for info in page]
        after = page[-1] if len(pages) < 4 else page[-1].cursor
    assert pages == everything

    async def ids(**how: Any) -> list[str]:
        return [info.id for info in await opened.recent(None, **how)]

    assert await ids(id_prefix="lg:") == ["lg:5", "lg:3", "lg:1"]
    assert await ids(id_prefix="lg:", status="active") == ["lg:3", "lg:1"]
    assert await ids(status="ended") == ["x6", "lg:5"]
    assert await ids(source="pi") == list(report.sessions)
    assert await ids(source="codex") == []
    assert await ids(metadata={"n": 0}, id_prefix="x") == ["x6", "x0"]
    rest = everything[everything.index("lg:5") + 1 :]
    cursor = (await opened.recent(None, id_prefix="lg:"))[0]
    assert await ids(after=cursor) == rest
    for wrong in ("", "x", "1", "1:", ":a", f"{'9' * 30}:a"):
        with pytest.raises(WrongArgument):
            await opened.recent(after=wrong)


async def test_missing_content_raises_content_not_found(opened: Store) -> None:
    handle = f"media://sha256-{'0' * 64}"
    with pytest.raises(ContentNotFound, match=f"no content {handle} in namespace") as caught:
        await opened.content(handle)
    assert "Session.tree" not in str(caught.value)
