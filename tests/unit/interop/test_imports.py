from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from perdure.codecs.pi.codec import PI
from perdure.errors import FormatError, HeadConflict, SessionExists, TurnOpen
from perdure.interop.exports import export_session
from perdure.interop.imports import import_source
from perdure.interop.reports import ExportFormat
from perdure.session.codec import body_of, new_side, new_tree
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.kinds import OPAQUE, Compaction
from perdure.session.ledger import TurnStarted
from perdure.session.messages import assistant, user
from perdure.session.notes import ImportSource, LeafMoved
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult, Write
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.samples import case
from tests.fakes.session_lines import record_line
from tests.fakes.sources import (
    claude_file,
    empty_store,
    every_file,
    growing_files,
    imported,
    operator_file,
    pi_file,
)
from tests.fakes.streams import append

V1 = StreamId("0f6f3f0e-7d55-4c83-9d0a-6f3ad2b7b001")
V3 = StreamId("0f6f3f0e-7d55-4c83-9d0a-6f3ad2b7b003")
TOOLS = StreamId("5a1d0c9e-0000-4000-8000-00000000c001")


def lines(content: bytes, count: int) -> bytes:
    """Return the first `count` lines."""
    return b"".join(line + b"\n" for line in content.split(b"\n")[:count])


async def texts(store: SessionStore, stream: StreamId) -> list[str]:
    """Return the texts of the messages on the session's branch."""
    state = await store.state(stream)
    path = await store.branch(stream, state.leaf)
    return [entry.message.text for entry in path if entry.message is not None]


async def move_leaf(store: SessionStore, stream: StreamId, target: EntryId | None) -> None:
    await append(store, new_side(LeafMoved(target)), stream=stream)


async def sources(store: SessionStore, stream: StreamId) -> list[ImportSource]:
    found = [body_of(entry) for entry in await store.notes(stream, (ImportSource.kind,))]
    return [body for body in found if isinstance(body, ImportSource)]


# -- a new session


async def test_import_does_not_change_the_subject_of_existing_sessions() -> None:
    store = empty_store()
    about_ann = partial(
        import_source, store, clock=ManualClock(), random=SeededRandom(1), subject="ann"
    )
    await about_ann(pi_file("v3.jsonl"))
    assert (await store.state(V3)).header.subject == "ann"
    again = await imported(store, pi_file("v3.jsonl"))
    assert (again.entries, again.warnings) == (0, ())
    exported = await export_session(store, V3)
    other = empty_store()
    await import_source(
        other, exported.content, clock=ManualClock(), random=SeededRandom(1), subject="bob"
    )
    assert (await other.state(V3)).header.subject == "bob"
    told = await import_source(
        store, exported.content, clock=ManualClock(), random=SeededRandom(1), subject="bob"
    )
    assert (told.session, told.entries) == (V3, 0)
    assert "stays about ann" in told.warnings[-1]


async def test_imported_session_has_the_id_of_the_file() -> None:
    store = empty_store()
    report = await imported(store, pi_file("v3.jsonl"))
    state = await store.state(V3)
    assert (report.session, report.format, report.is_new) == (V3, "pi", True)
    assert (report.entries, report.messages, report.skipped) == (19, 8, 0)
    assert state.header.origin == "import"
    assert state.header.cwd == "/home/ana/orchard"
    assert state.header.created_at == 1_775_000_000_000
    assert state.info.title == "The pixel"
    assert state.info.messages == 8


async def test_log_starts_with_import_source() -> None:
    store = empty_store()
    content = pi_file("damaged.jsonl")
    report = await imported(store, content)
    [source] = await sources(store, report.session)
    assert source.format == "pi"
    assert source.blob == blob_hash(content)
    assert (source.offset, source.length) == (0, len(content))
    assert (source.first_line, source.lines, source.malformed) == (1, 15, (4, 6, 8, 10))
    assert await store.blob(source.blob) == content


async def test_entries_have_times_and_ids_of_source() -> None:
    store = empty_store()
    await imported(store, pi_file("v3.jsonl"))
    entry = await store.entry(V3, await store.resolve(V3, "b0000003"))
    assert entry.at == 1_775_000_002_000
    assert entry.seq == 3


