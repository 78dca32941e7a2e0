from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.shared_keys import meta_of
from perdure.context.build import build_context
from perdure.interop.exports import export_session
from perdure.interop.formats.items import Item, ParsedSource
from perdure.interop.formats.operator.reader import parse
from perdure.session.kinds import (
    OPAQUE,
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.messages import Message
from perdure.session.notes import ImportedRecord, Label, LeafMoved, SessionInfoChanged
from tests.fakes.sources import (
    OPERATOR,
    check_items,
    empty_store,
    imported,
    made_of,
    operator_file,
    path_of,
    spoilt,
    texts_on,
)

FILES = [operator_file(name) for name in OPERATOR]
HEADER: dict[str, object] = {"type": "session", "version": 3, "id": "s", "timestamp": 1.5}


def file_of(*records: Mapping[str, object]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def said(id: str, parent: str | None, text: str = "x", role: str = "user") -> dict[str, object]:
    message = {"contents": [{"type": "text", "content": text}], "timestamp": 2.0, "role": role}
    place = {} if parent is None else {"parent_id": parent}
    return {"id": id, "timestamp": 2.0, **place, "type": "message", "message": message}


def named(parsed: ParsedSource, alias: str) -> Item:
    return next(item for item in parsed.items if item.alias == alias)


def parent_of(parsed: ParsedSource, alias: str) -> str | None:
    parent = named(parsed, alias).parent
    return None if parent is None else parsed.items[parent].alias


@pytest.mark.parametrize("name", OPERATOR)
def test_every_line_of_a_file_is_imported_or_reported(name: str) -> None:
    check_items(parse(operator_file(name)))


# -- the sample of Operator's own documentation


def test_documented_sample_is_read_without_a_warning() -> None:
    parsed = parse(operator_file("sample.jsonl"))
    assert (parsed.warnings, parsed.malformed) == ((), ())
    assert parsed.leaf is not None
    assert parsed.items[parsed.leaf].alias == "a2"
    assert [item.alias for item in path_of(parsed)] == ["a1", "a2"]


async def test_context_of_the_documented_sample_ends_at_the_leaf() -> None:
    store = empty_store()
    report = await imported(store, operator_file("sample.jsonl"))
    state = await store.state(report.session)
    assert report.warnings == ()
    assert state.leaf == await store.resolve(report.session, "a2")
    context = build_context(await store.context_window(report.session, state.leaf))
    expected = ["How many apples are there?", "Nine."]
    assert [each.message.text for each in context.messages] == expected


async def test_documented_sample_is_exported_with_its_original_bytes() -> None:
    store = empty_store()
    report = await imported(store, operator_file("sample.jsonl"))
    exported = await export_session(store, report.session, "operator")
    assert exported.content == operator_file("sample.jsonl")


# -- the current form


def test_header_of_an_imported_file_gives_the_session_data() -> None:
    header = parse(operator_file("current.jsonl")).header
    assert header.session == "01978a00-7000-7000-8000-00000000a001"
    assert (header.created_at, header.cwd) == (1_750_000_000_250, "/home/ana/orchard")
    assert header.metadata["version"] == 3
    assert str(header.metadata["parent_session"]).endswith("old.jsonl")


def test_operator_times_in_seconds_become_milliseconds() -> None:
    assert named(parse(operator_file("current.jsonl")), "b0000003").at == 1_750_000_002_250


def test_every_operator_record_is_converted() -> None:
    parsed = parse(operator_file("current.jsonl"))
    assert named(parsed, "b0000001").body == Custom(
        "operator:channel", {"name": "telegram", "chat_id": "77", "user_id": "ana"}
    )
    assert named(parsed, "b0000002").body == ModelChange("anthropic:claude-sonnet-4-5")
    assert named(parsed, "b0000003").body == ThinkingChange("high")
    assert named(parsed, "b0000009").body == SessionInfoChanged(title="Apples and pears")
    assert named(parsed, "b0000010").body == Custom("notes", {"count": 9})
    summary = named(parsed, "b000000d").body
    assert isinstance(summary, BranchSummary)
    assert (summary.summary, summary.read_files) == ("Doubts were had.", ("apples.txt",))
    weather = named(parsed, "b000000e").body
    assert isinstance(weather, CustomMessage)
    assert (weather.custom_type, weather.is_displayed, weather.details) == (
        "weather",
        False,
        {"mm": 4},
    )


def test_leaf_record_selects_the_current_leaf() -> None:
    parsed = parse(operator_file("current.jsonl"))
    leaf = named(parsed, "b000000c")
    assert leaf.body == LeafMoved(None)
    assert leaf.references is not None
    assert parsed.items[leaf.references["target"]].alias == "b0000007"
    assert parent_of(parsed, "b000000d") == "b0000007"
    doubts = "Are you sure?"
    assert doubts not in texts_on(path_of(parsed))


def test_leaf_record_is_never_a_parent() -> None:
    records = [said("a", None), said("b", "a"), said("d", "l")]
    leaf = {"id": "l", "timestamp": 3.0, "parent_id": "b", "type": "leaf", "target_id": "a"}
    parsed = parse(file_of(HEADER, records[0], records[1], leaf, records[2]))
    assert parent_of(parsed, "d") == "b"


def test_leaf_record_without_a_target_clears_the_leaf() -> None:
    leaf = {"id": "l", "timestamp": 3.0, "parent_id": "a", "type": "leaf"}
    parsed = parse(file_of(HEADER, said("a", None), leaf))
    assert parsed.leaf is None
    assert parsed.warnings == ()
    check_items(parsed)


def test_leaf_record_with_an_unknown_target_does_not_move_the_leaf() -> None:
    leaf = {"id": "l", "timestamp": 3.0, "parent_id": "a", "type": "leaf", "target_id": "no"}
    parsed = parse(file_of(HEADER, said("a", None), leaf))
    assert [item.alias for item in path_of(parsed)] == ["a"]
    assert "leaf" in parsed.warnings[0]
    assert named(parsed, "l").body == ImportedRecord("operator", "leaf")


def test_labels_and_names_are_stored_outside_the_tree() -> None:
    parsed = parse(operator_file("current.jsonl"))
    label = named(parsed, "b0000008")
    assert label.body == Label("counted")
    assert label.about is not None
    assert parsed.items[label.about].alias == "b0000004"
    assert parent_of(parsed, "b000000a") == "b0000007"


def test_label_without_target_is_stored_and_reported() -> None:
    label = {"id": "l", "timestamp": 3.0, "type": "label", "label": "x", "target_id": "no"}
    parsed = parse(file_of(HEADER, said("a", None), label))
    assert named(parsed, "l").about is None
    assert "label" in parsed.warnings[0]


def test_label_kept_by_a_compaction_is_replaced_by_the_next_entry() -> None:
    parsed = parse(operator_file("current.jsonl"))
    item = named(parsed, "b000000f")
    assert isinstance(item.body, Compaction)
    assert (item.body.reason, item.body.tokens_before) == ("hook", 400)
    assert item.body.modified_files == ("pears",)
    assert item.references is not None
    assert parsed.items[item.references["first_kept"]].alias == "b000000d"


async def test_attachments_and_reactions_are_stored_with_the_message() -> None:
    store = empty_store()
    stream = (await imported(store, operator_file("current.jsonl"))).session
    entry = await store.entry(stream, await store.resolve(stream, "b0000004"))
    assert meta_of(entry.body) == {
        "reply_to": "12",
        "channel_message_id": "13",
        "attachments": [{"path": "/tmp/apples.png", "mime_type": "image/png"}],
        "reactions": ["👍"],
    }


def test_null_field_and_missing_field_are_equivalent() -> None:
    written = {"parent_id": None, "meta": None}
    parsed = parse(file_of(HEADER, {**said("a", None), **written}))
    assert (parsed.items[0].parent, parsed.items[0].meta) == (None, None)


def test_record_of_an_unknown_type_keeps_its_place() -> None:
    new = {"id": "n", "timestamp": 3.0, "parent_id": "a", "type": "dream", "about": "sheep"}
    parsed = parse(file_of(HEADER, said("a", None), new, said("b", "n")))
    assert named(parsed, "n").body == Custom("operator:dream", {"about": "sheep"})
    assert parent_of(parsed, "b") == "n"
    assert "dream" in parsed.warnings[0]


def test_empty_message_is_reported_and_stays_in_its_branch() -> None:
    empty = {"id": "m", "timestamp": 3.0, "parent_id": "a", "type": "message", "message": None}
    parsed = parse(file_of(HEADER, said("a", None), empty, said("b", "m")))
    assert [line.number for line in parsed.malformed] == [3]
    assert parent_of(parsed, "b") == "m"


def test_message_of_unknown_role_is_stored_outside_context() -> None:
    parsed = parse(file_of(HEADER, said("a", None, role="oracle")))
    assert isinstance(parsed.items[0].body, Custom)
    assert parsed.malformed == ()
    assert "oracle" in parsed.warnings[0]


# -- damage


def test_broken_line_with_readable_ids_stays_a_parent() -> None:
    broken = b'{"id":"b","timestamp":3.5,"parent_id":"a","type":"message","message":{"con\n'
    parsed = parse(file_of(HEADER, said("a", None)) + broken + file_of(said("c", "b")))
    assert made_of(parsed, 3).kind == OPAQUE
    assert [item.alias for item in path_of(parsed)] == ["a", "b", "c"]


def test_record_after_gap_gets_previous_record_as_parent() -> None:
    parsed = parse(file_of(HEADER, said("a", None)) + b"noise\n" + file_of(said("c", "b")))
    assert [item.alias for item in path_of(parsed)] == ["a", "c"]
    assert [line.number for line in parsed.malformed] == [3]


def test_text_with_unicode_line_ends_is_one_line() -> None:
    """Operator drops a line with a Unicode line end, because Operator splits the line there."""
    parsed = parse(operator_file("current.jsonl"))
    assert "picture\u2028please" in texts_on(path_of(parsed))[0]


def test_second_header_is_stored_without_effect() -> None:
    parsed = parse(file_of(HEADER, said("a", None), {**HEADER, "id": "t"}, said("b", "a")))
    assert parsed.header.session == "s"
    assert made_of(parsed, 3).body == ImportedRecord("operator", "session")
    assert "second header" in parsed.warnings[0]


def test_file_without_header_is_read_and_reported() -> None:
    parsed = parse(file_of(said("a", None), said("b", "a")))
    assert parsed.header.session is None
    assert len(path_of(parsed)) == 2
    assert "no header" in parsed.warnings[0]


@given(spoilt(FILES))
def test_every_line_of_a_damaged_file_is_stored(content: bytes) -> None:
    check_items(parse(content))


@given(st.lists(st.binary(max_size=200)))
def test_every_line_of_any_bytes_is_imported_or_reported(lines: list[bytes]) -> None:
    check_items(parse(b"\n".join(lines)))


# -- the legacy form


def test_legacy_operator_file_is_read_as_one_chain() -> None:
    parsed = parse(operator_file("legacy.jsonl"))
    assert parsed.header.session == "telegram:77"
    assert parsed.header.created_at == 1_775_037_600_000
    assert len(path_of(parsed)) == 6
    bodies = [item.body for item in path_of(parsed)]
    assert [body.role for body in bodies if isinstance(body, Message)] == [
        *("user", "assistant", "tool", "assistant", "assistant", "user")
    ]


async def test_resaved_legacy_file_adds_only_new_entries() -> None:
    """Each save changes the first line, so no file begins with the bytes of an earlier save."""
    store = empty_store()
    content = operator_file("legacy.jsonl")
    first = await imported(store, content)
    saved = content.replace(b"10:05:00", b"10:06:00")
    added = saved + b'{"role":"assistant","content":"You are welcome."}\n'
    report = await imported(store, added)
    assert (report.session, report.entries) == (first.session, 1)
    state = await store.state(report.session)
    assert state.info.messages == 7
    branch = await store.branch(report.session, state.leaf)
    assert len(branch) == 7
