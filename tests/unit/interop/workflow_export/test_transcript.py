from __future__ import annotations

from typing import Any

import msgspec

from perdure.interop.workflow_export.transcript import MAX_DEPTH, transcript_of
from perdure.session.ids import StreamId
from perdure.session.kinds import BranchSummary, Compaction, Custom, CustomMessage, ModelChange
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
    assistant,
    user,
)
from tests.fakes.tree_log import TreeLog

S = StreamId("s")
PICTURE = MediaPart("image/png", "media://sha256-" + "0" * 64, 10, "a.png")


def told(log: TreeLog) -> list[Any]:
    return list(transcript_of(log.path(log.leaf), S, frozenset(log.undone)).messages)


def test_message_has_the_fields_of_the_specification() -> None:
    log = TreeLog()
    log.append(user("Look", PICTURE))
    log.append(assistant(ThinkingPart("Hm"), "It is a cat.", model="p:m"))
    handle = {"kind": "handle", "handle": PICTURE.handle}
    picture = {
        "type": "media",
        "mimeType": "image/png",
        "source": handle,
        "byteLength": 10,
        "name": "a.png",
    }
    assert told(log) == [
        {
            "id": "s/0",
            "sessionId": "s",
            "sequenceNumber": 0,
            "role": "user",
            "content": [{"type": "text", "text": "Look"}, picture],
            "timestamp": "1970-01-01T00:00:00.000Z",
        },
        {
            "id": "s/1",
            "sessionId": "s",
            "sequenceNumber": 1,
            "role": "assistant",
            "content": [
                {"type": "reasoning", "text": "Hm"},
                {"type": "text", "text": "It is a cat."},
            ],
            "timestamp": "1970-01-01T00:00:00.001Z",
            "modelId": "p:m",
        },
    ]


def test_calls_and_results_are_listed_with_media() -> None:
    log = TreeLog()
    log.append(assistant(ToolCallPart("c", "look", {"at": [1]})))
    log.append(Message("tool", (ToolResultPart("c", "seen", is_error=True, media=(PICTURE,)),)))
    call, result = (message["content"][0] for message in told(log))
    assert call == {"type": "tool_call", "id": "c", "name": "look", "args": {"at": [1]}}
    assert (result["toolCallId"], result["result"], result["isError"]) == ("c", "seen", True)
    assert result["media"][0]["source"]["handle"] == PICTURE.handle


def test_message_numbers_include_system_messages() -> None:
    log = TreeLog()
    first = log.append(user("a"))
    log.extend(ModelChange("p:m"), Custom("x"))
    kept = log.append(user("b"))
    compaction = log.append(Compaction("So far", first_kept=kept))
    log.extend(BranchSummary("Tried"), CustomMessage("x", (TextPart("psst"),)), user("c"))
    messages = told(log)
    assert [m["sequenceNumber"] for m in messages] == [0, 1, 2, 3, 4, 5]
    assert [m["role"] for m in messages] == ["user", "user", "system", "system", "system", "user"]
    assert [m["id"] for m in messages[:2]] == [first, kept]
    assert messages[2]["compaction"] == {"droppedThroughSequence": 0}
    log.undone.add(compaction)
    assert "compaction" not in told(log)[2]


def test_compaction_without_kept_entries_hides_all_earlier_messages() -> None:
    log = TreeLog()
    log.extend(user("a"), assistant("b"), Compaction("So far"))
    assert told(log)[2]["compaction"] == {"droppedThroughSequence": 1}
    log = TreeLog()
    log.append(Compaction("Nothing yet"))
    assert "compaction" not in told(log)[0]


def test_unknown_part_is_counted_and_omitted() -> None:
    log = TreeLog()
    signed = UnknownPart(msgspec.Raw(b'{"type":"thought","signature":"abc"}'))
    log.append(Message("assistant", (TextPart("x"), signed)))
    transcript = transcript_of(log.path(log.leaf), S)
    assert transcript.unknown == 1
    assert "signature" not in str(transcript.messages)


def test_too_deep_arguments_are_written_as_json_text() -> None:
    deep: dict[str, object] = {}
    for _ in range(MAX_DEPTH):
        deep = {"a": deep}
    log = TreeLog()
    log.append(assistant(ToolCallPart("c", "look", deep)))
    assert told(log)[0]["content"][0]["args"].startswith('{"a":{"a":')
