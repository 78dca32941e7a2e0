"""Exports in every format: selection, leaf, redaction and warnings."""

from __future__ import annotations

import base64
import re

import msgspec
import pytest
from hypothesis import given

from perdure.context.emission import emit
from perdure.errors import EntryNotFound, Erased, FormatError
from perdure.interop.exports import ExportSelection, export_session
from perdure.interop.redaction.placeholders import REDACTIONS
from perdure.interop.reports import ExportFormat, Redaction
from perdure.session.codec import encode, new_tree
from perdure.session.entries import NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.kinds import BranchSummary
from perdure.session.media_storage.embedded_base64 import stored_message
from perdure.session.messages import (
    MESSAGE,
    Message,
    UnknownPart,
    assistant,
    tool_call,
    tool_result,
    user,
)
from perdure.session.notes import ImportSource, Label, SessionInfoChanged
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.erase import EraseRequest
from tests.fakes import operator_reader
from tests.fakes.sources import OPERATOR, empty_store, imported, operator_file, pi_file, spoilt
from tests.fakes.streams import append, create

SESSION = StreamId("s")
FORMATS: tuple[ExportFormat, ...] = ("perdure", "pi", "operator", "markdown", "html")


async def stored(name: str = "v3.jsonl") -> tuple[MemoryStore, StreamId]:
    """Return a store with an imported pi session."""
    store = empty_store()
    return store, (await imported(store, pi_file(name))).session


@pytest.mark.parametrize("format", FORMATS)
async def test_session_exported_twice_gives_the_same_bytes(format: ExportFormat) -> None:
    store, session = await stored()
    first, second = [await export_session(store, session, format) for _ in range(2)]
    assert first == second
    assert (first.session, first.format, first.redacted) == (session, format, {})
    assert first.content.endswith(b"\n")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("sort", [*REDACTIONS, None])
async def test_redacted_export_is_never_the_imported_original(
    format: ExportFormat, sort: Redaction | None
) -> None:
    store, session = await stored()
    sorts = REDACTIONS if sort is None else (sort,)
    whole = await export_session(store, session, format)
    exported = await export_session(store, session, format, ExportSelection(redact=sorts))
    if format in ("perdure", "pi") or "paths" in sorts:
        assert exported.content != whole.content
    assert pi_file("v3.jsonl").splitlines()[1] not in exported.content


@pytest.mark.parametrize("format", FORMATS)
async def test_erased_entries_are_reported(format: ExportFormat) -> None:
    store, session = await stored()
    await store.commit(
        Commit(
            writes=(
                Write(
                    stream=StreamId("fork"),
                    create=StreamHeader(
                        StreamId("fork"), 1, fork=ForkPoint(session, None, 3, "tree")
                    ),
                ),
            ),
            at=1,
        )
    )
    request = EraseRequest(id="e", scope="session", by="me", at=1, name=session, forks="keep")
    await store.retention.erase(request)
    with pytest.raises(Erased):
        await export_session(store, session, format)
    await store.retention.erase(msgspec.structs.replace(request, id="e2", forks="erase"))
    with pytest.raises(Erased):
        await export_session(store, StreamId("fork"), format)


@pytest.mark.parametrize("format", FORMATS)
async def test_summary_erased_in_fork_is_reported_as_erased(format: ExportFormat) -> None:
    store = empty_store()
    await create(store)
    await append(store, *(new_tree(user(text)) for text in ("a", "secret")), stream=SESSION)
    told = new_tree(BranchSummary("a secret", EntryId("s/0")), EntryId("s/0"))
    await append(store, told, new_tree(user("b")), stream=SESSION)
    point = ForkPoint(SESSION, EntryId("s/3"), 3, "path")
    header = StreamHeader(StreamId("fork"), 1, fork=point)
    await store.commit(Commit(writes=(Write(stream=header.id, create=header),), at=1))
    request = EraseRequest(id="e", scope="session", by="me", at=1, name=SESSION, forks="keep")
    await store.retention.erase(request)

    exported = await export_session(store, header.id, format)

    assert exported.warnings[-1] == "1 of its entries were erased: their content is not in the file"
    assert b"secret" not in exported.content


