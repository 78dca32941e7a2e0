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
def test_read_tools_are_recognized_in_every_spelling(name: str, args: dict[str, object]) -> None:
    assert file_lists([calling(name, args)]) == FileLists(read=("a.py",))


@pytest.mark.parametrize("name", ["write", "edit", "Write", "Edit", "MultiEdit", "write_file"])
def test_write_tools_are_recognized_in_every_spelling(name: str) -> None:
    assert file_lists([calling(name, {"file_path": "a"})]) == FileLists(modified=("a",))


def test_changed_file_is_not_listed_as_read() -> None:
    said = [calling("read", {"path": p}) for p in ("b", "a", "c")]
    said.append(calling("edit", {"path": "b"}))
    assert file_lists(said) == FileLists(read=("a", "c"), modified=("b",))


def test_files_of_earlier_summaries_are_included() -> None:
    earlier = [FileLists(read=("x",), modified=("y",)), FileLists(read=("y", "z"))]
    said = [calling("write", {"path": "x"})]
    assert file_lists(said, earlier) == FileLists(read=("z",), modified=("x", "y"))


@pytest.mark.parametrize("args", [{}, {"path": 3}, {"path": ""}, {"file": "a"}])
def test_call_without_a_path_adds_no_file_to_the_summary(args: dict[str, object]) -> None:
    assert file_lists([calling("read", args)]) == FileLists()


def test_call_of_an_unrelated_tool_adds_no_file_to_the_summary() -> None:
    assert file_lists([calling("delete", {"path": "a"})]) == FileLists()


def test_file_lists_are_appended_to_a_summary_and_removed_again() -> None:
    lists = FileLists(read=("a", "b"), modified=("c",))
    text = with_file_lists("the summary\n", lists)
    assert text == (
        "the summary\n\n<read-files>\na\nb\n</read-files>\n\n<modified-files>\nc\n</modified-files>"
    )
    assert without_file_lists(text) == "the summary"


def test_summary_without_files_is_unchanged() -> None:
    assert with_file_lists("the summary", FileLists()) == "the summary"