async def test_imported_references_point_to_the_imported_entries() -> None:
    store = empty_store()
    await imported(store, pi_file("v1.jsonl"))
    path = await store.branch(V1, (await store.state(V1)).leaf)
    compaction = next(entry for entry in path if entry.kind == Compaction.kind)
    body = body_of(compaction)
    assert isinstance(body, Compaction)
    kept = await store.entry(V1, body.first_kept or EntryId(""))
    assert kept.message is not None
    assert kept.message.text.startswith("And how many are pears?")


async def test_imported_leaf_is_the_last_entry_of_the_file() -> None:
    store = empty_store()
    await imported(store, claude_file("sidechain.jsonl"))
    await imported(store, pi_file("v2.jsonl"))
    for stream, last in (("5a1d0c9e-0000-4000-8000-00000000c003", "a4"), (None, "a000000a")):
        name = StreamId(stream or "0f6f3f0e-7d55-4c83-9d0a-6f3ad2b7b002")
        assert (await store.state(name)).leaf == await store.resolve(name, last)


async def test_imported_leaf_can_be_an_earlier_entry() -> None:
    store = empty_store()
    side = claude_file("sidechain.jsonl").split(b"\n")
    report = await imported(store, b"\n".join([*side[:2], *side[6:12], *side[2:6]]))
    state = await store.state(report.session)
    assert state.leaf == await store.resolve(report.session, "a4")


async def test_every_fixture_gives_a_valid_store() -> None:
    store = empty_store()
    for content in every_file():
        await imported(store, content)
    assert (await store.maintenance.verify()).is_ok


async def test_file_name_is_stored_as_the_name_of_the_import_source(tmp_path: Path) -> None:
    store = empty_store()
    path = tmp_path / "2026_x.jsonl"
    path.write_bytes(pi_file("v3.jsonl"))
    await imported(store, path)
    assert [source.name for source in await sources(store, V3)] == ["2026_x.jsonl"]


async def test_unrecognized_file_is_rejected() -> None:
    store = empty_store()
    for content in (b"", b"hello\n", b'{"a":1}\n'):
        with pytest.raises(FormatError):
            await imported(store, content)
        with pytest.raises(FormatError):
            await imported(store, content, format="pi")
    with pytest.raises(FormatError, match="cannot be read"):
        await imported(store, Path("/nowhere/at/all.jsonl"))
    assert (await store.info()).streams == 0


async def test_damaged_perdure_export_is_rejected() -> None:
    store = empty_store()
    report = await imported(store, pi_file("v3.jsonl"))
    content = (await export_session(store, report.session)).content
    spoilt = content.replace(b'"parent_id":"%b/1"' % V3.encode(), b'"parent_id":"elsewhere/1"')
    assert spoilt != content
    with pytest.raises(FormatError, match="not a log"):
        await imported(empty_store(), spoilt)


async def test_import_reports_its_progress() -> None:
    told: list[tuple[int, int]] = []
    content = pi_file("v3.jsonl")
    await import_source(
        empty_store(),
        content,
        clock=ManualClock(),
        random=SeededRandom(),
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(len(content), len(content))]


# -- the same file again


async def test_importing_the_same_file_again_adds_nothing() -> None:
    store = empty_store()
    for content in every_file():
        first = await imported(store, content)
        before = await store.state(first.session)
        again = await imported(store, content)
        assert (again.session, again.entries, again.is_new) == (first.session, 0, False)
        assert again.warnings == ()
        assert await store.state(first.session) == before


async def test_older_copy_of_a_file_adds_nothing_and_is_reported() -> None:
    store = empty_store()
    await imported(store, pi_file("v3.jsonl"))
    before = await store.state(V3)
    report = await imported(store, lines(pi_file("v3.jsonl"), 9))
    assert (report.entries, report.is_new, len(report.warnings)) == (0, False, 1)
    assert await store.state(V3) == before


async def test_two_concurrent_imports_make_one_session() -> None:
    store = RacedStore()
    store.failures = [SessionExists(V3)]
    report = await imported(store, pi_file("v3.jsonl"))
    assert (report.session, report.entries) == (V3, 19)
    assert (await store.info()).streams == 1


# -- grown file


