"""The file, location and command with which another program continues a session."""

from __future__ import annotations

import json

import msgspec
import pytest

from perdure.errors import FormatError
from perdure.interop.continuation import PROGRAMS, Program, continuation_of, original_of
from perdure.interop.formats.operator.reader import parse as parse_operator
from perdure.interop.imports import import_source
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import Usage, assistant, user
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.sources import empty_store, path_of, texts_on
from tests.fakes.streams import append, create

SESSION = StreamId("s")


async def stored() -> MemoryStore:
    store = empty_store()
    await create(store, SESSION)
    said = (user("Which bird?"), assistant("A heron."))
    await append(store, *map(new_tree, said), stream=SESSION)
    return store


@pytest.mark.parametrize("program", PROGRAMS)
async def test_repeated_continuation_gives_the_same_file_and_command(
    program: Program,
) -> None:
    store = await stored()
    first = await continuation_of(store, SESSION, program, cwd="/srv/birds")
    assert first == await continuation_of(store, SESSION, program, cwd="/srv/birds")
    assert first.cwd == "/srv/birds"
    assert not first.path.is_absolute()
    await append(store, new_tree(user("And this one?")), stream=SESSION)
    later = await continuation_of(store, SESSION, program, cwd="/srv/birds")
    assert later.path != first.path
    assert b"And this one?" in later.exported.content


async def test_export_at_earlier_leaf_omits_later_messages() -> None:
    store = await stored()
    asked = (await store.tree(SESSION))[0].id
    made = await continuation_of(store, SESSION, "codex", cwd="/srv", leaf=asked)
    assert b"A heron." not in made.exported.content


async def test_export_folder_name_is_derived_from_the_working_directory() -> None:
    store = await stored()
    claude = await continuation_of(store, SESSION, "claude-code", cwd="/srv/birds")
    assert claude.path.parts[0] == "-srv-birds"
    pi = await continuation_of(store, SESSION, "pi", cwd="/srv/birds")
    assert pi.path.parts[0] == "--srv-birds--"


async def test_operator_export_contains_whole_session_and_its_leaf() -> None:
    store = await stored()
    first = (await store.tree(SESSION))[0].id
    made = await continuation_of(store, SESSION, "operator", cwd="/srv/birds")
    assert made.command == ("operator", "--repl", "--session-file", "{file}")
    parsed = parse_operator(made.exported.content)
    assert (parsed.malformed, parsed.header.session) == ((), SESSION)
    assert texts_on(path_of(parsed)) == ["Which bird?", "A heron."]
    earlier = await continuation_of(store, SESSION, "operator", cwd="/srv/birds", leaf=first)
    assert texts_on(path_of(parse_operator(earlier.exported.content))) == ["Which bird?"]
    assert earlier.path != made.path


async def test_session_without_messages_is_refused() -> None:
    store = empty_store()
    await create(store, SESSION)
    with pytest.raises(FormatError, match="no messages for codex"):
        await continuation_of(store, SESSION, "codex", cwd="/srv")


@pytest.mark.parametrize("cwd", ["/srv\n; rm -r x", "-rf", "srv; rm -r x"])
async def test_unsafe_working_directory_is_not_exported(cwd: str) -> None:
    store = empty_store()
    header = StreamHeader(SESSION, START_MS, cwd=cwd)
    await store.commit(Commit(writes=(Write(stream=SESSION, create=header),), at=START_MS))
    await append(store, new_tree(user("Hello")), stream=SESSION)
    made = await continuation_of(store, SESSION, "claude-code", cwd="/srv/birds")
    assert made.cwd == "/srv/birds"
    assert json.dumps(cwd).encode() not in made.exported.content


@pytest.mark.parametrize("program", PROGRAMS)
async def test_reimport_of_an_exported_session_adds_no_usage(program: Program) -> None:
    store = empty_store()
    await create(store, SESSION)
    spent = Usage(input_tokens=900, output_tokens=90, cost_microcents=5)
    answer = msgspec.structs.replace(assistant("A heron."), model="anthropic:m", usage=spent)
    await append(store, *map(new_tree, (user("Which bird?"), answer)), stream=SESSION)
    made = await continuation_of(store, SESSION, program, cwd="/srv/birds")
    report = await import_source(
        store, made.exported.content, clock=ManualClock(), random=SeededRandom(1)
    )
    answers = [
        entry.message
        for stream in {SESSION, report.session}
        for entry in await store.entries(stream)
        if entry.message is not None and entry.message.role == "assistant"
    ]
    assert {said.text for said in answers} == {"A heron."}
    assert sum(said.usage.total_tokens for said in answers if said.usage is not None) == 990


@pytest.mark.parametrize(
    ("id", "name", "cwd"),
    [
        ("-x", "-x.jsonl", "/srv"),
        ("a\x1b1", "a\x1b1.jsonl", "/srv"),
        ("a\n1", "a\n1.jsonl", "/srv"),
        ("a1", "other.jsonl", "/srv"),
        ("a1", "a1.jsonl", "/srv\n/x"),
        ("a1", "a1.jsonl", "-rf"),
    ],
)
async def test_resume_command_omits_unsafe_ids_and_folders(id: str, name: str, cwd: str) -> None:
    record = {
        "type": "user",
        "uuid": "u",
        "sessionId": id,
        "cwd": cwd,
        "message": {"role": "user", "content": "hi"},
    }
    store = empty_store()
    content = json.dumps(record).encode() + b"\n"
    report = await import_source(
        store, content, name=name, clock=ManualClock(), random=SeededRandom()
    )
    found = await original_of(store, report.session, "claude-code")
    if name == "a1.jsonl":
        assert found is not None
        assert (found.command, found.cwd) == (("claude", "--resume", "a1"), None)
    else:
        assert found is None
