"""A file that perdure wrote for another program is imported into its session again."""

from __future__ import annotations

import json

import pytest

from perdure.codecs.operator.codec import OPERATOR
from perdure.codecs.pi.codec import PI
from perdure.interop.continuation import Program, continuation_of
from perdure.interop.exports import export_session
from perdure.session.codec import new_side, new_tree
from perdure.session.ids import StreamId
from perdure.session.messages import assistant, user
from perdure.session.notes import Label, LeafMoved, SessionInfoChanged
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import START_MS
from tests.fakes.session_lines import record_line
from tests.fakes.sources import (
    claude_file,
    codex_file,
    empty_store,
    imported,
    opencode_file,
    operator_file,
    pi_file,
)
from tests.fakes.streams import append, create

FILES = {
    "claude-code": claude_file("tools.jsonl"),
    "claude-code, chain": claude_file("chain.jsonl"),
    "codex": codex_file("rollout.jsonl"),
    "opencode": opencode_file("export.json"),
    "operator": operator_file("current.jsonl"),
    "pi": pi_file("v3.jsonl"),
}
WRITERS: tuple[Program, ...] = ("pi", "operator")


async def written(
    store: SessionStore, stream: StreamId, program: Program, leaf: str | None = None
) -> bytes:
    """Return the file with which `program` continues `stream`."""
    at = None if leaf is None else await store.resolve(stream, leaf)
    return (await continuation_of(store, stream, program, cwd="/srv", leaf=at)).exported.content


def continued(
    content: bytes, program: Program, text: str = "From there", id: str = "ffffffff"
) -> bytes:
    """Return `content` with one more message below its last record."""
    last = json.loads(content.rstrip().split(b"\n")[-1])
    said = {"role": "user", "content": text, "timestamp": 1}
    record = {"type": "message", "message": said}
    codec = PI if program == "pi" else OPERATOR
    return content + record_line(codec, record, id, last["id"], START_MS) + b"\n"


async def spent(store: SessionStore) -> int:
    """Return the number of tokens of all messages in the store."""
    found = 0
    for info in await store.sessions(limit=None, scope="all"):
        for entry in await store.entries(info.id):
            if entry.message is not None and entry.message.usage is not None:
                found += entry.message.usage.total_tokens
    return found


async def count(store: SessionStore) -> int:
    return len(await store.sessions(limit=None, scope="all"))


@pytest.mark.parametrize("program", WRITERS)
@pytest.mark.parametrize("name", FILES)
async def test_file_exported_from_an_import_is_reimported(name: str, program: Program) -> None:
    store = empty_store()
    stream = (await imported(store, FILES[name])).session
    before = await spent(store)
    content = await written(store, stream, program)
    again = await imported(store, content)
    assert (again.session, again.entries, again.is_new) == (stream, 0, False)
    grown = await imported(store, continued(content, program))
    assert (grown.session, grown.messages, grown.is_new) == (stream, 1, False)
    assert (await count(store), await spent(store)) == (1, before)
    assert (await imported(store, continued(content, program))).entries == 0
    assert (await imported(store, FILES[name])).entries == 0


@pytest.mark.parametrize("program", WRITERS)
async def test_original_file_can_grow_after_the_export(
    program: Program,
) -> None:
    store = empty_store()
    lines = claude_file("chain.jsonl").splitlines(keepends=True)
    stream = (await imported(store, b"".join(lines[:-2]))).session
    await imported(store, continued(await written(store, stream, program), program))
    leaf = (await store.state(stream)).leaf
    grown = await imported(store, b"".join(lines))
    assert (grown.session, grown.is_new) == (stream, False)
    assert (await store.state(stream)).leaf == leaf
    assert await count(store) == 1


