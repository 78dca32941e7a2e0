"""Sessions of Goose: rows of its database, and files of versions without a database."""

from __future__ import annotations

from perdure.interop.formats.databases.goose import parse
from perdure.session.kinds import Compaction, CustomMessage
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)
from perdure.session.notes import ImportedRecord, SessionInfoChanged
from tests.fakes.sources import FIXTURES, check_items, path_of, texts_on

CONTENT = (FIXTURES / "goose" / "session.jsonl").read_bytes()
LEGACY = (FIXTURES / "goose" / "legacy.jsonl").read_bytes()


def messages_of(content: bytes) -> list[Message]:
    return [item.body for item in parse(content).items if isinstance(item.body, Message)]


def test_every_database_row_is_imported_or_reported() -> None:
    parsed = parse(CONTENT)
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())
    header = parsed.header
    assert (header.session, header.cwd) == ("20260501_3", "/home/ana/orchard")
    assert header.created_at == 1_777_626_000_000
    assert header.metadata == {"session_type": "user", "provider_name": "openai"}
    assert not header.is_subagent
    assert SessionInfoChanged(title="Apples that keep") in [item.body for item in parsed.items]
    assert b"c2VjcmV0" not in repr(parsed.items).encode()


def test_messages_have_thoughts_pictures_calls_and_results() -> None:
    asked, answer, results, last, *_ = messages_of(CONTENT)
    assert (asked.role, asked.text) == ("user", "Which apples keep longest?")
    assert isinstance(asked.parts[1], MediaPart)
    thought, text, call, broken = answer.parts
    assert (thought, text) == (ThinkingPart("The list knows."), TextPart("I read the list."))
    assert call == ToolCallPart("call_1", "developer__shell", {"command": "cat apples.txt"})
    assert isinstance(broken, UnknownPart)
    assert results.parts == (
        ToolResultPart("call_1", "Boskoop"),
        ToolResultPart("call_2", "-32601: no such tool", is_error=True),
    )
    assert (last.text, last.stop_reason) == ("Boskoop.", "stop")
    assert parse(CONTENT).items[0].at == 1_777_626_010_000


def test_summary_of_goose_becomes_a_compaction() -> None:
    bodies = [item.body for item in path_of(parse(CONTENT))]
    compaction = next(body for body in bodies if isinstance(body, Compaction))
    assert compaction.summary == "The user asked about apples; Boskoop keeps longest."
    (only,) = [body for body in bodies if isinstance(body, CustomMessage)]
    assert (only.custom_type, only.is_displayed) == ("goose:agent-only", False)
    assert bodies.index(compaction) < bodies.index(only)


def test_notifications_are_outside_the_conversation() -> None:
    parsed = parse(CONTENT)
    outside = [item.body for item in parsed.items if isinstance(item.body, ImportedRecord)]
    assert outside == [ImportedRecord("goose", "message")]
    assert texts_on(path_of(parsed))[-1] == "Conference."


def test_file_of_an_earlier_version_is_read() -> None:
    parsed = parse(LEGACY)
    check_items(parsed)
    assert texts_on(path_of(parsed)) == ["Which apples?", "Boskoop.", "Thanks."]
    assert (parsed.header.session, parsed.header.cwd) == (None, "/home/ana/orchard")
    assert parsed.items[1].at == 1_735_689_600_000


def test_lines_that_are_not_rows_are_reported() -> None:
    first, rest = CONTENT.split(b"\n", 1)
    bad = b'{"program":"goose","table":"messages","row":{"role":"user","content_json":"{"}}'
    parsed = parse(first + b'\nnoise\n[1]\n{"x":1}\n' + bad + b"\n" + rest)
    check_items(parsed)
    assert [line.number for line in parsed.malformed] == [2, 3, 4, 5]
    assert texts_on(path_of(parsed))[-1] == "Conference."
