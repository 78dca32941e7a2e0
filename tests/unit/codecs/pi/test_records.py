from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.media import Media
from perdure.codecs.pi.codec import PI
from perdure.codecs.pi.messages import message_of
from perdure.codecs.pi.records import answer, header, place_record, records_of, usage
from perdure.interop.formats.pi.reader import parse
from perdure.session.codec import body_of, encode, new_tree
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
    TreeBody,
)
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolResultPart,
    Usage,
    assistant,
    system,
    tool_call,
    tool_result,
    user,
)
from tests.fakes.session_lines import header_line, record_line, writing_of

AT = 1_775_000_000_005
PICTURE = MediaPart("image/png", "media://sha256-x", 6)
WRITING = writing_of({EntryId("s/0"): "00000000"}, {"media://sha256-x": b"pixels"}, "11111111")


def entry_of(body: Message | TreeBody) -> Entry:
    new = new_tree(body)
    return Entry(StreamId("s"), 1, "tree", EntryId("s/0"), None, AT, new.kind, new.v, new.body)


def record_of(body: Message | TreeBody) -> dict[str, Any]:
    entry = entry_of(body)
    records = records_of(entry, body_of(entry), WRITING)
    assert len(records) == 1
    return records[0]


def test_record_keys_have_the_same_order_as_in_pi() -> None:
    line = record_line(PI, record_of(user("hi")), "11111111", "00000000", AT)
    assert line == (
        b'{"type":"message","id":"11111111","parentId":"00000000",'
        b'"timestamp":"2026-03-31T23:33:20.005Z","message":{"role":"user",'
        b'"content":[{"type":"text","text":"hi"}],"timestamp":1775000000005}}'
    )
    custom = record_line(PI, record_of(Custom("todo", [1.0])), "11111111", None, AT)
    assert custom.startswith(b'{"type":"custom","customType":"todo","data":[1],"id":"11111111",')


def test_header_has_the_keys_of_version_3() -> None:
    assert header_line(PI, "id", 0, None) == (
        b'{"type":"session","version":3,"id":"id","timestamp":"1970-01-01T00:00:00.000Z","cwd":""}'
    )
    assert list(header("id", 0, "/x", "p"))[-1] == "parentSession"
    assert "parentSession" not in header("id", 0, "/x", None)


def test_id_keys_of_a_record_have_the_same_position_as_in_pi() -> None:
    message = place_record({"type": "message", "message": {}}, "b", "a", 0)
    assert list(message) == ["type", "id", "parentId", "timestamp", "message"]
    custom = place_record(PI.custom("todo", None), "b", None, 0)
    assert list(custom) == ["type", "customType", "id", "parentId", "timestamp"]


def test_missing_stop_reason_of_an_answer_is_derived_from_its_parts() -> None:
    assert answer(assistant("yes"), 0, None, WRITING)["stopReason"] == "stop"
    assert (
        answer(assistant(tool_call("c", "read", {})), 0, None, WRITING)["stopReason"] == "toolUse"
    )


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("openai:gpt", ("openai", "gpt", "openai-responses")),
        ("elsewhere:m:1", ("elsewhere", "m:1", "openai-completions")),
        ("gpt", ("unknown", "gpt", "openai-completions")),
        (None, ("unknown", "unknown", "openai-completions")),
    ],
)
def test_model_has_provider_api_and_name(model: str | None, words: tuple[str, ...]) -> None:
    made = answer(Message("assistant", ()), 0, model, WRITING)
    assert (made["provider"], made["model"], made["api"]) == words


def test_written_usage_has_each_token_class_and_their_sum() -> None:
    assert usage(Usage(1, 2, 3, 4, 150_000_000)) == {
        "input": 1,
        "output": 2,
        "cacheRead": 3,
        "cacheWrite": 4,
        "totalTokens": 10,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 1.5},
    }


def test_usage_of_a_summary_is_written() -> None:
    for body in (Compaction("s", usage=Usage(1)), BranchSummary("s", usage=Usage(1))):
        assert record_of(body)["usage"]["totalTokens"] == 1


