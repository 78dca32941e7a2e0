from __future__ import annotations

import pytest

from perdure.context.files import FileLists, file_lists, with_file_lists, without_file_lists
from perdure.session.messages import Message, assistant, tool_call


def calling(name: str, args: dict[str, object]) -> Message:
    return assistant(tool_call("1", name, args))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("read", {"path": "a.py"}),
        ("read_file", {"path": "a.py"}),
        ("Read", {"file_path": "a.py"}),
        ("NotebookRead", {"notebook_path": "a.py"}),
    ],
)
def test_reading_is_known_by_every_spelling(name: str, args: dict[str, object]) -> None:
    assert file_lists([calling(name, args)]) == FileLists(read=("a.py",))


@pytest.mark.parametrize("name", ["write", "edit", "Write", "Edit", "MultiEdit", "write_file"])
def test_changing_is_known_by_every_spelling(name: str) -> None:
    assert file_lists([calling(name, {"file_path": "a"})]) == FileLists(modified=("a",))


def test_what_was_changed_is_not_also_listed_as_read() -> None:
    said = [calling("read", {"path": p}) for p in ("b", "a", "c")]
    said.append(calling("edit", {"path": "b"}))
    assert file_lists(said) == FileLists(read=("a", "c"), modified=("b",))


def test_earlier_summaries_hand_their_files_on() -> None:
    earlier = [FileLists(read=("x",), modified=("y",)), FileLists(read=("y", "z"))]
    said = [calling("write", {"path": "x"})]
    assert file_lists(said, earlier) == FileLists(read=("z",), modified=("x", "y"))


@pytest.mark.parametrize("args", [{}, {"path": 3}, {"path": ""}, {"file": "a"}])
def test_a_call_without_a_path_names_no_file(args: dict[str, object]) -> None:
    assert file_lists([calling("read", args)]) == FileLists()


def test_other_tools_name_no_file() -> None:
    assert file_lists([calling("delete", {"path": "a"})]) == FileLists()


def test_the_lists_follow_the_summary_and_come_off_again() -> None:
    lists = FileLists(read=("a", "b"), modified=("c",))
    text = with_file_lists("the summary\n", lists)
    assert text == (
        "the summary\n\n<read-files>\na\nb\n</read-files>\n\n<modified-files>\nc\n</modified-files>"
    )
    assert without_file_lists(text) == "the summary"


def test_without_files_a_summary_stays_as_it_is() -> None:
    assert with_file_lists("the summary", FileLists()) == "the summary"
