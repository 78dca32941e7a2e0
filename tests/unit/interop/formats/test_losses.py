"""Each loss is counted once and described in a message."""

from __future__ import annotations

import msgspec

from perdure.interop.formats.losses import Losses
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import TextPart, ThinkingPart, UnknownPart


def said(body: bytes, kind: str = "message") -> Entry:
    return Entry(StreamId("s"), 0, "tree", None, None, 1, kind, 1, body)


def test_export_without_losses_gives_no_warning() -> None:
    lost = Losses()
    lost.add("tree", 0)
    lost.add_meta(said(b'{"role":"user","parts":[]}'))
    lost.add_header(StreamHeader(StreamId("s"), 1))
    lost.add_ids([EntryId("s/0")], {"a": EntryId("s/0")}, {EntryId("s/0"): "a"})
    lost.add_records([said(b"{}")])
    assert lost.texts() == []


def test_metadata_of_message_is_reported_unless_supported() -> None:
    lost = Losses()
    entry = said(b'{"role":"user","parts":[],"meta":{"reactions":[],"mood":"good"}}')
    lost.add_meta(entry, ("reactions",))
    lost.add_meta(entry)
    assert lost.texts() == [
        "not exported: message field 'mood' (2)",
        "not exported: message field 'reactions' (1)",
    ]


def test_omitted_parts_are_reported_by_reason() -> None:
    lost = Losses()
    lost.add_part(UnknownPart(msgspec.Raw(b"{}")))
    lost.add_part(ThinkingPart("", is_redacted=True))
    lost.add_part(TextPart("in the wrong place"))
    assert lost.texts() == [
        "not exported: part of an unknown type (1)",
        "not exported: part that a message of its role cannot hold (1)",
        "not exported: thinking that its provider withheld (1)",
    ]


def test_lost_header_fields_are_reported() -> None:
    lost = Losses()
    described: dict[str, object] = {"format": "pi", "session": "x", "git": {"branch": "main"}}
    header = StreamHeader(
        StreamId("s"),
        1,
        origin="subagent",
        parent=StreamId("p"),
        metadata={"import": described, "team": "blue"},
    )
    lost.add_header(header)
    assert lost.texts() == [
        "not exported: mark of a subagent's session (1)",
        "not exported: origin of the session (1)",
        "not exported: session field 'git' (1)",
        "not exported: session field 'team' (1)",
    ]


def test_foreign_ids_and_records_that_an_export_omits_are_counted() -> None:
    lost = Losses()
    ids = {"a": EntryId("s/0"), "b": EntryId("s/1"), "note": EntryId("s/2")}
    lost.add_ids([EntryId("s/0"), EntryId("s/1")], ids, {EntryId("s/0"): "a"})
    lost.add_records([said(b"{}", "imported_record"), said(b"{}")])
    assert lost.texts() == [
        "not exported: foreign id of an entry (1)",
        "not exported: record outside the conversation (1)",
    ]


def test_entries_that_the_format_cannot_express_are_reported_by_kind() -> None:
    lost = Losses()
    kinds = ("turn_started", "turn_started", "session_ended", "label", "compaction_undone")
    notes = [msgspec.structs.replace(said(b"{}", kind), lane="side") for kind in kinds]
    lost.add_notes([*notes, said(b"{}")])
    told = "not exported: perdure's own entries (session_ended 1, turn_started 2)"
    assert lost.texts() == [told]
