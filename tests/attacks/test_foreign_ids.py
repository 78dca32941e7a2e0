"""A file that claims the id of a session from another file is never merged with that session."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from perdure.errors import FormatError
from perdure.interop.bulk import import_files
from perdure.interop.exports import export_session
from perdure.interop.live_import import QUIET_MS, RETRY_S, FolderFollower
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import assistant, user
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.samples import sampled
from tests.fakes.sources import (
    claude_file,
    codex_file,
    empty_store,
    imported,
    opencode_file,
    operator_file,
    pi_file,
)

TEXTS = ("text", "content", "message", "summary")

LINES = {
    "pi": pi_file("v3.jsonl"),
    "pi, version 2": pi_file("v2.jsonl"),
    "pi, version 1": pi_file("v1.jsonl"),
    "claude-code": claude_file("chain.jsonl"),
    "claude-code, tools": claude_file("tools.jsonl"),
    "operator": operator_file("current.jsonl"),
    "operator, sample": operator_file("sample.jsonl"),
    "operator, legacy": operator_file("legacy.jsonl"),
    "codex": codex_file("rollout.jsonl"),
}
SAVED_WHOLE = {"operator, legacy", "opencode"}
"""Formats whose programs rewrite whole files, so that only the content can be compared."""


def forged(value: Any) -> Any:
    """Return `value` with every text of a message changed."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: forged_field(name, each) for name, each in fields.items()}
    return list(map(forged, cast("list[Any]", value))) if isinstance(value, list) else value


def forged_field(name: str, value: Any) -> Any:
    return f"{value} forged" if name in TEXTS and isinstance(value, str) else forged(value)


def forged_line(line: bytes) -> bytes | None:
    """Return `line` with its texts changed; None if it has no texts."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    changed = forged(value)
    return None if changed == value else json.dumps(changed).encode() + b"\n"


def other_histories(lines: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Yield variants of a file, given as `lines`; each has the same header and another history."""
    end = len(lines)
    for at in range(1, end):
        changed = forged_line(lines[at])
        if changed is not None:
            yield f"line {at} altered", [*lines[:at], changed, *lines[at + 1 :]]
            yield f"cut at line {at}, then forged", [*lines[:at], changed]
        if at < end - 1:
            yield f"line {at} missing", [*lines[:at], *lines[at + 1 :]]
            if lines[at] != lines[at + 1]:
                swapped = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
                yield f"lines {at} and {at + 1} swapped", swapped
    said = next(line for line in map(forged_line, lines[1:]) if line is not None)
    yield "a line before all others", [lines[0], said, *lines[1:]]
    yield "no history but a forged line", [lines[0], said]
    yield "all but the end missing", [lines[0], *lines[-2:], said]


