"""Lines of an exported session file, by either codec."""

from __future__ import annotations

import msgspec
import pytest

from perdure.codecs.ids import written_id
from perdure.codecs.lines import LEVELS
from perdure.codecs.operator.codec import OPERATOR
from perdure.codecs.pi.codec import PI
from perdure.codecs.protocol import Codec
from perdure.interop.formats.losses import DEEP, Losses
from perdure.interop.formats.record_lines import RecordLines, changed_labels
from perdure.session.codec import new_side, new_tree, readable
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.messages import Message, ToolResultPart
from perdure.session.notes import Label
from tests.fakes.session_lines import writing_of

ABOVE = EntryId("s/0")


@pytest.mark.parametrize("codec", [OPERATOR, PI], ids=lambda codec: codec.name)
def test_records_written_for_one_entry_form_a_chain(codec: Codec) -> None:
    last = {ABOVE: "above"}
    lines = RecordLines(codec, writing_of({}, {}, own=""), last, Losses())
    new = new_tree(Message("tool", (ToolResultPart("a", "x"), ToolResultPart("b", "y"))))
    entry = Entry(StreamId("s"), 1, "tree", ABOVE, None, 5, new.kind, new.v, new.body)

    made = [
        msgspec.json.decode(line, type=dict[str, object])
        for line in lines.of_entry(entry, readable(entry), "own", written_id)
    ]

    parents = [record.get("parent_id") or record.get("parentId") for record in made]
    ids = [record["id"] for record in made]
    assert ids[0] == "own"
    assert parents == ["above", *ids[:-1]]
    assert last[entry.id] == ids[-1]


@pytest.mark.parametrize("codec", [OPERATOR, PI], ids=lambda codec: codec.name)
def test_value_nested_too_deeply_is_written_as_text_and_counted(codec: Codec) -> None:
    lost, value = Losses(), 1
    for _ in range(LEVELS + 5):
        value = [value]
    lines = RecordLines(codec, writing_of({}, {}, own=""), {}, lost)
    lines.line(codec.custom("x", value), "1", None, 5)
    assert lost.texts() == [f"not exported: {DEEP} (1)"]


def test_labels_that_the_file_already_contains_are_not_written_again() -> None:
    new = new_side(Label("now"), ABOVE)
    note = Entry(StreamId("s"), 1, "side", None, ABOVE, 5, new.kind, new.v, new.body)
    newest, last = {ABOVE: note}, {ABOVE: "r"}
    assert list(changed_labels(newest, {ABOVE: "now"}, {}, last)) == [(note, "r", "now")]
    assert list(changed_labels(newest, {}, {ABOVE: "old"}, last)) == [(note, "r", None)]
    assert list(changed_labels(newest, {ABOVE: "now"}, {ABOVE: "now"}, last)) == []
    assert list(changed_labels(newest, {ABOVE: "now"}, {}, {})) == []
