"""An exported Operator file, read by an independent reader, has the session's conversation."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from perdure.codecs.operator.codec import OPERATOR
from perdure.context import prompts
from perdure.context.emission import emit
from perdure.interop.formats.items import with_source
from perdure.interop.formats.operator.writer import SourceFile, file_of, is_current
from perdure.session.codec import Unknown, readable
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, blob_hash
from perdure.session.kinds import BranchSummary, Compaction, CustomMessage, ModelChange
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    assistant,
    thinking,
    tool_call,
    tool_result,
    user,
)
from perdure.session.notes import (
    CompactionUndone,
    Label,
    LeafMoved,
    SessionInfoChanged,
    SourcePlace,
)
from tests.fakes import operator_reader
from tests.fakes.bundles import BEGUN, Making, bundle_of_log
from tests.fakes.operator_reader import Spoken
from tests.fakes.random_logs import random_logs
from tests.fakes.session_lines import header_line, record_line
from tests.fakes.tree_log import TreeLog


def spoken(message: Message, *, is_said_only: bool = False) -> Spoken:
    """Return a message of perdure in the reader's form, without features that Operator lacks.

    With `is_said_only`, a message of an extension contains only text and media.
    """
    text = message.text
    leads = ((prompts.COMPACTION_LEAD_IN, "summary"), (prompts.BRANCH_LEAD_IN, "branch"))
    for lead_in, role in leads:
        if text.startswith(lead_in):
            summary = text.split("<summary>\n", 1)[1].removesuffix("\n</summary>")
            return role, (summary.replace("<\\/summary>", "</summary>"),)
    allowed: tuple[type[Part], ...] = (TextPart, MediaPart, ToolResultPart)
    if is_said_only or message.role == "context":
        allowed = (TextPart, MediaPart)
    elif message.role != "tool":
        allowed = (*allowed, ThinkingPart, ToolCallPart)
    role = "user" if message.role == "context" else message.role
    return role, tuple(spoken_part(part) for part in message.parts if isinstance(part, allowed))


def spoken_part(part: Part) -> Any:
    match part:
        case TextPart(text=text):
            return ("text", text)
        case MediaPart(mime_type=kind):
            return ("text", f"[{kind}, not kept]")
        case ThinkingPart(text=text):
            return ("thinking", text)
        case ToolCallPart():
            return ("call", part.id, part.name, json.dumps(part.args, sort_keys=True))
        case ToolResultPart():
            return ("result", part.call_id, part.text, part.is_error)
        case _:
            return None


def is_damaged_compaction(entry: Entry) -> bool:
    return entry.kind == Compaction.kind and isinstance(readable(entry), Unknown)


def stripped(said: Spoken) -> Spoken:
    return (said[0], (said[1][0].strip(),)) if said[0] in ("summary", "branch") else said


@pytest.mark.full_only
@given(st.data(), random_logs(16))
def test_exported_log_gives_operator_the_same_context(data: st.DataObject, log: TreeLog) -> None:
    leaf = data.draw(st.sampled_from([None, *log.by_id]))
    extensions = {id for id, entry in log.by_id.items() if entry.kind == CustomMessage.kind}
    # In perdure, an unreadable compaction hides everything before it without a message.
    log.undone |= {id for id, entry in log.by_id.items() if is_damaged_compaction(entry)}
    written = file_of(bundle_of_log(log, leaf))
    assume(not any("retained messages" in warning for warning in written.warnings))
    there = operator_reader.read(written.content)
    assert there.dropped == 0
    here = [
        spoken(each.message, is_said_only=each.entry_id in extensions)
        for each in emit(log.window(leaf)).messages
    ]
    said = [stripped(each) for each in there.context()]
    assert [s for s in said if s != ("summary", ("",))] == [stripped(s) for s in here]


def test_session_is_written_with_labels_title_model_and_leaf() -> None:
    making = Making()
    making.say(ModelChange("anthropic:claude"))
    asked = making.say(user("Hello"))
    answered = making.say(assistant("Hi", thinking("hm"), tool_call("c1", "read", {"path": "x"})))
    making.say(tool_result("c1", "text\u2028more", name="read"))
    making.say(user("again"), parent=asked)
    making.note(Label("start"), asked)
    making.note(SessionInfoChanged(title="A day"))
    making.note(LeafMoved(answered))
    written = file_of(making.made())
    there = operator_reader.read(written.content)
    assert there.name == "A day"
    assert list(there.labels.values()) == ["start"]
    assert there.model() == ("anthropic", "claude")
    call = ("call", "c1", "read", '{"path": "x"}')
    assert there.context() == [
        ("user", (("text", "Hello"),)),
        ("assistant", (("text", "Hi"), ("thinking", "hm"), call)),
    ]
    assert there.header["timestamp"] == BEGUN / 1000
    assert there.header["cwd"] == "/srv/tides"
    assert written.content == file_of(making.made()).content
    assert written.warnings == ()


def test_media_are_written_and_losses_are_reported() -> None:
    making = Making()
    making.blobs = [b"\x89PNG", b"OggS", b"%PDF"]
    kinds = ("image/png", "audio/ogg", "application/pdf")
    media = [
        MediaPart(kind, f"media://{blob_hash(blob)}", len(blob))
        for kind, blob in zip(kinds, making.blobs, strict=True)
    ]
    making.say(user("look", *media))
    making.say(Message("tool", (ToolResultPart("c", "shot", media=(media[0],)),)))
    making.say(assistant("ok", model="openai:one"))
    making.say(Message("assistant", (ThinkingPart("", is_redacted=True),)))
    making.raw("hologram", b'{"a":1}')
    written = file_of(making.made())
    said = operator_reader.read(written.content).context()[0]
    assert said == (
        "user",
        (("text", "look"), ("media", "iVBORw=="), ("media", "T2dnUw=="),
         ("text", "[application/pdf, not kept]")),
    )  # fmt: skip
    assert set(written.warnings) == {
        "not exported: hologram entry, written outside the context (1)",
        "not exported: medium in a tool's result (1)",
        "not exported: medium, named only (1)",
        "not exported: name of the model that answered (1)",
        "not exported: thinking that its provider withheld (1)",
    }


def test_undone_compaction_hides_no_entry_in_the_export() -> None:
    making = Making()
    making.say(user("one"), assistant("two"))
    undone = making.say(Compaction("gone"))
    making.note(CompactionUndone(), undone)
    there = operator_reader.read(file_of(making.made()).content)
    assert [role for role, _ in there.context()] == ["user", "assistant"]


def test_messages_kept_by_a_compaction_are_written_before_the_compaction() -> None:
    making = Making()
    making.say(user("one"), assistant("two"))
    making.say(Compaction("so far", retained=(user("kept"),)))
    making.say(user("three"))
    there = operator_reader.read(file_of(making.made()).content)
    assert there.context() == [
        ("summary", ("so far",)),
        ("user", (("text", "kept"),)),
        ("user", (("text", "three"),)),
    ]


def test_empty_branch_summary_is_not_a_message() -> None:
    making = Making()
    making.say(user("one"), BranchSummary(" "))
    there = operator_reader.read(file_of(making.made()).content)
    assert len(there.context()) == 1


# -- session read from an Operator file


def imported(*, newline: bytes = b"\n") -> tuple[Making, SourceFile]:
    """Return a session of two messages and a label, as after an import of its file."""
    said = {
        "contents": [{"type": "text", "content": "hi"}],
        "id": "u",
        "timestamp": 1.5,
        "role": "user",
    }
    message = {"type": "message", "message": said, "future": 1e-6}
    label = {"type": "label", "label": "x", "target_id": "aaaaaaaa"}
    lines = [
        header_line(OPERATOR, "s", BEGUN, "/srv"),
        record_line(OPERATOR, message, "aaaaaaaa", None, BEGUN),
        record_line(OPERATOR, label, "b", "aaaaaaaa", BEGUN),
        b'{"not": "readable',
    ]  # fmt: skip
    making = Making()
    making.header = msgspec.structs.replace(making.header, title=None)
    first = making.say(user("hi"))
    making.aliases["aaaaaaaa"] = first
    making.note(Label("x"), first)
    making.raw("opaque", lines[3])
    source = SourcePlace(part=0, offset=0, length=9)
    for n in (0, 1):
        entry = making.entries[n]
        making.entries[n] = msgspec.structs.replace(entry, body=with_source(entry.body, source))
    return making, SourceFile(b"\n".join(lines) + newline, frozenset({0}))


def test_unchanged_import_is_exported_with_original_bytes() -> None:
    for newline in (b"\n", b""):
        making, base = imported(newline=newline)
        written = file_of(making.made(), base)
        assert written.content == base.content
        assert not any("differs" in text for text in written.warnings)


def test_entries_added_in_perdure_follow_the_original_bytes() -> None:
    making, base = imported(newline=b"")
    making.say(assistant("hello"), parent=EntryId("s/0"))
    making.note(Label("y"), EntryId("s/0"))
    written = file_of(making.made(), base)
    content = written.content
    assert content.startswith(base.content + b"\n")
    added = content.count(b"\n") - base.content.count(b"\n") - 1  # the file had no last newline
    told = f"the file differs from the imported one: {added} lines added here"
    assert written.warnings[-1] == told
    there = operator_reader.read(content)
    assert [role for role, _ in there.context()] == ["user", "assistant"]
    assert there.labels == {"aaaaaaaa": "y"}


def test_changed_leaf_and_removed_label_are_written() -> None:
    making, base = imported()
    making.note(LeafMoved(None))
    making.note(Label(None), EntryId("s/0"))
    there = operator_reader.read(file_of(making.made(), base).content)
    assert there.labels == {}
    assert there.context() == []


def test_old_operator_file_without_additions_is_not_rewritten() -> None:
    making, _ = imported()
    old = SourceFile(
        b'{"type":"metadata","id":"s"}\n{"role":"user","content":"hi"}\n', frozenset({0})
    )
    del making.entries[2:]
    assert not is_current(old.content)
    assert file_of(making.made(), old).content == old.content
    making.say(assistant("hello"), parent=EntryId("s/0"))
    written = file_of(making.made(), old)
    there = operator_reader.read(written.content)
    assert [role for role, _ in there.context()] == ["user", "assistant"]
    assert there.labels != {}
    assert written.warnings[-1].startswith("the file differs from the imported one: ")
    assert written.warnings[-1].endswith(" added here, and its lines rewritten")


def test_operator_file_below_version_3_is_outdated() -> None:
    assert is_current(b'\n{"type":"session_header","version":3}\n')
    assert not is_current(b'{"type":"session","version":2}')
    assert is_current(b'{"type":"session_header"}')
    assert not is_current(b"\n")