async def test_repeated_imports_of_a_growing_file_equal_one_import() -> None:
    for content in growing_files():
        with case(content):
            whole, pieces = empty_store(), empty_store()
            count = content.count(b"\n")
            report = await imported(whole, content)
            for part in (count // 3, 2 * count // 3, count + 1):
                await imported(
                    pieces, lines(content, part).removesuffix(b"\n") + b"\n" * (part <= count)
                )
            expected = await texts(whole, report.session)
            assert await texts(pieces, report.session) == expected
            kinds = [e.kind for e in await pieces.entries(report.session)]
            assert kinds.count(ImportSource.kind) == 3
            assert (await pieces.state(report.session)).info.messages == report.messages


async def test_import_of_a_grown_file_adds_only_the_new_part() -> None:
    store = empty_store()
    content = pi_file("v3.jsonl")
    await imported(store, lines(content, 8))
    report = await imported(store, content)
    assert (report.entries, report.is_new) == (12, False)
    old, new = await sources(store, V3)
    assert new.offset == old.length == len(lines(content, 8))
    assert (new.first_line, new.lines) == (9, 12)
    assert await store.blob(new.blob) == content[new.offset :]


async def test_import_of_a_grown_file_moves_the_leaf() -> None:
    store = empty_store()
    await imported(store, lines(pi_file("v3.jsonl"), 8))
    await imported(store, pi_file("v3.jsonl"))
    assert (await texts(store, V3))[-1] == "Thanks"


async def test_branch_selected_in_perdure_stays_selected_after_a_second_import() -> None:
    store = empty_store()
    await imported(store, lines(pi_file("v3.jsonl"), 8))
    target = await store.resolve(V3, "b0000003")
    await move_leaf(store, V3, target)
    await imported(store, pi_file("v3.jsonl"))
    assert (await store.state(V3)).leaf == target


async def test_branch_continued_in_perdure_stays_selected_after_a_second_import() -> None:
    store = empty_store()
    await imported(store, lines(pi_file("v3.jsonl"), 8))
    [said] = await append(store, new_tree(user("Here")), stream=V3)
    report = await imported(store, pi_file("v3.jsonl"))
    assert (await store.state(V3)).leaf == said.id
    new = await store.entry(V3, await store.resolve(V3, "b000000e"))
    assert report.entries == 12
    assert said.id not in [entry.id for entry in await store.branch(V3, new.id)]


async def test_second_import_keeps_the_parents_given_in_the_file() -> None:
    store = empty_store()
    content = pi_file("v2.jsonl")
    stream = (await imported(store, lines(content, 6))).session
    await imported(store, content)
    summary = await store.entry(stream, await store.resolve(stream, "a0000006"))
    assert summary.parent_id == await store.resolve(stream, "a0000002")


@pytest.mark.parametrize("written", [1, 30, 100, 200])
async def test_incomplete_last_line_is_read_once_it_is_complete(written: int) -> None:
    store = empty_store()
    content = pi_file("v3.jsonl")
    cut = len(lines(content, 3)) + written
    first = await imported(store, content[:cut])
    assert first.malformed == (4,)
    second = await imported(store, content)
    assert second.malformed == ()
    assert (await store.state(V3)).info.messages == 8
    assert all(entry.kind != OPAQUE for entry in await store.entries(V3))
    assert (await export_session(store, V3, "pi")).content == content


async def test_usage_of_answer_is_not_counted_again_when_file_grows() -> None:
    store = empty_store()
    content = claude_file("tools.jsonl")
    await imported(store, lines(content, 5))
    await imported(store, content)
    path = await store.branch(TOOLS, (await store.state(TOOLS)).leaf)
    counted = [e for e in path if e.message is not None and e.message.usage is not None]
    assert len(counted) == 3


async def test_malformed_lines_added_to_a_file_are_stored() -> None:
    store = empty_store()
    content = pi_file("v3.jsonl")
    await imported(store, content)
    report = await imported(store, content + b"noise\n")
    assert (report.entries, report.malformed) == (0, (21,))
    assert (await export_session(store, V3, "pi")).content == content + b"noise\n"


async def test_file_that_grew_is_not_imported_into_an_open_turn() -> None:
    store = empty_store()
    await imported(store, lines(pi_file("v3.jsonl"), 8))
    lease = await store.acquire_lease(V3, "me", 1000)
    turn = new_side(TurnStarted(1, "agent"))
    write = Write(stream=V3, entries=(turn,), lease=lease)
    await store.commit(Commit(writes=(write,), at=START_MS))
    with pytest.raises(TurnOpen):
        await imported(store, pi_file("v3.jsonl"))


async def test_import_is_retried_after_concurrent_write() -> None:
    store = RacedStore()
    await imported(store, lines(pi_file("v3.jsonl"), 8))
    store.failures.append(HeadConflict(V3, 1, 2))
    report = await imported(store, pi_file("v3.jsonl"))
    assert report.entries == 12


class RacedStore(MemoryStore):
    """A store in which another process appends first, `failures` times."""

    def __init__(self) -> None:
        super().__init__(clock=ManualClock(), random=SeededRandom(1))
        self.failures: list[Exception] = []

    async def commit(self, commit: Commit) -> CommitResult:
        if self.failures:
            raise self.failures.pop()
        return await super().commit(commit)


# -- rewritten file


async def test_rewritten_file_becomes_separate_session() -> None:
    store = empty_store()
    content = pi_file("v3.jsonl")
    await imported(store, lines(content, 8))
    before = await store.entries(V3)
    report = await imported(store, content.replace(b"A blue pixel.", b"A blue dot."))
    assert (report.session, report.is_new) == (f"{V3}.2", True)
    assert "not a continuation" in report.warnings[0]
    assert await store.entries(V3) == before


async def test_migrated_file_is_matched_by_content_and_time() -> None:
    store = empty_store()
    await imported(store, pi_file("v1.jsonl"))
    migrated = await export_after_one_more(pi_file("v1.jsonl"))
    report = await imported(store, migrated)
    assert (report.session, report.entries) == (V1, 1)
    assert (await texts(store, V1))[-2:] == ["12 of them are pears.", "One more"]


async def export_after_one_more(content: bytes) -> bytes:
    """Return `content` with an added entry, in the form of a later version of pi."""
    store = empty_store()
    await imported(store, content)
    await append(store, new_tree(user("One more")), stream=V1)
    return (await export_session(store, V1, "pi")).content


async def test_file_with_same_id_and_other_content_becomes_a_separate_session() -> None:
    store = empty_store()
    await imported(store, pi_file("v3.jsonl"))
    other = pi_file("newer.jsonl").replace(b"01990000-7000-7000-8000-6f3ad2b7b004", V3.encode())
    report = await imported(store, other)
    assert (report.session, report.is_new) == (f"{V3}.2", True)
    assert any(V3 in text for text in report.warnings)
    assert (await imported(store, other)).session == f"{V3}.2"
    assert (await imported(store, pi_file("v3.jsonl"))).session == V3


async def test_import_never_changes_a_session_created_in_perdure() -> None:
    store = empty_store()
    await append_native(store, V3)
    assert (await imported(store, pi_file("v3.jsonl"))).session == f"{V3}.2"
    assert await texts(store, V3) == ["Hello", "Hi"]


async def append_native(store: SessionStore, stream: StreamId) -> list[Entry]:
    """Append a session that was not imported."""
    said = (new_tree(user("Hello")), new_tree(assistant("Hi")))
    write = Write(stream=stream, create=StreamHeader(stream, START_MS), entries=said)
    return list((await store.commit(Commit(writes=(write,), at=START_MS))).entries[0])


# -- own session continued by another program


async def test_pi_export_continued_in_pi_is_imported_into_its_session() -> None:
    store = empty_store()
    stream = StreamId("ours")
    await append_native(store, stream)
    exported = (await export_session(store, stream, "pi")).content
    assert (await imported(store, exported)).entries == 0
    last = exported.rstrip().split(b"\n")[-1].split(b'"id":"')[1][:16].decode()
    said = {"role": "user", "content": "From pi", "timestamp": 1}
    record = {"type": "message", "message": said}
    line = record_line(PI, record, "ffffffff", last, START_MS) + b"\n"
    report = await imported(store, exported + line)
    assert (report.session, report.entries, report.is_new) == ("ours", 1, False)
    assert await texts(store, stream) == ["Hello", "Hi", "From pi"]
    assert (await imported(store, exported + line)).entries == 0


@pytest.mark.parametrize("format", ["pi", "operator"])
async def test_file_of_an_unknown_version_is_read_and_reported(format: str) -> None:
    content = pi_file("v3.jsonl") if format == "pi" else operator_file("current.jsonl")
    newer = content.replace(b'"version":3', b'"version":99', 1)
    store = empty_store()
    report = await imported(store, newer)
    assert any("version 99" in warning for warning in report.warnings)
    known = await imported(empty_store(), content)
    assert (report.entries, report.messages) == (known.entries, known.messages)
    name: ExportFormat = "pi" if format == "pi" else "operator"
    assert (await export_session(store, report.session, name)).content == newer
