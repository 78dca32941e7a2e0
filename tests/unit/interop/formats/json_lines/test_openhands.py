"""Conversations of OpenHands: a folder with a file for each event."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from perdure.bounds.limits import InputLimits, limits, use_input_limits
from perdure.errors import FormatError, LimitExceeded
from perdure.interop.bulk import import_files
from perdure.interop.formats.json_lines.openhands import gather, parse
from perdure.interop.reports import FileOutcome
from perdure.session.kinds import Compaction
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from perdure.session.notes import ImportedRecord
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.sources import FIXTURES, check_items, empty_store, path_of

CONTENT = (FIXTURES / "openhands" / "conversation.jsonl").read_bytes()
ID = "8f4e0a92-6d37-4c1b-b0a5-2e9c7d154f63"


def write_events(folder: Path, lines: list[bytes], first: int = 0) -> None:
    for number, line in enumerate(lines, first):
        name = f"event-{number:05}-{json.loads(line)['id']}.json"
        (folder / "events" / name).write_bytes(line)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "8f4e0a92"
    (folder / "events").mkdir(parents=True)
    described: dict[str, object] = {
        "id": ID,
        "workspace": {"working_dir": "/home/ana/orchard"},
        "agent": {"llm": {"api_key": "hush"}},
    }
    (folder / "base_state.json").write_text(json.dumps(described, indent=1))
    (folder / "events" / ".lock").write_text("")
    write_events(folder, CONTENT.splitlines()[1:])
    return folder / "base_state.json"


async def outcomes(store: SessionStore, path: Path) -> list[FileOutcome]:
    found = import_files(store, [path], clock=ManualClock(), random=SeededRandom(2))
    return [outcome async for outcome in found]


def test_every_event_is_imported_or_reported() -> None:
    parsed = parse(CONTENT)
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())
    assert (parsed.header.session, parsed.header.cwd) == (ID, "/home/ana/orchard")
    outside = [item.body.type for item in parsed.items if isinstance(item.body, ImportedRecord)]
    assert outside == ["SystemPromptEvent", "ConversationStateUpdateEvent"]


def test_events_become_messages_with_calls_and_results() -> None:
    parsed = parse(CONTENT)
    path = path_of(parsed)
    asked, action, result, finish, failed, condensed, last = [item.body for item in path]
    assert isinstance(asked, Message)
    assert isinstance(asked.parts[1], MediaPart)
    assert isinstance(action, Message)
    assert action.parts == (
        ThinkingPart("The list knows."),
        TextPart("I read the list."),
        ToolCallPart("call_1", "terminal", {"command": "cat apples.txt"}),
    )
    assert result == Message("tool", (ToolResultPart("call_1", "Boskoop", name="terminal"),))
    assert isinstance(finish, Message)
    assert finish.parts == (ToolCallPart("call_2", "finish", {"input": "{"}),)
    error = ToolResultPart("call_2", "invalid arguments", is_error=True, name="finish")
    assert failed == Message("tool", (error,))
    assert condensed == Compaction("Apples were read about.", reason="import")
    assert path[5].references == {"first_kept": parsed.items.index(path[3])}
    assert last == Message("assistant", (TextPart("Boskoop."),), stop_reason="stop")


def test_lines_that_are_not_events_are_reported() -> None:
    parsed = parse(b'noise\n{"x":1}\n{"kind":"MessageEvent"}\n{"kind":7}\n' + CONTENT)
    check_items(parsed)
    assert [line.number for line in parsed.malformed] == [1, 2, 4]


async def test_conversation_folder_is_imported_without_api_keys(state: Path) -> None:
    store = empty_store()
    assert gather(state).content == CONTENT
    (first,) = await outcomes(store, state)
    assert first.report is not None
    assert (first.report.session, first.report.format) == (ID, "openhands")
    more = dict(json.loads(CONTENT.splitlines()[-1]), id="0000000f-0000-4000-8000-000000000000")
    write_events(state.parent, [json.dumps(more, indent=2).encode()], 100_000)
    (second,) = await outcomes(store, state)
    assert second.report is not None
    assert (second.report.session, second.report.messages) == (ID, 1)


@pytest.mark.parametrize("what", ["link", "pipe", "folder link"])
async def test_folder_with_links_or_pipes_is_rejected(state: Path, what: str) -> None:
    events = state.parent / "events"
    name = events / "event-00090-0000000f-0000-4000-8000-000000000000.json"
    if what == "link":
        name.symlink_to("/etc/passwd")
    elif what == "pipe":
        os.mkfifo(name)
    else:
        moved = events.rename(state.parent / "elsewhere")
        events.symlink_to(moved)
    (outcome,) = await outcomes(empty_store(), state)
    assert isinstance(outcome.error, FormatError)


async def test_folder_with_too_much_data_is_rejected(state: Path) -> None:
    before = limits()
    for given in (InputLimits(import_file_bytes=500), InputLimits(import_folders=3)):
        try:
            use_input_limits(given)
            (outcome,) = await outcomes(empty_store(), state)
        finally:
            use_input_limits(before)
        assert isinstance(outcome.error, LimitExceeded | FormatError)
