"""Decoding of records of an Operator file."""

from __future__ import annotations

from perdure.codecs.media import Media
from perdure.codecs.operator.bodies import said_by
from perdure.session.kinds import Compaction, Custom, ModelChange
from perdure.session.messages import Message, TextPart, ToolResultPart
from perdure.session.notes import ImportedRecord, LeafMoved


def test_leaf_record_selects_the_target_entry() -> None:
    moved = said_by({"type": "leaf", "target_id": "a"}, Media())
    assert (moved.body, moved.references) == (LeafMoved(None), (("target", "a"),))
    assert said_by({"type": "leaf"}, Media()).references == ()


def test_gateway_fields_become_meta_of_the_message() -> None:
    message = {"role": "user", "contents": [{"type": "text", "content": "x"}]}
    found = said_by({"type": "message", "message": message, "meta": {"reply_to": "7"}}, Media())
    assert (found.body, found.meta) == (Message("user", (TextPart("x"),)), {"reply_to": "7"})


def test_tool_name_of_a_result_is_read_from_perdure_metadata() -> None:
    for metadata, name in (({"perdure.name": "read"}, "read"), ({"name": "other"}, None)):
        block = {"type": "tool_result", "id": "c", "content": "out", "metadata": metadata}
        found = said_by(
            {"type": "message", "message": {"role": "tool", "contents": [block]}}, Media()
        )
        assert found.body == Message("tool", (ToolResultPart("c", "out", name=name),))


def test_channel_record_becomes_extension_state() -> None:
    channel = said_by({"type": "channel", "name": "web"}, Media())
    assert (channel.body, channel.unknown) == (Custom("operator:channel", {"name": "web"}), None)
    assert said_by({"type": "new"}, Media()).unknown == "'new' is stored without effect"


def test_settings_header_and_compaction_records_are_read() -> None:
    assert said_by({"type": "model_change", "model_id": "m"}, Media()).body == ModelChange("m")
    header = said_by({"type": "session_header"}, Media()).body
    assert header == ImportedRecord("operator", "session_header")
    compaction = {"type": "compaction", "summary": "s", "from_hook": True}
    assert said_by(compaction, Media()).body == Compaction("s", reason="hook")
