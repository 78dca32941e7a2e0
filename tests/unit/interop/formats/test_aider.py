"""The history of Aider: a session for each run, with questions, answers and commands."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from perdure.interop.bulk import import_files
from perdure.interop.formats.aider import FILE_NAME, is_beginning, parse, sessions_in
from perdure.interop.formats.items import ParsedSource
from perdure.interop.formats.sources.content import Held
from perdure.interop.reports import ImportReport
from perdure.session.kinds import CustomMessage
from perdure.session.messages import Message
from perdure.session.notes import ImportedRecord
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.sources import FIXTURES, check_items, empty_store, path_of, spoilt, texts_on

CONTENT = b"".join((FIXTURES / "aider" / name).read_bytes() for name in ("first.md", "second.md"))


def runs_of(content: bytes) -> list[ParsedSource]:
    return [parse(each.read(0, each.length)) for each in sessions_in(Held(content))]


async def reports_of(store: SessionStore, path: Path) -> list[ImportReport]:
    found = import_files(store, [path], clock=ManualClock(), random=SeededRandom(2))
    return [outcome.report async for outcome in found if outcome.report is not None]


def test_each_run_is_a_separate_session() -> None:
    first, second = runs_of(CONTENT)
    for parsed in (first, second):
        check_items(parsed)
        assert (parsed.warnings, parsed.malformed) == ((), ())
    assert first.header.created_at == 1_777_626_000_000
    assert texts_on(path_of(second)) == [
        "/ask And pears?",
        "Conference.",
        "Thanks.",
        "```python\nan answer that was cut off",
        "Still there?",
        "Yes.",
    ]


def test_prompt_marks_inside_a_code_block_stay_part_of_the_answer() -> None:
    first, _ = runs_of(CONTENT)
    asked, answer = [item.body for item in path_of(first) if isinstance(item.body, Message)]
    assert asked.text == "Which apples keep longest?\nAnswer in one word."
    assert answer.text.startswith("Boskoop.\n\n```\n> not an output\n#### not a question\n```")
    assert answer.text.endswith("Ask again in March.")
    assert answer.model == "openai:gpt-5"


def test_answer_that_was_cut_off_does_not_hide_the_next_question() -> None:
    start = b"# aider chat started at 2026-05-01 09:00:00\n\n"
    parsed = parse(start + b"#### One  \n\n```py\nx\n\n#### Two  \n\n```py\n> y\n```\n")
    assert texts_on(path_of(parsed)) == ["One", "```py\nx", "Two", "```py\n> y\n```"]


def test_commands_and_output_are_not_sent_to_a_model() -> None:
    first, _ = runs_of(CONTENT)
    bodies = [item.body for item in first.items]
    (command,) = [body for body in bodies if isinstance(body, CustomMessage)]
    assert (command.custom_type, command.in_context) == ("aider:command", False)
    assert bodies.count(ImportedRecord("aider", "output")) == 3


def test_sections_of_an_aider_history_cover_the_whole_file() -> None:
    sections = list(sessions_in(Held(CONTENT)))
    assert b"".join(each.read(0, each.length) for each in sections) == CONTENT
    assert sections[1].read(2, 5) == CONTENT[sections[0].length + 2 :][:5]


async def test_new_lines_of_a_history_continue_the_last_run(tmp_path: Path) -> None:
    path, store = tmp_path / FILE_NAME, empty_store()
    path.write_bytes(CONTENT)
    first, last = await reports_of(store, path)
    assert (first.format, first.is_new, first.session != last.session) == ("aider", True, True)
    assert (await store.state(last.session)).header.cwd == str(tmp_path)
    more = (
        b"\n#### And figs?  \n\nNone.\n\n# aider chat started at 2026-05-03 10:00:00\n\n#### Hi  \n"
    )
    path.write_bytes(CONTENT + more)
    reports = await reports_of(store, path)
    assert [(report.is_new, report.messages) for report in reports] == [
        (False, 0),
        (False, 2),
        (True, 1),
    ]
    assert [report.entries for report in await reports_of(store, path)] == [0, 0, 0]


@given(spoilt([CONTENT]) | st.binary(max_size=200).map(lambda more: CONTENT + more))
def test_damaged_history_loses_no_line(content: bytes) -> None:
    for parsed in [parse(content), *runs_of(content)]:
        check_items(parsed)


def test_text_that_is_no_aider_history_is_not_recognized() -> None:
    assert is_beginning(b"\n\n# aider chat started at 2026")
    assert not is_beginning(b"# Notes about aider chat started at")
