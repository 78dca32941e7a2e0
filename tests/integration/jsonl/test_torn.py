"""A torn write is ignored by reads, reported, left in the file, and skipped by later writes."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.codecs.operator.codec import OPERATOR
from perdure.codecs.pi.codec import PI
from perdure.errors import PerdureError
from perdure.session.codec import new_tree
from perdure.session.entries import NewEntry, Sibling
from perdure.session.ids import StreamId
from perdure.session.kinds import OPAQUE
from perdure.session.messages import Message, ToolCallPart, ToolResultPart, assistant
from perdure.stores.jsonl.index import Log, Tail
from perdure.stores.jsonl.store import DialectName
from tests.conformance.store.building import append, create, labelled, said, texts
from tests.fakes.samples import with_larger
from tests.fakes.session_files import context_of, file_of
from tests.fakes.session_tools import tool
from tests.integration.jsonl.conftest import opened

S = StreamId("s")
CODECS = {"operator": OPERATOR, "pi": PI}
NAMES = st.sampled_from(("operator", "pi"))


class Written(NamedTuple):
    """A session file: its name, and its bytes before and after its last commit."""

    name: str
    before: bytes
    after: bytes


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def content(path: Path) -> bytes:
    return path.read_bytes()


@cache
def written(dialect: DialectName) -> Written:
    """Return a session whose last commit has entries of every kind."""

    async def write() -> Written:
        with tempfile.TemporaryDirectory() as folder:
            async with opened(Path(folder), dialect) as store:
                await create(store, S, said("a"), said("b"))
                await append(store, S, said("c\u2028\u0085"), labelled("x", Sibling(0)))
                path = file_of(Path(folder), S)
                before = path.read_bytes()
                results = tuple(ToolResultPart(f"c{n}", f"result {n}") for n in range(2))
                await append(
                    store,
                    S,
                    new_tree(
                        assistant("look", *(ToolCallPart(r.call_id, "t", {}) for r in results))
                    ),
                    new_tree(Message("tool", results)),
                    NewEntry(OPAQUE, b"\xff\n{", lane="side"),
                    new_tree(assistant("done", model="a:b"), alias="foreign"),
                    key="k",
                )
                return Written(path.name, before, path.read_bytes())

    with ThreadPoolExecutor(1) as thread:  # the caller may be running a loop
        return thread.submit(lambda: asyncio.run(write())).result()


@pytest.mark.parametrize("dialect", ["operator", "pi"])
@pytest.mark.parametrize("step", with_larger(7, 1))
def test_commit_cut_at_any_byte_is_whole_or_absent(
    dialect: DialectName, tmp_path: Path, step: int
) -> None:
    name, before, after = written(dialect)
    path = tmp_path / name

    last = len(after) - 20
    for end in (*range(len(before), last, step), *range(last, len(after) + 1)):
        path.write_bytes(after[:end])
        log = Log(path, CODECS[dialect])
        assert log.refresh()
        is_whole = end >= len(after) - 1  # the last LF may be missing
        assert log.head == (7 if is_whole else 3), end
        assert (log.leaf, "k" in log.keys) == ((7, True) if is_whole else (2, False))
        assert log.torn_bytes == (0 if is_whole else end - len(before))
        assert log.faults == []


@pytest.mark.parametrize("dialect", ["operator", "pi"])
def test_reader_sees_commit_only_when_complete(dialect: DialectName, tmp_path: Path) -> None:
    name, before, after = written(dialect)
    path = tmp_path / name
    path.write_bytes(before)
    log = Log(path, CODECS[dialect])
    assert log.refresh()

    with path.open("ab", buffering=0) as file:
        for offset in range(len(before), len(after), 7):
            file.write(after[offset : offset + 7])
            assert log.refresh()
            assert log.head in (3, 7)

    assert (log.head, log.faults, log.torn_bytes) == (7, [], 0)


@settings(max_examples=max(10, settings().max_examples // 2))
@given(cut=st.floats(0, 1), name=NAMES)
async def test_next_commit_starts_after_torn_write(cut: float, name: DialectName) -> None:
    file, before, after = written(name)
    end = len(before) + round(cut * (len(after) - len(before)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file)
        put(path, after[:end])
        async with opened(Path(folder), name) as store:
            torn = end - len(before)
            problems = [problem.problem for problem in (await store.maintenance.verify()).problems]
            is_whole = end >= len(after) - 1
            told = f"the last {torn} bytes of its file were never committed: left unread"
            assert problems == ([told] if torn and not is_whole else [])

            (entry,) = await append(store, S, said("next"))

            assert entry.seq == (8 if is_whole else 4)
            assert content(path).startswith(after[:end])
            assert (await store.maintenance.verify()).problems == ()
            seen = texts(await store.branch(S, entry.id))
            assert seen[-1] == "next"
            assert ("done" in seen) is is_whole
            assert tool(name, path).context() == await context_of(store, S)
            # The key of a commit that was cut off is free.
            again = await append(store, S, said("other"), key="k2")
            assert again[0].parent_id == entry.id
        async with opened(Path(folder), name) as store:
            assert texts(await store.entries(S))[-2:] == ["next", "other"]
            assert (await store.maintenance.verify()).problems == ()


@pytest.mark.parametrize("dialect", ["operator", "pi"])
def test_read_of_the_end_of_a_file_ignores_a_torn_commit(
    dialect: DialectName, tmp_path: Path
) -> None:
    name, before, after = written(dialect)
    path = tmp_path / name
    path.write_bytes(before)
    log = Log(path, CODECS[dialect])
    assert log.refresh()

    for end in (at + 1 for at in range(len(before) - 1, len(after)) if after[at : at + 1] == b"\n"):
        path.write_bytes(after[:end])
        newest, later = Tail(path, CODECS[dialect]), Tail(path, CODECS[dialect])
        assert newest.read(log.header)
        assert later.go_on(log.header, len(before), log.head + 1, log.leaf)
        head = 7 if end == len(after) else log.head
        assert (newest.head, later.head) == (head, head), end


@pytest.mark.parametrize("dialect", ["operator", "pi"])
def test_last_line_of_a_commit_without_earlier_lines_is_ignored(
    dialect: DialectName, tmp_path: Path
) -> None:
    name, before, after = written(dialect)
    path = tmp_path / name
    last = after[after.rindex(b"\n", 0, -1) + 1 :]
    path.write_bytes(before + last)

    log = Log(path, CODECS[dialect])
    assert log.refresh()
    assert (log.head, log.leaf, log.torn_bytes) == (3, 2, len(last))


@pytest.mark.parametrize("dialect", ["operator", "pi"])
async def test_verify_reports_a_cut_off_write_after_the_next_commit(
    dialect: DialectName, tmp_path: Path
) -> None:
    name, before, after = written(dialect)
    path = tmp_path / name
    line_ends = [at for at in range(len(before), len(after) - 1) if after[at : at + 1] == b"\n"]
    for end in (len(before) + 1, line_ends[0], line_ends[0] + 1, line_ends[-1] + 9):
        put(path, after[:end])
        shutil.rmtree(tmp_path / ".perdure", ignore_errors=True)
        async with opened(tmp_path, dialect) as store:
            await append(store, S, said("next"))
            found = await store.maintenance.verify()
            assert (found.is_ok, found.problems) == (True, ())
            (cut,) = found.cut_off
            assert (cut.stream, cut.seq) == (S, None)
            size = end - len(before) + (after[end - 1 : end] != b"\n")
            assert f"{size} bytes from byte {len(before)}" in cut.problem
        async with opened(tmp_path, dialect) as store:
            await append(store, S, said("after it"))
            assert (await store.maintenance.verify()).cut_off == found.cut_off


@pytest.mark.parametrize("dialect", ["operator", "pi"])
async def test_verify_reports_cut_off_write_after_line_of_another_program(
    dialect: DialectName, tmp_path: Path
) -> None:
    name, before, after = written(dialect)
    path = tmp_path / name
    end = after.index(b"\n", len(before)) + 1
    put(path, after[:end])
    tool(dialect, path).say("user", "from the tool")
    async with opened(tmp_path, dialect) as store:
        await append(store, S, said("next"))
        found = await store.maintenance.verify()

    (cut,) = found.cut_off
    assert found.is_ok
    assert f"{end - len(before)} bytes from byte {len(before)}" in cut.problem


@settings(max_examples=max(10, settings().max_examples // 5))
@given(cuts=st.lists(st.floats(0, 1), min_size=1, max_size=4), name=NAMES)
async def test_repeated_torn_writes_lose_no_acknowledged_entry(
    cuts: list[float], name: DialectName
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        said_so_far = ["start"]
        async with opened(Path(folder), name) as store:
            await create(store, S, said("start"))
        for number, cut in enumerate(cuts):
            path = file_of(Path(folder), S)
            before = path.read_bytes()
            async with opened(Path(folder), name) as store:
                await append(store, S, said(f"lost {number}"), said(f"lost too {number}"))
            after = path.read_bytes()
            path.write_bytes(after[: len(before) + round(cut * (len(after) - len(before) - 2))])
            shutil.rmtree(Path(folder, ".perdure"))  # it was never acknowledged
            async with opened(Path(folder), name) as store:
                await append(store, S, said(f"kept {number}"))
                said_so_far.append(f"kept {number}")
                assert texts(await store.entries(S)) == said_so_far
                assert (await store.maintenance.verify()).problems == ()
                assert tool(name, path).context() == await context_of(store, S)


@settings(max_examples=max(10, settings().max_examples // 2))
@given(place=st.floats(0, 1), flip=st.integers(1, 255), name=NAMES)
async def test_file_with_a_changed_byte_is_readable_but_rejects_appends(
    place: float, flip: int, name: DialectName
) -> None:
    file, _, whole = written(name)
    at = round(place * (len(whole) - 1))
    changed = whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file)
        put(path, changed)
        async with opened(Path(folder), name) as store:
            sessions = await store.sessions(scope="all")
            await store.maintenance.verify()
            for info in sessions:
                with contextlib.suppress(PerdureError):
                    entries = await store.entries(info.id)
                    assert [entry.seq for entry in entries] == list(range(len(entries)))
                    await store.context_window(info.id, (await store.state(info.id)).leaf)
                    await append(store, info.id, said("next"))
            assert content(path).startswith(changed)