@pytest.mark.parametrize("format", FORMATS)
async def test_export_at_a_leaf_contains_one_branch(format: ExportFormat) -> None:
    store, session = await stored()
    tree = await store.tree(session)
    first = next(entry for entry in tree if entry.kind == "message")
    exported = await export_session(store, session, format, ExportSelection(first.id))
    again = empty_store()
    if format in ("perdure", "pi"):
        report = await imported(again, exported.content)
        assert len(await again.tree(report.session)) == len(await store.branch(session, first.id))
    if format == "operator":
        path = operator_reader.read(exported.content).branch()
        assert len(path) == len(await store.branch(session, first.id))
    state = await store.state(session)
    if first.id != state.leaf:
        assert exported.content != (await export_session(store, session, format)).content


@pytest.mark.parametrize("format", FORMATS)
async def test_export_at_leaf_with_all_branches_contains_whole_session(
    format: ExportFormat,
) -> None:
    store, session = await stored()
    tree = await store.tree(session)
    exported = await export_session(
        store, session, format, ExportSelection(tree[0].id, has_all_branches=True)
    )
    if format == "operator":
        there = operator_reader.read(exported.content)
        assert len(there.branch()) == 1
        assert len(there.records) > len(tree)
    if format in ("perdure", "pi"):
        again = empty_store()
        report = await imported(again, exported.content)
        assert len(await again.tree(report.session)) == len(tree)
        state = await again.state(report.session)
        assert state.leaf is not None
        assert len(await again.branch(report.session, state.leaf)) == 1


async def test_leaf_that_is_not_an_entry_raises_not_found() -> None:
    store, session = await stored()
    for leaf in ("nowhere/1", f"{session}/0"):  # the second is a side entry
        with pytest.raises(EntryNotFound):
            await export_session(store, session, "html", ExportSelection(EntryId(leaf)))


async def test_entry_numbers_in_markdown_match_the_store() -> None:
    store, session = await stored()
    state = await store.state(session)
    assert state.leaf is not None
    header = StreamHeader(
        StreamId("fork"), 1, fork=ForkPoint(session, state.leaf, state.head, "path")
    )
    own = (new_tree(user("only in the fork")),)
    await store.commit(Commit(writes=(Write(stream=header.id, create=header, entries=own),), at=1))
    tree = await store.tree(header.id)
    numbers = [f"{'' if e.stream == header.id else '↑'}{e.seq}" for e in tree if e.kind == MESSAGE]
    for leaf in (None, tree[-1].id):
        selection = ExportSelection(leaf=leaf)
        exported = await export_session(store, header.id, "markdown", selection)
        headings = re.findall(r"^## (↑?\d+) · (?:User|Assistant)", exported.content.decode(), re.M)
        assert headings == [n for n in numbers if n in headings]
        assert headings[-1] == numbers[-1]
        assert len(headings) > 3


@pytest.mark.parametrize("format", FORMATS)
async def test_fork_can_be_exported_at_a_shared_entry(format: ExportFormat) -> None:
    store, session = await stored()
    state = await store.state(session)
    fork = ForkPoint(session, state.leaf, state.head, "tree")
    header = StreamHeader(StreamId("fork"), 1, fork=fork)
    await store.commit(Commit(writes=(Write(stream=header.id, create=header),), at=1))
    shared = next(e for e in await store.tree(session) if e.kind == "message")
    for has_all_branches in (False, True):
        selection = ExportSelection(shared.id, has_all_branches=has_all_branches, redact=REDACTIONS)
        exported = await export_session(store, header.id, format, selection)
        if format == "operator":
            path = operator_reader.read(exported.content).branch()
            assert len(path) == len(await store.branch(session, shared.id))


async def test_data_that_an_export_leaves_out_is_reported() -> None:
    store, session = await stored()
    markdown = await export_session(store, session, "markdown")
    everything = await export_session(
        store, session, "markdown", ExportSelection(has_all_branches=True)
    )
    assert len(everything.content) >= len(markdown.content)
    assert not any("other branches" in warning for warning in everything.warnings)
    state = await store.state(session)
    path = await store.branch(session, state.leaf)
    left = len(await store.tree(session)) - len(path)
    assert any(f"{left} entries of other branches" in w for w in markdown.warnings) == bool(left)


@pytest.mark.parametrize("name", OPERATOR)
async def test_unchanged_operator_import_is_exported_with_original_bytes(name: str) -> None:
    store = empty_store()
    content = operator_file(name)
    report = await imported(store, content)
    assert (await export_session(store, report.session, "operator")).content == content


