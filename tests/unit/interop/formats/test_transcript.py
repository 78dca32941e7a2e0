"""A session as numbered lines for human readers."""

from __future__ import annotations

import msgspec
import pytest

from perdure.interop.formats.bundles import cut_to
from perdure.interop.formats.markdown import render_markdown
from perdure.interop.formats.transcript import (
    Called,
    Medium,
    Result,
    Said,
    Strange,
    Thought,
    Transcript,
    brief,
    losses_of,
    transcript_of,
)
from perdure.session.codec import encode
from perdure.session.ids import blob_hash
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.ledger import ToolFinished, TurnStarted
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ToolResultPart,
    UnknownPart,
    Usage,
    assistant,
    thinking,
    tool_call,
    user,
)
from perdure.session.notes import CompactionUndone, Label, LeafMoved
from tests.fakes.bundles import BEGUN, Making


def test_every_tree_entry_is_a_line_below_its_parent() -> None:
    making = Making()
    first = making.say(user("one"))
    making.note(Label("here"), first)
    making.say(assistant("two", model="a:b", usage=Usage(3, 4, cost_microcents=5)))
    making.say(assistant("other"), parent=first)
    made = transcript_of(making.made())
    assert [(line.number, line.parent, line.role) for line in made.lines] == [
        (0, None, "user"),
        (1, 0, "assistant"),
        (2, 0, "assistant"),
    ]
    assert made.lines[0].label == "here"
    assert (made.lines[1].model, made.lines[1].tokens) == ("a:b", 7)
    assert made.leaf == 2
    assert [line.number for line in made.branch(1)] == [0, 1]
    assert made.leaves() == [1, 2]


def test_message_parts_are_shown_and_media_include_their_bytes() -> None:
    making = Making()
    making.blobs = [b"\x89PNG"]
    here = MediaPart("image/png", f"media://{blob_hash(b'%b' % making.blobs[0])}", 4, "a.png")
    gone = MediaPart("image/png", "media://sha256-" + "0" * 64, 9)
    making.say(user("look", here, gone))
    call = tool_call("c", "read", {"lines": 3, "path": "x\n y"})
    making.say(assistant("t", thinking("hm"), call))
    making.say(Message("tool", (ToolResultPart("c", "out", is_error=True, media=(here,)),)))
    making.note(ToolFinished("c", "read", "timeout", succeeded=False, duration_ms=12))
    making.say(Message("assistant", (UnknownPart(msgspec.Raw(b'{"type":"x"}')),)))
    made = transcript_of(making.made())
    kept = Medium("image/png", 4, "a.png", "iVBORw==")
    assert made.lines[0].pieces == (Said("look"), kept, Medium("image/png", 9))
    args = '{\n  "lines": 3,\n  "path": "x\\n y"\n}'
    assert made.lines[1].pieces == (Said("t"), Thought("hm"), Called("c", "read", "x y", args))
    result = Result("c", "out", is_error=True, media=(kept,), outcome="timeout", duration_ms=12)
    assert made.lines[2].pieces == (result,)
    assert made.lines[3].pieces == (Strange('{"type":"x"}'),)


def test_transcript_marks_entries_outside_the_context() -> None:
    making = Making()
    making.say(ModelChange("a:b"), ThinkingChange("high"), BranchSummary("left"))
    kept = making.say(CustomMessage("note", (TextPart("x"),), in_context=False))
    making.say(Custom("state", {"a": 1}))
    undone = making.say(Compaction("s", kept, tokens_before=9))
    making.note(CompactionUndone(), undone)
    making.raw("opaque", b"\xff{")
    lines = transcript_of(making.made()).lines
    assert [line.name for line in lines] == ["a:b", "high", None, "note", "state", None, None]
    assert [line.is_outside for line in lines] == [True, True, False, True, True, False, True]
    assert (lines[5].first_kept, lines[5].tokens_before, lines[5].is_undone) == (3, 9, True)
    assert lines[6].pieces == (Strange("\ufffd{"),)


def test_framework_state_is_shown_by_name_and_size() -> None:
    making = Making()
    making.say(user("hello"))
    making.say(Custom("langgraph.checkpoint", {"state": {"data": "c2VjcmV0" * 100}}))
    made = transcript_of(making.made())
    line = made.lines[1]
    assert (line.role, line.pieces, line.is_outside) == ("state", (), True)
    page = render_markdown(made).decode()
    (told,) = [each for each in page.splitlines() if "langgraph.checkpoint" in each]
    assert told == "*1 · Not shown: the state langgraph.checkpoint, 867 bytes.*"
    assert "c2VjcmV0" not in page
    assert losses_of(making.made(), is_branch=False) == ["states that are named, not shown: 1"]


def test_transcript_has_the_title_models_counts_and_folder_of_its_session() -> None:
    making = Making(msgspec.structs.replace(Making().header, title=None))
    making.say(user("Please   mend the\ntable"))
    making.say(assistant("a", model="x:1", usage=Usage(1)), assistant("b", model="y:2"))
    facts = transcript_of(making.made(), {"home": 2}).facts
    assert facts.title == "Please mend the table"
    assert (facts.models, facts.messages, facts.tokens) == (("x:1", "y:2"), 3, 1)
    assert (facts.created_at, facts.cwd, facts.redacted) == (BEGUN, "/srv/tides", {"home": 2})


def test_transcript_reports_omitted_data() -> None:
    making = Making()
    first = making.say(user("one"))
    making.say(assistant("two"))
    making.say(assistant("other"), parent=first)
    making.note(TurnStarted(1, "a"))
    making.note(LeafMoved(first))
    bundle = making.made()
    assert losses_of(bundle, is_branch=False) == ["1 side entries left out (turn_started 1)"]
    assert "2 entries of other branches" in losses_of(bundle, is_branch=True)[1]
    assert losses_of(cut_to(bundle, first), is_branch=True) == []


def test_empty_session_has_a_transcript() -> None:
    made = transcript_of(Making().made())
    assert (made.lines, made.leaf, made.leaves(), made.branch(None)) == ((), None, [], [])
    assert b'"lines":[]' in encode(made)
    assert isinstance(made, Transcript)


@pytest.mark.parametrize(("text", "line"), [("a\n b", "a b"), ("x" * 9, "xxxx…"), ("", "")])
def test_start_of_a_text_is_shown_on_one_line(text: str, line: str) -> None:
    assert brief(text, 5) == line
