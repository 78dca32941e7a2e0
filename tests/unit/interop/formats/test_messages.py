"""Files of plain messages: a document or lines of objects with a role and a content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.errors import FormatError, UnknownFormat
from perdure.interop.formats.detection import detect_format
from perdure.interop.formats.messages import parse
from perdure.interop.formats.sources.content import Held
from perdure.session.kinds import CustomMessage
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)
from tests.fakes.samples import case
from tests.fakes.sources import FIXTURES, check_items, empty_store, imported, path_of, texts_on

CHAT = (FIXTURES / "messages" / "chat.json").read_bytes()
BLOCKS = (FIXTURES / "messages" / "blocks.jsonl").read_bytes()
SAID = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day."}]


def test_document_of_a_chat_has_calls_results_and_system_text() -> None:
    parsed = parse(CHAT)
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())
    system, asked, call, result, answer = [item.body for item in path_of(parsed)]
    assert system == CustomMessage(
        "messages:system", (TextPart("You keep an orchard."),), is_displayed=False
    )
    assert isinstance(asked, Message)
    assert isinstance(call, Message)
    assert call.parts == (ToolCallPart("call_1", "look", {"row": 3}),)
    assert result == Message("tool", (ToolResultPart("call_1", "Row 3: Cox", name="look"),))
    assert isinstance(answer, Message)
    assert (answer.text, answer.stop_reason) == ("The Cox in row 3.", "stop")
    assert [item.number for item in path_of(parsed)] == [2, 3, 4, 11, 12]


def test_lines_with_blocks_have_pictures_thoughts_calls_and_results() -> None:
    parsed = parse(BLOCKS)
    check_items(parsed)
    bodies = [item.body for item in path_of(parsed)]
    asked, answer, result, more, last = [body for body in bodies if isinstance(body, Message)]
    assert isinstance(asked.parts[1], MediaPart)
    assert answer.parts == (
        ThinkingPart("A tree."),
        TextPart("I look."),
        ToolCallPart("toolu_1", "look", {"row": 3}),
    )
    assert result.role == "tool"
    assert (more.role, more.text, last.text) == ("user", "And?", "An apple tree.")
    assert b"c2VjcmV0" not in repr(parsed.items).encode()


@pytest.mark.parametrize("form", ["list", "pretty", "object", "content first", "lines"])
def test_each_form_is_recognised_and_gives_the_same_messages(form: str) -> None:
    content = {
        "list": json.dumps(SAID),
        "pretty": json.dumps(SAID, indent=4),
        "object": json.dumps({"messages": SAID, "model": "any"}),
        "content first": json.dumps([dict(reversed(each.items())) for each in SAID]),
        "lines": "\n\n".join(map(json.dumps, SAID)),
    }[form].encode()
    assert detect_format(Held(content)) == "messages"
    parsed = parse(content)
    check_items(parsed)
    assert texts_on(path_of(parsed)) == ["Hello", "Good day."]
    assert parsed.malformed == ()


def test_document_of_another_form_is_not_detected_as_messages() -> None:
    for content in (
        b"[]",
        b"[1, 2]",
        b'["user", "Hello"]',
        b'[{"role": "admin", "content": "x"}]',
        b'[{"name": "x"}]',
        b'{"messages": 3}',
        b'{"role": "user"}',
        b'{"role": ["user"], "content": "x"}',
        b'{"role": "user", "content": 3}',
        b'{"role": "user", "content": null}',
        b'{"type": "message", "role": "user", "content": "x"}',
    ):
        with case(content):
            assert detect_format(Held(content)) is None


def test_calls_without_id_are_stored_unchanged() -> None:
    function = {"name": "look", "arguments": '{"row": 3}'}
    whole = {"id": "c1", "type": "function", "function": function}
    for content in (None, "", "I look."):
        for fields, kept in (
            ({"tool_calls": [{"function": function}, whole]}, {"function": function}),
            ({"tool_calls": [7, whole]}, 7),
            ({"function_call": function}, {"function_call": function}),
        ):
            with case((content, fields)):
                lines = [SAID[0], {"role": "assistant", "content": content, **fields}, SAID[1]]
                parsed = parse(json.dumps(lines).encode())
                check_items(parsed)
                assert (parsed.warnings, parsed.malformed) == ((), ())
                answer = path_of(parsed)[1].body
                assert isinstance(answer, Message)
                calls = [part for part in answer.parts if not isinstance(part, TextPart)]
                assert isinstance(calls[0], UnknownPart)
                assert json.loads(bytes(calls[0].raw)) == kept
                is_called = "tool_calls" in fields
                expected = [ToolCallPart("c1", "look", {"row": 3})] if is_called else []
                assert calls[1:] == expected


def test_invalid_messages_are_reported_and_valid_messages_are_read() -> None:
    wrong: list[object] = [
        3,
        None,
        "text",
        {},
        {"role": "user"},
        {"role": "user", "content": 4},
        {"role": "admin", "content": "x"},
        {"role": "tool", "content": "without its call"},
        {"role": {}, "content": []},
    ]
    for each in wrong:
        with case(each):
            lines = [SAID[0], each, SAID[1]]
            for content in (json.dumps(lines, indent=1), "\n".join(map(json.dumps, lines))):
                parsed = parse(content.encode())
                check_items(parsed)
                assert texts_on(path_of(parsed)) == ["Hello", "Good day."]
                assert len(parsed.malformed) == 1


@pytest.mark.parametrize("end", [b"", b"]]", b'{"role": "user"', b"\xff]", b"[" * 100_000])
async def test_truncated_document_is_rejected(end: bytes) -> None:
    content = json.dumps(SAID).encode()[:-1] + end
    parsed = parse(content)
    check_items(parsed)
    assert parsed.leaf is None
    store = empty_store()
    with pytest.raises(FormatError):
        await imported(store, content)
    assert await store.feed(-1) == []


async def test_file_without_an_id_is_recognized_by_its_path(tmp_path: Path) -> None:
    store = empty_store()
    here, there = tmp_path / "a" / "m.json", tmp_path / "b" / "m.json"
    for file in (here, there):
        file.parent.mkdir()
        file.write_text(json.dumps(SAID))
    first, second = await imported(store, here), await imported(store, there)
    assert first.session.startswith("m-")
    assert first.session != second.session
    assert not (await imported(store, here)).is_new
    here.write_text(json.dumps([*SAID, {"role": "user", "content": "And?"}]))
    grown = await imported(store, here)
    assert (grown.session, grown.messages) == (first.session, 1)
    with_id = tmp_path / "c.json"
    with_id.write_text(json.dumps({"id": "talk-1", "messages": SAID}))
    assert (await imported(store, with_id)).session == "talk-1"


async def test_file_with_a_changed_message_becomes_a_new_session(tmp_path: Path) -> None:
    store, file = empty_store(), tmp_path / "m.jsonl"
    file.write_text("\n".join(map(json.dumps, SAID)))
    report = await imported(store, file)
    changed = [SAID[0], {"role": "assistant", "content": "Good evening."}]
    file.write_text("\n".join(map(json.dumps, changed)))
    again = await imported(store, file)
    assert (again.session, again.messages) == (f"{report.session}.2", 2)
    assert "not a continuation" in again.warnings[0]


async def test_error_for_unknown_file_lists_supported_formats(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match="bare messages"):
        await imported(empty_store(), b'{"role": "user"}\n')


def test_file_format_is_detected_from_one_characteristic_record() -> None:
    content = b'{"role": "user", "content": "x"}\n{"role": "_checkpoint", "id": 0}\n'
    assert detect_format(Held(content)) == "kimi-cli"