@given(spoilt([operator_file(name) for name in OPERATOR]))
async def test_damaged_operator_import_is_exported_with_original_bytes(content: bytes) -> None:
    store = empty_store()
    try:
        report = await imported(store, content, "operator")
    except FormatError:
        return  # nothing in it was a record
    assert (await export_session(store, report.session, "operator")).content == content


@pytest.mark.parametrize("name", OPERATOR)
async def test_messages_after_operator_import_are_readable_by_operator(name: str) -> None:
    store = empty_store()
    session = (await imported(store, operator_file(name))).session
    write = Write(stream=session, entries=(new_tree(user("Go on.")),))
    await store.commit(Commit(writes=(write,), at=1_800_000_000_000))
    exported = (await export_session(store, session, "operator")).content
    there = operator_reader.read(exported)
    assert there.context()[-1] == ("user", (("text", "Go on."),))
    if name == "legacy.jsonl":  # an older form, rewritten
        assert there.dropped == 0
        return
    before = operator_reader.read(operator_file(name))
    assert exported.startswith(operator_file(name))
    assert there.dropped == before.dropped
    assert len(there.context()) == len(before.context()) + 1


async def test_pi_session_exported_to_operator_has_the_same_context() -> None:
    store, session = await stored()
    there = operator_reader.read((await export_session(store, session, "operator")).content)
    state = await store.state(session)
    here = emit(await store.context_window(session, state.leaf)).messages
    roles = ["user" if role in ("summary", "branch") else role for role, _ in there.context()]
    assert roles == [each.message.role for each in here]


async def test_tool_message_of_unknown_parts_is_exported_in_every_format() -> None:
    store = empty_store()
    unknown = UnknownPart(msgspec.Raw(b'{"type":"hologram"}'))
    entries = (
        NewEntry(MESSAGE, encode(Message("tool", (unknown,)))),
        NewEntry(MESSAGE, encode(Message("system", (unknown,)))),
    )
    header = StreamHeader(StreamId("s"), 1)
    write = Write(stream=header.id, create=header, entries=entries)
    await store.commit(Commit(writes=(write,), at=1))
    for format in FORMATS:
        exported = await export_session(store, header.id, format)
        assert b"hologram" in exported.content or exported.warnings, format


@pytest.mark.parametrize("format", ["pi", "operator"])
async def test_session_with_missing_import_original_is_still_exported(
    format: ExportFormat,
) -> None:
    content = pi_file("v3.jsonl") if format == "pi" else operator_file("current.jsonl")
    store = empty_store()
    stream = (await imported(store, content)).session
    original = next(e for e in await store.entries(stream) if e.kind == ImportSource.kind)
    name = msgspec.json.decode(original.body)["blob"].encode()
    own = (await export_session(store, stream)).content
    gone = own.replace(name, b"sha256-" + b"0" * 64, 1)  # referenced, but missing
    other = empty_store()
    stream = (await imported(other, gone)).session
    written = (await export_session(other, stream, format)).content
    assert (await imported(empty_store(), written)).format == format


@pytest.mark.parametrize("format", FORMATS)
async def test_session_with_entries_of_newer_versions_is_exported(
    format: ExportFormat,
) -> None:
    store, stream = await stored()
    notes = (
        NewEntry(SessionInfoChanged.kind, b'{"title":7}', v=9, lane="side"),
        NewEntry(Label.kind, b'{"text":7}', v=9, lane="side"),
        NewEntry(ImportSource.kind, b'{"of":"the future"}', v=9, lane="side"),
    )
    await store.commit(Commit(writes=(Write(stream=stream, entries=notes),), at=2))
    assert (await export_session(store, stream, format)).content


@pytest.mark.parametrize("format", ["pi", "operator"])
async def test_base64_data_in_tool_calls_is_restored_in_exports(
    format: ExportFormat,
) -> None:
    store = empty_store()
    await create(store)
    picture = b"\x89PNG\r\n\x1a\n"
    url = "data:image/png;base64," + base64.b64encode(picture).decode()
    call = assistant(tool_call("c", "look", {"url": url}))
    for said in (user("go"), call, tool_result("c", f"saw {url}", name="look")):
        message, contents = stored_message(said)
        write = Write(stream=StreamId("s"), entries=(new_tree(message),))
        await store.commit(Commit(writes=(write,), at=1, blobs=contents))
    text = (await export_session(store, StreamId("s"), format)).content.decode()
    assert text.count(url) == 2
