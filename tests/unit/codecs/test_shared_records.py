"""Records that both pi and Operator have: each round-trips."""

from __future__ import annotations

import msgspec
import pytest

from perdure.codecs.media import Media
from perdure.codecs.operator.codec import OPERATOR
from perdure.codecs.pi.codec import PI
from perdure.codecs.protocol import Codec
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.messages import Message, TextPart
from perdure.session.notes import Label, SessionInfoChanged
from tests.fakes.session_lines import writing_of

OTHER = EntryId("s/0")
READ, MODIFIED = ("a.py",), ("b.py", "c.py")
SAYS = (TextPart("shown"),)
BODIES = (
    ModelChange("openai:gpt"),
    ThinkingChange("high"),
    Custom("ext.state", {"n": 1}),
    CustomMessage("ext.note", SAYS, is_displayed=False, details={"a": 1}),
    Message("context", SAYS),
    BranchSummary("left", read_files=READ, modified_files=MODIFIED),
    Compaction("sum", None, 9, None, "hook", read_files=READ, modified_files=MODIFIED),
    Label("start"),
    SessionInfoChanged(title="Tide"),
)


@pytest.mark.parametrize("codec", [OPERATOR, PI], ids=lambda codec: codec.name)
def test_record_is_written_and_read_back_unchanged(codec: Codec) -> None:
    writing = writing_of({OTHER: "r0"}, {}, own="r1")
    for body in BODIES:
        is_side = isinstance(body, Label | SessionInfoChanged)
        new: NewEntry = new_side(body, OTHER) if is_side else new_tree(body)
        lane = "side" if is_side else "tree"
        about = OTHER if isinstance(body, Label) else None
        entry = Entry(StreamId("s"), 1, lane, None, about, 5, new.kind, new.v, new.body)
        (record,) = codec.records(entry, body, writing)
        line = codec.line(codec.placed(record, "r1", "r0", 5))
        said = codec.said(msgspec.json.decode(line), Media())
        assert said.body == body
        assert said.about == ("r0" if isinstance(body, Label) else None)


@pytest.mark.parametrize("codec", [OPERATOR, PI], ids=lambda codec: codec.name)
def test_incomplete_record_is_kept_unchanged(codec: Codec) -> None:
    for type in ("model_change", "new"):
        said = codec.said({"type": type, "id": "1", "x": 2}, Media())
        assert said.body == Custom(f"{codec.name}:{type}", {"x": 2})
    unreadable = codec.said({"type": "custom_message", "content": 1}, Media())
    assert unreadable.malformed is not None
