from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.shared_keys import meta_of
from perdure.interop.formats.claude_code.reader import parse
from perdure.interop.formats.detection import detect_format
from perdure.interop.formats.items import ParsedSource
from perdure.interop.formats.sources.content import Held
from perdure.session.kinds import OPAQUE, Compaction, Custom, CustomMessage
from perdure.session.messages import (
    Message,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
    user,
)
from perdure.session.notes import ImportedRecord, SessionInfoChanged
from tests.fakes.sources import (
    CLAUDE_CODE,
    check_items,
    claude_file,
    empty_store,
    imported,
    made_of,
    path_of,
    spoilt,
    texts_on,
    unaccounted_lines,
)

FILES = [claude_file(name) for name in CLAUDE_CODE]


def position_of(parsed: ParsedSource, alias: str) -> int:
    return next(n for n, item in enumerate(parsed.items) if item.alias == alias)


def file_of(*records: Mapping[str, object]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def said(uuid: str, parent: str | None, text: str = "x", **more: object) -> dict[str, object]:
    message = {"role": "user", "content": text}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": message, **more}


def answered(uuid: str, parent: str | None, **message: object) -> dict[str, object]:
    content = {"id": "m", "role": "assistant", "model": "c", "content": "y", **message}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": content}


@pytest.mark.parametrize("name", CLAUDE_CODE)
def test_every_line_of_a_file_is_imported_or_reported(name: str) -> None:
    assert unaccounted_lines(parse(claude_file(name))) == []


# -- answers, tools, usage


def test_parallel_calls_and_all_their_results_are_on_the_branch() -> None:
    path = path_of(parse(claude_file("tools.jsonl")))
    messages = [item.body for item in path if isinstance(item.body, Message)]
    parts = [part for message in messages for part in message.parts]
    calls = [part.id for part in parts if isinstance(part, ToolCallPart)]
    results = [part.call_id for part in parts if isinstance(part, ToolResultPart)]
    assert calls == results == ["t1", "t2", "t3"]


def test_blocks_of_answer_precede_results() -> None:
    parsed = parse(claude_file("tools.jsonl"))
    aliases = [item.alias for item in path_of(parsed)]
    assert aliases[:8] == ["u1", "a1", "a2", "a3", "a4", "r1", "r2", "a5"]


def test_usage_of_an_answer_is_counted_once() -> None:
    parsed = parse(claude_file("tools.jsonl"))
    with_usage = [
        item.alias
        for item in parsed.items
        if isinstance(item.body, Message) and item.body.usage is not None
    ]
    assert with_usage == ["a4", "a6", "a7"]


def test_text_after_tool_results_is_separate_message() -> None:
    parsed = parse(claude_file("tools.jsonl"))
    results, words = (item for item in parsed.items if item.number == 16)
    assert words.body == user("[Request interrupted by user]")
    assert (words.ordinal, words.alias) == (1, None)
    assert parsed.items[words.parent or 0] is results
    assert parsed.items[position_of(parsed, "q1")].parent == list(parsed.items).index(words)


def test_media_of_tool_results_are_blobs() -> None:
    assert len(parse(claude_file("tools.jsonl")).blobs) == 1


def test_meta_messages_are_sent_to_model_but_not_displayed() -> None:
    parsed = parse(claude_file("tools.jsonl"))
    body = parsed.items[position_of(parsed, "m1")].body
    assert isinstance(body, CustomMessage)
    assert body.in_context
    assert not body.is_displayed


def test_text_typed_during_a_model_call_becomes_a_message() -> None:
    parsed = parse(claude_file("tools.jsonl"))
    assert parsed.items[position_of(parsed, "q1")].body == user("and count the pears")


def test_failed_api_call_becomes_an_answer_with_an_error() -> None:
    parsed = parse(claude_file("tools.jsonl"))
    body = parsed.items[position_of(parsed, "a8")].body
    assert isinstance(body, Message)
    assert body.stop_reason == "error"


# -- side records


def test_record_without_a_message_is_stored_outside_the_tree() -> None:
    parsed = parse(claude_file("tools.jsonl"))
    progress = parsed.items[position_of(parsed, "p1")]
    assert progress.body == ImportedRecord("claude-code", "progress")
    assert progress.about == position_of(parsed, "a4")
    assert parsed.warnings == ()


def test_records_of_unknown_types_are_stored_outside_the_conversation_and_reported() -> None:
    parsed = parse(claude_file("sidechain.jsonl"))
    assert made_of(parsed, 13).body == ImportedRecord("claude-code", "brand-new-record")
    assert any("brand-new-record" in text for text in parsed.warnings)


def test_summary_of_another_session_does_not_become_the_title() -> None:
    parsed = parse(claude_file("tools.jsonl"))
    assert made_of(parsed, 20).body == ImportedRecord("claude-code", "summary")
    assert made_of(parsed, 21).body == SessionInfoChanged(title="Counting the orchard")


def test_title_set_by_the_user_is_preferred_to_a_summary() -> None:
    parsed = parse(claude_file("compacted.jsonl"))
    titles = [item.body for item in parsed.items if isinstance(item.body, SessionInfoChanged)]
    assert titles == [SessionInfoChanged(title="My quince")]


def test_summary_at_the_file_start_becomes_the_title() -> None:
    summary = {"type": "summary", "summary": "Early", "leafUuid": "a"}
    parsed = parse(file_of(summary, said("a", None)))
    assert parsed.items[0].body == SessionInfoChanged(title="Early")


def test_header_of_the_imported_session_has_the_data_of_the_file() -> None:
    header = parse(claude_file("tools.jsonl")).header
    assert header.session == "5a1d0c9e-0000-4000-8000-00000000c001"
    assert header.cwd == "/home/ana/orchard"
    assert header.created_at == 1_775_000_000_000
    assert header.metadata == {"version": "2.1.14", "git_branch": "main"}


# -- compaction


def test_boundary_record_with_a_summary_becomes_a_compaction() -> None:
    parsed = parse(claude_file("compacted.jsonl"))
    compaction = parsed.items[position_of(parsed, "c1")]
    assert compaction.body == Compaction(
        "This session is being continued. A quince was planted.",
        tokens_before=155_000,
        reason="threshold",
    )
    assert compaction.parent == position_of(parsed, "a2")
    assert parsed.items[position_of(parsed, "u3")].parent == position_of(parsed, "c1")


def test_imported_compaction_is_part_of_the_branch() -> None:
    parsed = parse(claude_file("compacted.jsonl"))
    compaction = parsed.items[position_of(parsed, "c2")]
    assert isinstance(compaction.body, Compaction)
    assert compaction.body.reason == "manual"
    assert compaction.references == {"first_kept": position_of(parsed, "u3")}
    assert parsed.items[position_of(parsed, "u4")].parent == position_of(parsed, "c2")


def test_summary_message_without_a_boundary_becomes_a_compaction() -> None:
    parsed = parse(
        file_of(said("a", None), answered("b", "a"), said("c", None, isCompactSummary=True))
    )
    assert isinstance(parsed.items[2].body, Compaction)
    assert parsed.items[2].parent == 1


# -- branches


def test_side_chains_are_branches_outside_the_current_branch() -> None:
    parsed = parse(claude_file("sidechain.jsonl"))
    assert texts_on(path_of(parsed)) == [
        "Ask the gardener",
        "",
        "The pear, 90 years.",
        "The pear is 90.",
        "Second wording, after going back",
        "Second answer.",
    ]
    side = path_of(parsed, position_of(parsed, "sa2"))
    assert [item.alias for item in side] == ["su1", "sa1", "sr1", "sa2"]


def test_rewind_creates_a_branch() -> None:
    parsed = parse(claude_file("sidechain.jsonl"))
    assert parsed.items[position_of(parsed, "u2")].parent == position_of(parsed, "a2")
    assert parsed.items[position_of(parsed, "u3")].parent == position_of(parsed, "a2")


def test_side_chain_file_is_separate_session() -> None:
    agent: dict[str, object] = {"isSidechain": True, "agentId": "a17", "sessionId": "s"}
    parsed = parse(file_of({**said("a", None), **agent}, {**said("b", "a"), **agent}))
    assert parsed.header.session == "s:agent-a17"
    assert (parsed.header.parent, parsed.header.is_subagent) == ("s", True)
    assert parsed.leaf == 1


async def test_agent_session_has_parent_session_and_call() -> None:
    store = empty_store()
    parent = (await imported(store, claude_file("agents.jsonl"))).session
    agent = (await imported(store, claude_file("agent-ae267a1.jsonl"))).session
    header = (await store.state(agent)).header
    assert (header.origin, header.parent) == ("subagent", parent)
    result = await store.entry(parent, await store.resolve(parent, "r1"))
    assert meta_of(result.body) == {"subagent": agent}
    assert result.message is not None
    [part] = result.message.parts
    assert isinstance(part, ToolResultPart)
    assert part.call_id == "toolu_1"


async def test_agent_session_can_be_imported_before_its_parent_session() -> None:
    store = empty_store()
    agent = (await imported(store, claude_file("agent-ae267a1.jsonl"))).session
    parent = (await imported(store, claude_file("agents.jsonl"))).session
    assert (await store.state(agent)).header.parent == parent
    assert [each.id for each in await store.sessions()] == [parent]
    assert (await store.maintenance.verify()).is_ok


# -- files written by hand, damaged files


def test_records_without_parents_form_one_chain() -> None:
    parsed = parse(claude_file("chain.jsonl"))
    tree = [n for n, item in enumerate(parsed.items) if item.lane == "tree"]
    assert [parsed.items[n].parent for n in tree] == [None, *tree[:-1]]
    assert any("one chain" in text for text in parsed.warnings)


def test_record_with_a_parent_id_is_placed_below_that_parent() -> None:
    lines = [said("a", None), said("b", None), said("c", None), said("d", "a")]
    parsed = parse(file_of(*lines))
    assert [item.parent for item in parsed.items] == [None, 0, 1, 0]


def test_malformed_records_are_reported_with_their_numbers() -> None:
    parsed = parse(claude_file("chain.jsonl"))
    assert [line.number for line in parsed.malformed] == [5, 6, 7, 8, 9, 10]
    assert made_of(parsed, 5).body == Custom("claude-code:message", "not an object")


def test_lines_of_other_sessions_are_stored_and_reported() -> None:
    parsed = parse(claude_file("chain.jsonl"))
    assert parsed.header.session == "by-hand"
    assert any("1 other session" in text for text in parsed.warnings)


def test_truncated_line_with_ids_keeps_parent_and_child() -> None:
    cut = b'{"parentUuid":"b","isSidechain":false,"uuid":"c","type":"assistant","message":{"co\n'
    content = file_of(said("a", None), said("b", "a")) + cut + file_of(said("d", "c"))
    parsed = parse(content)
    assert [item.parent for item in parsed.items] == [None, 0, 1, 2]
    assert parsed.items[2].kind == OPAQUE


def test_record_with_an_unreadable_parent_follows_the_previous_record() -> None:
    content = file_of(said("a", None), said("b", "a")) + b"{lost\n" + file_of(said("d", "c"))
    assert [item.parent for item in parse(content).items] == [None, 0, 1]


def test_parts_of_unknown_types_are_stored_without_signatures() -> None:
    parsed = parse(claude_file("chain.jsonl"))
    body = made_of(parsed, 11).body
    assert isinstance(body, Message)
    [part] = body.parts
    assert isinstance(part, UnknownPart)
    assert b"signature" not in bytes(part.raw)


def test_plain_strings_in_content_become_text_parts() -> None:
    body = made_of(parse(claude_file("chain.jsonl")), 3).body
    assert isinstance(body, Message)
    assert body.parts == (TextPart("a plain string"),)


@given(spoilt(FILES))
def test_every_line_of_a_damaged_file_is_stored(content: bytes) -> None:
    check_items(parse(content))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_crash(content: bytes) -> None:
    check_items(parse(content))


def test_entries_are_in_the_order_of_the_file() -> None:
    for name in CLAUDE_CODE:
        numbers = [item.number for item in parse(claude_file(name)).items]
        assert all(before <= after for before, after in pairwise(numbers))


THIN = (
    b'{"type":"user","message":{"role":"user","content":"Hello"}}\n'
    b'{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"Yes?"}]}}\n'
)
"""Lines that contain no session, no id and no parent."""


async def test_file_with_minimal_lines_is_imported_as_one_chain(
    tmp_path: Path,
) -> None:
    assert detect_format(Held(THIN)) == "claude-code"
    parsed = parse(THIN)
    check_items(parsed)
    assert texts_on(path_of(parsed)) == ["Hello", "Yes?"]
    store = empty_store()
    id = "0196f0c2-0000-7000-8000-000000000001"
    for name, session in ((id, id), ("notes", "notes-"), ("other", "other-")):
        file = tmp_path / f"{name}.jsonl"
        file.write_bytes(THIN)
        report = await imported(store, file)
        assert (report.session.startswith(session), report.messages) == (True, 2)
        assert not (await imported(store, file)).is_new
        file.write_bytes(THIN + THIN.replace(b"Hello", b"And now?"))
        grown = await imported(store, file)
        assert (grown.session, grown.messages) == (report.session, 2)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"user","message":"Hello"}',
        b'{"type":"user","message":{"content":"Hello"}}',
        b'{"type":"user","message":{"role":"assistant","content":"Hello"}}',
        b'{"type":"user","message":{"role":"user"}}',
        b'{"type":"system","message":{"role":"system","content":"x"}}',
    ],
)
def test_line_that_is_not_a_message_is_not_detected_as_claude_code(line: bytes) -> None:
    assert detect_format(Held(line)) is None