MESSAGES = [
    user("text", PICTURE),
    assistant(
        ThinkingPart("hm"),
        "yes",
        tool_call("c1", "read", {"path": "x", "ratio": 0.000005}),
        model="anthropic:claude-sonnet-4-5",
        usage=Usage(1, 2, 3, 4, 500),
    ),
    assistant("cut", model="openai:gpt", stop_reason="aborted"),
    Message("assistant", (), model="openai:gpt", stop_reason="error", error="no"),
    tool_result("c1", "out", is_error=True, name="read"),
    Message("tool", (ToolResultPart("c1", "out", name="x", media=(PICTURE,)),)),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_known_to_pi_are_written_and_read_back_unchanged(message: Message) -> None:
    written = msgspec.json.decode(record_line(PI, record_of(message), "1", None, AT))["message"]
    read = message_of(written, Media())
    assert isinstance(read, Message)
    expected = encode(message).replace(b"media://sha256-x", b"*")
    handles = [part for part in read.parts if isinstance(part, MediaPart)]
    handles += [m for part in read.parts if isinstance(part, ToolResultPart) for m in part.media]
    actual = encode(read)
    for part in handles:
        actual = actual.replace(part.handle.encode(), b"*")
    assert actual == expected


def test_message_with_several_results_becomes_several_records() -> None:
    entry = entry_of(Message("tool", (ToolResultPart("a", "1"), ToolResultPart("b", "2"))))
    records: list[Any] = list(records_of(entry, body_of(entry), WRITING))
    assert [record["message"]["toolCallId"] for record in records] == ["a", "b"]


def test_missing_media_are_written_as_a_notice() -> None:
    missing = MediaPart("image/png", "media://sha256-gone", 1)
    content = record_of(Message("user", (missing,)))["message"]["content"]
    assert content == [{"type": "text", "text": "[image/png, not kept]"}]


def test_compaction_record_refers_to_its_first_kept_entry() -> None:
    keeps = record_of(Compaction("s", EntryId("s/0"), read_files=("a",), reason="hook"))
    assert keeps == {
        "type": "compaction",
        "summary": "s",
        "firstKeptEntryId": "00000000",
        "tokensBefore": 0,
        "details": {"readFiles": ["a"], "modifiedFiles": []},
        "fromHook": True,
    }
    assert record_of(Compaction("s"))["firstKeptEntryId"] == "11111111"
    assert record_of(Compaction("s", EntryId("s/9")))["firstKeptEntryId"] == "11111111"


def test_retained_tail_of_a_compaction_is_written_as_messages() -> None:
    record = record_of(Compaction("s", retained=(user("q"), tool_result("c", "r"))))
    assert [message["role"] for message in record["retainedTail"]] == ["user", "toolResult"]
    assert "firstKeptEntryId" not in record


def test_entry_kinds_besides_messages_are_written_as_records() -> None:
    assert record_of(BranchSummary("s"))["fromId"] == "root"
    assert record_of(BranchSummary("s", EntryId("s/0")))["fromId"] == "00000000"
    assert record_of(ModelChange("openai:gpt:x")) == {
        "type": "model_change",
        "provider": "openai",
        "modelId": "gpt:x",
    }
    assert record_of(ThinkingChange("high"))["thinkingLevel"] == "high"
    shown = CustomMessage("t", (TextPart("x"),), is_displayed=False, details={"a": 1})
    assert record_of(shown)["display"] is False


def test_private_message_stays_out_of_model_context() -> None:
    record = record_of(CustomMessage("t", (TextPart("secret"),), in_context=False))
    assert record["type"] == "custom"


def test_system_message_is_exported_into_the_context_of_pi() -> None:
    record = record_of(system("rules"))
    assert (record["type"], record["customType"]) == ("custom_message", "perdure.system")
    assert record["content"] == [{"type": "text", "text": "rules"}]


def test_unreadable_entry_is_stored_outside_context() -> None:
    entry = msgspec.structs.replace(entry_of(user("x")), kind="opaque", body=b"\xff")
    (record,) = records_of(entry, body_of(entry), WRITING)
    assert (record["type"], record["customType"]) == ("custom", "perdure.opaque")
    assert record["data"] == {"lane": "tree", "base64": "/w=="}
    future = msgspec.structs.replace(entry, kind="future", body=b'{"a":1}')
    (record,) = records_of(future, body_of(future), WRITING)
    assert record["data"] == {"lane": "tree", "body": msgspec.Raw(b'{"a":1}')}


def test_undone_compaction_is_stored_outside_context() -> None:
    entry = entry_of(Compaction("s"))
    undone = msgspec.structs.replace(WRITING, undone=frozenset({entry.id}))
    (record,) = records_of(entry, body_of(entry), undone)
    assert (record["type"], record["customType"]) == ("custom", "perdure.compaction")


TEXT = st.text(max_size=8)
BODIES = st.one_of(
    TEXT.map(user),
    TEXT.map(lambda text: assistant(text, tool_call("c", text or "n"))),
    TEXT.map(lambda text: tool_result("c", text)),
    st.builds(Compaction, TEXT, tokens_before=st.none() | st.integers(1, 9)),
    TEXT.map(BranchSummary),
    TEXT.map(lambda name: ModelChange(f"p:{name or 'm'}")),
    st.sampled_from(["off", "high"]).map(ThinkingChange),
    TEXT.map(lambda name: Custom(name or "t", name)),
    TEXT.map(lambda text: CustomMessage("t", (TextPart(text),))),
)


@given(BODIES)
def test_every_record_is_read_back_as_its_kind(body: Message | TreeBody) -> None:
    content = header_line(PI, "x", 0, "/") + b"\n" + record_line(PI, record_of(body), "1", None, AT)
    parsed = parse(content)
    assert [item.kind for item in parsed.items] == [entry_of(body).kind]
    assert parsed.warnings == ()
    assert parsed.items[0].at == AT
