from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.lines import lines_of
from perdure.codecs.pi.codec import to_line
from perdure.codecs.pi.words import LEAF_MARKER
from perdure.interop.formats.items import ParsedSource
from perdure.interop.formats.pi.reader import parse
from perdure.session.kinds import (
    OPAQUE,
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.messages import MESSAGE, Message, user
from perdure.session.notes import ImportedRecord, Label, LeafMoved, SessionInfoChanged
from tests.fakes.sources import (
    PI,
    check_items,
    made_of,
    path_of,
    pi_file,
    spoilt,
    texts_on,
    unaccounted_lines,
)

FILES = [pi_file(name) for name in PI]
HEADER = {"type": "session", "version": 3, "id": "x", "timestamp": "2026-01-01T00:00:00.000Z"}


def file_of(*records: Mapping[str, object]) -> bytes:
    return b"".join(to_line(record) + b"\n" for record in (HEADER, *records))


def said(id: str, parent: str | None, text: str = "x") -> dict[str, object]:
    message = {"role": "user", "content": text, "timestamp": 5}
    return {"type": "message", "id": id, "parentId": parent, "message": message}


def position_of(parsed: ParsedSource, number: int) -> int:
    return list(parsed.items).index(made_of(parsed, number))


@pytest.mark.parametrize("name", PI)
def test_every_line_of_a_file_is_imported_or_reported(name: str) -> None:
    assert unaccounted_lines(parse(pi_file(name))) == []


def test_model_usage_of_tool_is_stored_with_result() -> None:
    usage = {"input": 5, "output": 2, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 7}
    result: dict[str, object] = {
        "role": "toolResult",
        "toolCallId": "c",
        "toolName": "f",
        "content": [],
    }
    first = {**said("b1", None), "message": {**result, "usage": usage}}
    parsed = parse(file_of(first, {**said("b2", "b1"), "message": result}))
    assert [item.meta for item in parsed.items] == [{"usage": usage}, None]


# -- version 1


def test_pi_file_of_version_1_is_one_chain_in_file_order() -> None:
    parsed = parse(pi_file("v1.jsonl"))
    assert path_of(parsed) == list(parsed.items)
    assert [item.alias for item in parsed.items] == [None] * 11
    assert parsed.header.session == "0f6f3f0e-7d55-4c83-9d0a-6f3ad2b7b001"
    assert parsed.header.cwd == "/home/ana/orchard"
    assert parsed.header.created_at == 1_775_000_000_000
    assert parsed.header.metadata["modelId"] == "claude-sonnet-4-5"


def test_first_kept_index_includes_the_header_line() -> None:
    parsed = parse(pi_file("v1.jsonl"))
    # Index 7 is line 8: the header has index 0.
    assert made_of(parsed, 9).references == {"first_kept": position_of(parsed, 8)}


@pytest.mark.parametrize("index", [0, -1, 99, "7", None])
def test_invalid_first_kept_index_is_ignored(index: object) -> None:
    compaction = {"type": "compaction", "summary": "s", "firstKeptEntryIndex": index}
    message = {"type": "message", "message": {"role": "user", "content": "x"}}
    assert parse(file_of(message, compaction)).items[1].references is None


def test_first_kept_index_skips_unreadable_lines() -> None:
    first, second = pi_file("v1.jsonl").split(b"\n", 1)
    parsed = parse(first + b"\n\ngarbage\n" + second)
    assert made_of(parsed, 11).references == {"first_kept": position_of(parsed, 10)}


def test_settings_in_a_pi_header_add_no_entries() -> None:
    kinds = [item.kind for item in parse(pi_file("v1.jsonl")).items]
    assert kinds.count(ModelChange.kind) == 1
    assert kinds.count(ThinkingChange.kind) == 1


# -- the tree of versions 2 and 3


def test_child_of_a_label_gets_the_parent_of_the_label() -> None:
    parsed = parse(pi_file("v2.jsonl"))
    label, child = made_of(parsed, 4), made_of(parsed, 5)
    assert (label.body, label.lane) == (Label("choice"), "side")
    assert label.about == child.parent == position_of(parsed, 3)


def test_all_branches_are_stored_and_the_leaf_is_the_last_line() -> None:
    parsed = parse(pi_file("v2.jsonl"))
    assert texts_on(path_of(parsed)) == [
        "Plan the harvest",
        "By row, or by kind?",
        "By kind, then",
        "Pears before the rain.",
    ]
    assert texts_on(path_of(parsed, position_of(parsed, 6)))[2:] == ["By row", "Row 1 first."]


def test_imported_summary_keeps_its_references_and_file_lists() -> None:
    parsed = parse(pi_file("v2.jsonl"))
    summary, compaction = made_of(parsed, 7), made_of(parsed, 10)
    assert summary.body == BranchSummary(
        "By row was tried: row 1 first.", read_files=("rows.csv",), modified_files=("plan.md",)
    )
    assert summary.references == {"from_id": position_of(parsed, 3)}
    assert compaction.body == Compaction(
        "Harvest by kind.", tokens_before=900, reason="import", read_files=("rows.csv",)
    )
    assert compaction.references == {"first_kept": position_of(parsed, 8)}


def test_hook_message_is_a_custom_message() -> None:
    body = made_of(parse(pi_file("v2.jsonl")), 8).body
    assert isinstance(body, CustomMessage)
    assert body.custom_type == "weather"


def test_each_record_of_version_3_becomes_an_entry_of_the_right_kind() -> None:
    assert [item.kind for item in parse(pi_file("v3.jsonl")).items] == [
        ModelChange.kind,
        ThinkingChange.kind,
        *[MESSAGE] * 5,
        SessionInfoChanged.kind,
        Label.kind,
        Custom.kind,
        *[CustomMessage.kind] * 3,
        *[MESSAGE] * 2,
        Compaction.kind,
        MESSAGE,
        Label.kind,
        Label.kind,
    ]


def test_media_become_blobs_and_same_picture_is_stored_once() -> None:
    parsed = parse(pi_file("v3.jsonl"))
    assert len(parsed.blobs) == 1
    assert parsed.blobs[0].startswith(b"\x89PNG")


def test_label_kept_by_a_compaction_is_replaced_by_the_next_entry() -> None:
    parsed = parse(pi_file("v3.jsonl"))
    compaction = made_of(parsed, 17)
    assert isinstance(compaction.body, Compaction)
    assert compaction.body.reason == "hook"
    # It names the label of line 10; line 11 is what follows that on the branch.
    assert compaction.references == {"first_kept": position_of(parsed, 11)}


def test_label_at_the_file_end_is_not_the_leaf() -> None:
    parsed = parse(pi_file("v3.jsonl"))
    assert parsed.leaf == position_of(parsed, 18)


def test_label_with_unknown_target_has_no_effect() -> None:
    label: dict[str, object] = {"type": "label", "id": "b", "parentId": "a"}
    parsed = parse(file_of(said("a", None), {**label, "targetId": "gone", "label": "x"}))
    assert parsed.items[1].about is None
    assert len(parsed.warnings) == 1


def test_empty_name_record_does_not_change_the_title() -> None:
    parsed = parse(file_of({"type": "session_info", "id": "a", "parentId": None, "name": " "}))
    assert parsed.items[0].body == SessionInfoChanged()


# -- additions of newer versions


def test_retained_messages_of_a_compaction_are_imported() -> None:
    parsed = parse(pi_file("newer.jsonl"))
    body = made_of(parsed, 4).body
    assert isinstance(body, Compaction)
    assert body.retained is not None
    assert [message.text for message in body.retained] == ["Count the apples", "Nine.", "none open"]
    assert body.usage is not None
    assert body.usage.cost_microcents == 200_000


def test_reference_of_a_compaction_to_itself_is_ignored() -> None:
    assert made_of(parse(pi_file("newer.jsonl")), 8).references is None


def test_records_of_unknown_types_become_custom_entries_in_their_branch() -> None:
    parsed = parse(pi_file("newer.jsonl"))
    usage, system = made_of(parsed, 5), made_of(parsed, 6)
    assert isinstance(usage.body, Custom)
    assert usage.body.custom_type == "pi:usage"
    assert isinstance(system.body, Custom)
    assert system.parent == position_of(parsed, 5)
    assert parsed.malformed == ()
    assert len(parsed.warnings) == 2


def test_perdure_leaf_marker_selects_the_leaf() -> None:
    marker: dict[str, object] = {"type": "custom", "customType": LEAF_MARKER, "id": "c"}
    parsed = parse(file_of(said("a", None), said("b", "a"), {**marker, "parentId": "a"}))
    assert parsed.leaf == 0
    assert parsed.items[2].body == LeafMoved(None)
    assert parsed.items[2].references == {"target": 0}


# -- damaged files


def test_malformed_lines_are_reported_with_their_numbers() -> None:
    parsed = parse(pi_file("damaged.jsonl"))
    assert sorted(line.number for line in parsed.malformed) == [4, 6, 8, 10]
    assert parsed.blank_lines == (3,)
    for number in (4, 6, 8, 10):
        assert any(text.startswith(f"line {number}:") for text in parsed.warnings)


def test_truncated_line_with_ids_keeps_parent_and_child() -> None:
    parsed = parse(pi_file("damaged.jsonl"))
    cut = made_of(parsed, 4)
    assert (cut.kind, cut.alias, cut.parent) == (OPAQUE, "d0000002", position_of(parsed, 2))
    assert cut.body == list(lines_of(pi_file("damaged.jsonl")))[3].content
    assert made_of(parsed, 5).parent == position_of(parsed, 4)


def test_record_with_an_unreadable_parent_follows_the_previous_record() -> None:
    parsed = parse(pi_file("damaged.jsonl"))
    assert made_of(parsed, 7).parent == position_of(parsed, 5)


def test_record_with_a_missing_parent_becomes_a_root() -> None:
    parsed = parse(file_of(said("a", None), said("c", "b")))
    assert [item.parent for item in parsed.items] == [None, None]
    assert parsed.leaf == 1


def test_tool_result_with_broken_text_remains_in_context() -> None:
    body = made_of(parse(pi_file("damaged.jsonl")), 9).body
    assert isinstance(body, Message)
    assert body.text == "half a pair: \ufffd, and bytes: \ufffd\ufffd"


def test_second_header_is_stored_outside_the_tree() -> None:
    parsed = parse(pi_file("damaged.jsonl"))
    assert made_of(parsed, 13).body == ImportedRecord("pi", "session")


def test_cycle_of_parents_in_a_file_is_broken() -> None:
    parsed = parse(pi_file("damaged.jsonl"))
    assert texts_on(path_of(parsed)) == ["We are a circle", "Indeed"]


def test_file_without_header_has_all_entries_but_no_session_id() -> None:
    parsed = parse(pi_file("v3.jsonl").partition(b"\n")[2])
    assert parsed.header.session is None
    assert len(parsed.items) == len(parse(pi_file("v3.jsonl")).items)


def test_message_without_role_or_content_is_stored_outside_context() -> None:
    body = made_of(parse(pi_file("damaged.jsonl")), 8).body
    assert body == Custom("pi:message", {"role": "user"})


# -- arbitrary input


@given(spoilt(FILES))
def test_every_line_of_a_damaged_file_is_stored(content: bytes) -> None:
    check_items(parse(content))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_crash(content: bytes) -> None:
    check_items(parse(content))


def test_import_progress_is_reported_up_to_the_end() -> None:
    told: list[tuple[int, int]] = []
    content = pi_file("v3.jsonl")
    parse(content, lambda done, total: told.append((done, total)))
    assert told[-1] == (len(content), len(content))


def test_each_entry_body_contains_the_data_of_its_record() -> None:
    assert parse(file_of(said("a", None, "hello"))).items[0].body == user("hello")