@pytest.mark.parametrize("program", WRITERS)
async def test_file_exported_at_an_earlier_entry_is_reimported(
    program: Program,
) -> None:
    store, stream = empty_store(), StreamId("ours")
    await create(store, stream)
    asked, *_ = await append(
        store,
        new_tree(user("Which bird?")),
        new_tree(assistant("A heron.")),
        stream=stream,
    )
    await append(store, new_side(LeafMoved(asked.id)), stream=stream)
    other = new_tree(assistant("A stork."))
    told = await append(store, other, stream=stream)
    content = await written(store, stream, program, told[0].id)
    assert b"A heron." not in content
    report = await imported(store, continued(content, program))
    assert (report.session, report.messages) == (stream, 1)
    path = await store.branch(stream, (await store.state(stream)).leaf)
    texts = [entry.message.text for entry in path if entry.message is not None]
    assert texts == ["Which bird?", "A stork.", "From there"]


@pytest.mark.parametrize("program", WRITERS)
async def test_original_and_exported_file_can_both_grow(
    program: Program,
) -> None:
    store, original = empty_store(), FILES[program]
    stream = (await imported(store, original)).session
    earlier = (await store.branch(stream, (await store.state(stream)).leaf))[-2].id
    branch = continued(await written(store, stream, program, earlier), program)
    await imported(store, branch)
    for number in range(2):
        original = continued(original, program, f"Here {number}", f"aaaaaaa{number}")
        branch = continued(branch, program, f"There {number}", f"bbbbbbb{number}")
        for file in (original, branch):
            report = await imported(store, file)
            assert (report.session, report.messages, report.is_new) == (stream, 1, False)
    for file in (original, branch, FILES[program]):
        assert (await imported(store, file)).entries == 0
    assert await count(store) == 1
    said = {entry.message.text: entry for entry in await store.tree(stream) if entry.message}
    for before, text in (("From there", "There 0"), ("There 0", "There 1"), ("Here 0", "Here 1")):
        assert said[text].parent_id == said[before].id


@pytest.mark.parametrize("program", WRITERS)
async def test_exported_file_is_reimported_after_changes_in_perdure(
    program: Program,
) -> None:
    store = empty_store()
    stream = (await imported(store, claude_file("chain.jsonl"))).session
    said = (await store.tree(stream))[0].id
    await append(store, new_side(Label("first"), said), stream=stream)
    content = await written(store, stream, program)
    await append(
        store,
        new_side(Label("the first"), said),
        new_side(SessionInfoChanged(title="Another name")),
        new_tree(user("Meanwhile")),
        stream=stream,
    )
    leaf = (await store.state(stream)).leaf
    report = await imported(store, continued(content, program))
    assert (report.session, report.messages) == (stream, 1)
    state = await store.state(stream)
    assert (state.leaf, state.info.title) == (leaf, "Another name")


@pytest.mark.parametrize("program", WRITERS)
async def test_altered_file_becomes_a_new_session(program: Program) -> None:
    store = empty_store()
    stream = (await imported(store, claude_file("chain.jsonl"))).session
    content = await written(store, stream, program)
    before = await store.entries(stream)
    lines = content.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"role":"user"' in line)
    altered = (
        lines[at]
        .replace(b'"text":"', b'"text":"forged ')
        .replace(b'"content":"', b'"content":"forged ')
    )
    assert altered != lines[at]
    parent = "parentId" if program == "pi" else "parent_id"
    below = json.loads(lines[at])
    new = {**json.loads(continued(content, program).splitlines()[-1]), parent: below.get(parent)}
    moved = json.dumps(below | {parent: new["id"]}).encode() + b"\n"
    inserted = json.dumps(new).encode() + b"\n"
    hostile = {
        "altered": [*lines[:at], altered, *lines[at + 1 :]],
        "one missing": [*lines[:at], *lines[at + 1 :]],
        "one inserted": [*lines[:at], inserted, moved, *lines[at + 1 :]],
    }
    for what, each in hostile.items():
        report = await imported(store, b"".join(each))
        assert report.session != stream, what
        assert await store.entries(stream) == before, what


async def test_operator_export_after_changes_in_pi_keeps_original_bytes() -> None:
    store = empty_store()
    original = operator_file("current.jsonl")
    stream = (await imported(store, original)).session
    await imported(store, continued(await written(store, stream, "pi"), "pi"))
    exported = (await export_session(store, stream, "operator")).content
    assert exported.startswith(original)
    assert b"From there" in exported