def other_headers(lines: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Yield variants of a file, given as `lines`; each has another first line with the same id."""
    said = next(line for line in map(forged_line, lines[1:]) if line is not None)
    for name, value in (("cwd", "/tmp/forged"), ("forged", True), ("timestamp", None)):
        header = json.dumps({**json.loads(lines[0]), name: value}).encode() + b"\n"
        yield f"header with another {name}", [header, *lines[1:], said]
        yield f"header with another {name}, and nothing else", [header]


def documents(content: bytes) -> Iterator[tuple[str, list[Any]]]:
    """Yield variants of an opencode export, as messages; each variant has another history."""
    whole: dict[str, Any] = json.loads(content)
    messages: list[Any] = whole["messages"]
    for at, message in enumerate(messages):
        before, after = messages[:at], messages[at + 1 :]
        if forged(message) != message:
            yield f"{at} altered", [*before, forged(message), *after]
        if after:
            yield f"{at} missing", [*before, *after]
            yield f"{at} swapped", [*before, after[0], message, *after[1:]]
    new = {**forged(messages[0]), "info": {**messages[0]["info"], "id": "msg_forged"}}
    yield "one before", [new, *messages]
    yield "forged only", [new]


async def import_genuine(content: bytes) -> tuple[MemoryStore, StreamId]:
    """Return a store with the session of `content`, extended after the import."""
    store = empty_store()
    stream = (await imported(store, content)).session
    entries = (new_tree(user("added here")), new_tree(assistant("too")))
    await store.commit(Commit(writes=(Write(stream=stream, entries=entries),), at=START_MS))
    return store, stream


async def is_merged(genuine: bytes, hostile: bytes) -> str | None:
    """Import `hostile` into a store that has `genuine`; return what is wrong, None if nothing."""
    store, stream = await import_genuine(genuine)
    before = await store.state(stream), await store.entries(stream), await store.aliases(stream)
    try:
        report = await imported(store, hostile)
    except FormatError:
        report = None
    if (await store.state(stream), await store.entries(stream), await store.aliases(stream)) != (
        before
    ):
        return "the session changed"
    if report is None:
        return None
    if report.session == stream:
        return None if report.entries == 0 else "it is the same session"
    if not any(stream in warning for warning in report.warnings):
        return f"no warning names {stream}: {report.warnings}"
    again = await imported(store, hostile)
    if (again.session, again.entries) != (report.session, 0):
        return "importing it again adds something"
    return None if (await imported(store, genuine)).session == stream else "the genuine one moved"


def show(name: str, tried: int, through: list[str]) -> None:
    sys.stdout.write(f"\n{name}: {tried} files tried, {len(through)} through\n")


@sampled("name", list(LINES), kind=lambda name: name.partition(",")[0], each=1)
async def test_file_with_a_changed_history_is_not_merged_into_the_session(name: str) -> None:
    lines = LINES[name].splitlines(keepends=True)
    forms = list(other_histories(lines))
    if name not in SAVED_WHOLE:
        forms += other_headers(lines)
    through: list[str] = []
    for what, hostile in forms:
        wrong = await is_merged(LINES[name], b"".join(hostile))
        if wrong is not None:
            through.append(f"{what}: {wrong}")
    show(name, len(forms), through)
    assert through == []


async def test_document_with_a_changed_history_is_not_merged_into_the_session() -> None:
    content = opencode_file("export.json")
    whole: dict[str, Any] = json.loads(content)
    through: list[str] = []
    forms = list(documents(content))
    for what, messages in forms:
        wrong = await is_merged(content, json.dumps({**whole, "messages": messages}).encode())
        if wrong is not None:
            through.append(f"{what}: {wrong}")
    show("opencode", len(forms), through)
    assert through == []


async def test_perdure_file_with_a_changed_history_is_not_merged_into_the_session() -> None:
    store, stream = await import_genuine(pi_file("v3.jsonl"))
    content = (await export_session(store, stream, "perdure")).content
    lines = content.splitlines(keepends=True)
    forms = [(what, b"".join(each)) for what, each in other_histories(lines)]
    through = [
        f"{what}: {wrong}" for what, each in forms if (wrong := await is_merged(content, each))
    ]
    show("perdure", len(forms), through)
    assert through == []


@pytest.mark.parametrize("name", LINES)
async def test_import_of_a_shortened_file_adds_no_entries(name: str) -> None:
    lines = LINES[name].splitlines(keepends=True)
    for count in range(1, len(lines)):
        store, stream = await import_genuine(LINES[name])
        before = await store.entries(stream)
        report = await imported(store, b"".join(lines[:count]))
        assert (report.session, report.entries) == (stream, 0)
        assert await store.entries(stream) == before


@pytest.mark.parametrize("name", LINES)
async def test_import_of_a_grown_file_does_not_change_the_current_branch(name: str) -> None:
    lines = LINES[name].splitlines(keepends=True)
    for count in range(len(lines) // 2, len(lines)):
        store, stream = await import_genuine(b"".join(lines[:count]))
        leaf = (await store.state(stream)).leaf
        report = await imported(store, LINES[name])
        assert (report.session, report.is_new) == (stream, False)
        assert (await store.state(stream)).leaf == leaf


async def test_import_of_an_altered_export_is_not_merged_into_the_session() -> None:
    store = empty_store()
    header = StreamId("ours")
    await made_here(store, header)
    exported = (await export_session(store, header, "pi")).content
    lines = exported.splitlines(keepends=True)
    said = forged_line(lines[-1])
    assert said is not None
    grown = said.replace(json.loads(said)["id"].encode(), b"ffff0001")
    hostile = {
        "an entry missing": [lines[0], *lines[2:], grown],
        "a line before": [lines[0], grown, *lines[1:]],
        "forged only": [lines[0], grown],
    }
    before = await store.entries(header)
    for what, each in hostile.items():
        report = await imported(store, b"".join(each))
        assert report.session != header, what
        assert await store.entries(header) == before, what
    assert (await imported(store, exported + grown)).session == header


async def made_here(store: MemoryStore, stream: StreamId) -> None:
    said = (new_tree(user("one")), new_tree(assistant("two")), new_tree(user("three")))
    write = Write(stream=stream, create=StreamHeader(stream, START_MS), entries=said)
    await store.commit(Commit(writes=(write,), at=START_MS))


async def test_two_files_with_one_id_in_a_folder_become_two_sessions(tmp_path: Path) -> None:
    genuine = pi_file("v3.jsonl")
    hostile = genuine.replace(b"A blue pixel.", b"A forged pixel.")
    for number, contents in enumerate(([genuine, hostile], [hostile, genuine], [hostile] * 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, content in zip("ab", contents, strict=True):
            (folder / f"{name}.jsonl").write_bytes(content)
        store = empty_store()
        paths = sorted(folder.iterdir())
        found = import_files(store, paths, clock=ManualClock(), random=SeededRandom(1))
        reports = [outcome.report async for outcome in found]
        sessions = {report.session for report in reports if report is not None}
        assert len(sessions) == len(set(contents))
        logs = [await store.entries(each) for each in sessions]
        forgeries = [sum(entry.body.count(b"forged") for entry in log) for log in logs]
        assert sorted(forgeries) == sorted(int(each == hostile) for each in set(contents))


async def test_followed_file_that_is_replaced_becomes_a_separate_session(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock, random=SeededRandom(1))
    follower = FolderFollower(store, [tmp_path], clock=clock, random=SeededRandom(2))
    lines = pi_file("v3.jsonl").splitlines(keepends=True)
    other_lines = next(other_histories(lines))[1]

    async def look(*written: bytes) -> list[Any]:
        path = tmp_path / "a.jsonl"
        path.write_bytes(b"".join(written))
        at = clock.now_ms() - 10 * QUIET_MS
        os.utime(path, ns=(at * 1_000_000, at * 1_000_000))
        clock.advance(RETRY_S)
        return [change.report async for change in follower.look()]

    (first,) = await look(*lines[:6])
    (grown,) = await look(*lines[:8])
    assert (grown.session, grown.is_new) == (first.session, False)
    before = await store.entries(first.session)
    (other,) = await look(*other_lines[:9])
    assert other.session != first.session
    assert any(first.session in warning for warning in other.warnings)
    (more,) = await look(*other_lines[:10])
    assert (more.session, more.is_new) == (other.session, False)
    assert await store.entries(first.session) == before
