"""Damaged files: each fault is reported by session and seq, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import CorruptLog, StoreTooNew, StoreUnavailable
from perdure.session.codec import new_tree
from perdure.session.entries import NewEntry, Sibling
from perdure.session.fold import window_of
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import Compaction
from perdure.stores.jsonl.store import DialectName, JsonlStore
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import append, create, labelled, replied, said, texts
from tests.fakes.session_files import file_of, files_below
from tests.integration.jsonl.conftest import Opener

S = StreamId("s")


async def filled(store: SessionStore, folder: Path) -> Path:
    """Write three commits: s/0; s/1 to s/3; s/4. Each line contains its seq."""
    await create(store, S, said("zero"))
    await append(store, S, said("one"), labelled("two", Sibling(0)), replied("three"))
    await append(store, S, said("four"))
    return file_of(folder, S)


def change(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) >= 1
    path.write_bytes(content.replace(old, new, 1))


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


async def named(store: SessionStore) -> list[tuple[str | None, int | None]]:
    """Return the locations of the reported problems."""
    return [
        (problem.stream, problem.seq) for problem in (await store.maintenance.verify()).problems
    ]


@pytest.mark.parametrize(("text", "seq"), [("zero", 0), ("one", 1), ("three", 3), ("four", 4)])
async def test_verify_reports_the_entry_whose_text_was_changed(
    store: JsonlStore, open_store: Opener, folder: Path, text: str, seq: int
) -> None:
    path = await filled(store, folder)
    change(path, f'"{text}"'.encode(), f'"{text[::-1]}"'.encode())

    other = await open_store()

    assert [(p.stream, p.seq, p.problem) for p in (await other.maintenance.verify()).problems] == [
        ("s", seq, "its body is not what was committed")
    ]


@pytest.mark.parametrize("seq", [1, 2, 3])
async def test_unreadable_line_does_not_change_later_seqs(
    store: JsonlStore, open_store: Opener, folder: Path, seq: int
) -> None:
    path = await filled(store, folder)
    lines = lines_of(path)
    if seq == 3:  # the line that ends its commit
        change(path, b'"batch":{"first":1', b'"batch":["first":1')
    else:
        path.write_bytes(
            b"".join([*lines[: seq + 2], b"#" + lines[seq + 2][1:], *lines[seq + 3 :]])
        )
    other = await open_store()

    problems = await named(other)

    assert ("s", seq) in problems
    entries = await other.entries(S)
    assert [entry.seq for entry in entries] == [0, 1, 2, 3, 4]
    assert entries[seq].kind == "opaque"
    assert texts([entries[4]]) == ["four"]
    assert texts(await other.branch(S, entries[4].id))[0] == "zero"
    assert [each.seq for each in await other.tree(S)] == [n for n in (0, 1, 3, 4) if n != seq]
    before = path.read_bytes()
    with pytest.raises(CorruptLog) as refused:
        await append(other, S, said("five"))
    assert refused.value.stream == "s"
    assert path.read_bytes() == before


async def test_line_removed_from_a_session_file_is_reported(
    store: JsonlStore, open_store: Opener, folder: Path
) -> None:
    path = await filled(store, folder)
    lines = lines_of(path)
    path.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    other = await open_store()

    assert ("s", 1) in await named(other)
    assert [entry.seq for entry in await other.entries(S)] == [0, 1, 2, 3, 4]


async def test_verify_reports_acknowledged_entries_missing_at_the_file_end(
    store: JsonlStore, open_store: Opener, folder: Path
) -> None:
    path = await filled(store, folder)
    path.write_bytes(b"".join(lines_of(path)[:-1]))
    other = await open_store()

    (problem,) = (await other.maintenance.verify()).problems

    assert (problem.stream, problem.seq) == ("s", 4)
    assert "acknowledged" in problem.problem


async def test_verify_reports_an_entry_with_a_changed_parent(
    store: JsonlStore, open_store: Opener, folder: Path
) -> None:
    path = await filled(store, folder)
    change(path, b'"seq":4,"parent":3', b'"seq":4,"parent":1')
    other = await open_store()

    (problem,) = (await other.maintenance.verify()).problems

    assert (problem.stream, problem.seq) == ("s", 4)
    assert "altered" in problem.problem


async def test_duplicated_lines_written_by_perdure_are_reported(
    store: JsonlStore, open_store: Opener, folder: Path
) -> None:
    path = await filled(store, folder)
    lines = lines_of(path)
    path.write_bytes(b"".join([*lines, lines[-1]]))
    other = await open_store()

    assert ("s", 4) in await named(other)
    assert [entry.seq for entry in await other.entries(S)] == [0, 1, 2, 3, 4]


async def test_session_in_two_files_is_reported(
    store: JsonlStore, folder: Path, open_store: Opener
) -> None:
    path = await filled(store, folder)
    path.with_name(f"0-{path.name}").write_bytes(path.read_bytes())
    other = await open_store()

    problems = (await other.maintenance.verify()).problems

    assert [p.stream for p in problems] == ["s"]
    assert "holds the same session as" in problems[0].problem


async def test_file_of_newer_perdure_is_rejected_and_unchanged(
    store: JsonlStore, folder: Path, open_store: Opener
) -> None:
    path = await filled(store, folder)
    change(path, b'"perdure":{"of":"s",', b'"perdure":{"of":"s","format":2,')
    before = path.read_bytes()
    other = await open_store()

    for call in (other.state(S), other.entries(S), append(other, S, said("x"))):
        with pytest.raises(StoreTooNew):
            await call
    assert len((await other.maintenance.verify()).problems) == 1
    assert path.read_bytes() == before


async def test_unreadable_lease_blocks_all_writers(store: JsonlStore, folder: Path) -> None:
    await filled(store, folder)
    await store.acquire_lease(S, "me", 1000)
    (lease,) = files_below(folder / ".perdure" / "leases", "*")
    lease.write_bytes(b"{")

    with pytest.raises(StoreUnavailable, match="not a lease"):
        await store.acquire_lease(S, "you", 1000)
    with pytest.raises(StoreUnavailable):
        await append(store, S, said("x"))


async def test_store_without_its_feed_file_still_returns_all_entries(
    store: JsonlStore, folder: Path, open_store: Opener, dialect: DialectName
) -> None:
    """The session files contain all acknowledged data of a conversation."""
    await filled(store, folder)
    await append(store, S, NewEntry("odd", b"1"), key="k")
    entries = await store.entries(S)
    for path in files_below(folder / ".perdure", "feed"):
        path.unlink()
    other = await open_store()

    assert await other.entries(S) == entries
    assert await append(other, S, NewEntry("odd", b"1"), key="k") == entries[-1:]
    feed = await other.feed(0)
    assert [item.entry for item in feed] == entries
    assert feed[0].position > 1000  # no position that was given out is given again
    assert (await other.maintenance.verify()).problems == ()
    assert EntryId("s/5") == entries[-1].id


@pytest.mark.parametrize("body", ['"text":""', '"set":{"summary":5}'])
async def test_compaction_with_an_empty_or_unreadable_body_hides_nothing(
    store: JsonlStore, open_store: Opener, folder: Path, body: str
) -> None:
    await create(store, S, said("zero"), said("one"))
    await append(store, S, new_tree(Compaction("gist")))
    await append(store, S, said("two"))
    change(file_of(folder, S), b'"seq":2', f'{body},"seq":2'.encode())
    other = await open_store()
    leaf = EntryId("s/3")

    window = await other.context_window(S, leaf)

    assert window == window_of(await other.branch(S, leaf))
    assert window.hidden == 0
