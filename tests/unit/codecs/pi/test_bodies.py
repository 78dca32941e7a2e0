"""Decoding of records of a pi file."""

from __future__ import annotations

from perdure.codecs.fields import Fields
from perdure.codecs.media import Media
from perdure.codecs.pi.bodies import said_by
from perdure.session.kinds import BranchSummary, Compaction, Custom, CustomMessage, ModelChange
from perdure.session.messages import Message, TextPart, Usage
from perdure.session.notes import ImportedRecord, Label, LeafMoved

USAGE = {"input": 5, "output": 1, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": 0}}


def said(**fields: object) -> object:
    return said_by(fields, Media()).body


def test_usage_and_references_of_summaries_are_read() -> None:
    made: Fields = {"type": "compaction", "summary": "s", "firstKeptEntryId": "a", "usage": USAGE}
    found = said_by(made, Media())
    assert found.body == Compaction("s", reason="import", usage=Usage(5, 1))
    assert found.references == (("first_kept", "a"),)
    left = said_by({"type": "branch_summary", "summary": "s", "fromId": "b"}, Media())
    assert (left.body, left.references) == (BranchSummary("s"), (("from_id", "b"),))


def test_version_1_compaction_refers_to_the_first_kept_entry_by_index() -> None:
    made: Fields = {"type": "compaction", "summary": "s", "firstKeptEntryIndex": 4}
    assert said_by(made, Media()).references == (("first_kept", "#4"),)


def test_leaf_record_of_perdure_sets_the_leaf() -> None:
    ours = said(type="custom", customType="perdure.turn_started")
    assert ours == ImportedRecord("pi", "perdure.turn_started")
    moved = said_by({"type": "custom", "customType": "perdure.leaf", "parentId": "p"}, Media())
    assert (moved.body, moved.references) == (LeafMoved(None), (("target", "p"),))
    assert said(type="custom", customType="todo", data=1) == Custom("todo", 1)


def test_message_exported_as_custom_record_is_read_with_its_role() -> None:
    for role in ("system", "context"):
        shown = said(type="custom_message", customType=f"perdure.{role}", content="x")
        assert shown == Message(role, (TextPart("x"),))
    other = said(type="custom_message", customType="todo", content="x", display=False)
    assert other == CustomMessage("todo", (TextPart("x"),), is_displayed=False)


def test_model_and_label_records_are_read() -> None:
    assert said(type="model_change", provider="p", modelId="m") == ModelChange("p:m")
    label = said_by({"type": "label", "targetId": "a", "label": "x"}, Media())
    assert (label.body, label.about) == (Label("x"), "a")
    unknown = said_by({"type": "model_change", "id": "1", "perdure": {}}, Media())
    assert unknown.body == Custom("pi:model_change", {})
    assert unknown.unknown is not None


def test_message_without_content_is_malformed_and_kept() -> None:
    found = said_by({"type": "message", "message": {"role": "user"}}, Media())
    assert found.body == Custom("pi:message", {"role": "user"})
    assert found.malformed == "its message has no role or no content"
