from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.tools.builtin import files
from perdure.tools.builtin.files import MAX_ENTRIES, MAX_FILE_BYTES, list_directory, read_file
from perdure.tools.execution import ToolRun, run_tool
from perdure.tools.spec import DEFAULT_OUTPUT_BYTES
from tests.fakes.clock import ManualClock
from tests.fakes.tool_calls import tool_call_of


async def run_read(root: Path, path: str, **args: object) -> ToolRun:
    call = tool_call_of("read_file", root, path=path, **args)
    return await run_tool(read_file, call, clock=ManualClock())


async def read(root: Path, path: str, **args: object) -> str:
    run = await run_read(root, path, **args)
    assert run.outcome == "ok", run
    return run.output.text


async def listed(root: Path, **args: object) -> list[str]:
    call = tool_call_of("list_directory", root, **args)
    run = await run_tool(list_directory, call, clock=ManualClock())
    assert run.outcome == "ok", run
    return run.output.text.split("\n")


def test_read_tools_are_retried_after_an_unknown_outcome() -> None:
    for spec in (read_file, list_directory):
        assert (spec.effect, spec.on_unknown) == ("read", "retry")
        assert spec.description
        assert "call" not in str(spec.parameters["properties"])


async def test_read_tool_returns_file_unchanged(tmp_path: Path) -> None:
    text = "one\r\n  two\u2028still two\n\nü 😀 last"
    (tmp_path / "f").write_text(text, newline="")
    assert await read(tmp_path, "f") == text


async def test_final_line_feed_adds_no_empty_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one\ntwo\n")
    assert await read(tmp_path, "f") == "one\ntwo"
    assert (await run_read(tmp_path, "f", offset=3)).outcome == "error"


async def test_empty_file_is_reported_as_empty(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    assert await read(tmp_path, "f") == "[the file is empty]"


async def test_partial_read_reports_the_line_to_continue_at(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\nc\nd\n")
    assert await read(tmp_path, "f", offset=2, limit=2) == (
        "b\nc\n[lines 2 to 3 of 4; go on with offset 4]"
    )
    assert await read(tmp_path, "f", offset=4, limit=2) == "d"
    assert await read(tmp_path, "f", offset=3) == "c\nd"


@pytest.mark.parametrize("args", [{"offset": 0}, {"limit": 0}, {"offset": -1}, {"limit": "2"}])
async def test_invalid_line_range_is_rejected(tmp_path: Path, args: dict[str, object]) -> None:
    (tmp_path / "f").write_text("a\n")
    assert (await run_read(tmp_path, "f", **args)).error_code == "invalid_arguments"


async def test_error_for_an_offset_after_the_end_has_the_line_count(
    tmp_path: Path,
) -> None:
    (tmp_path / "f").write_text("a\nb\n")
    run = await run_read(tmp_path, "f", offset=5)
    assert run.error == "read_file: the file has 2 lines, none at offset 5"


async def test_long_file_is_read_page_by_page_without_loss(tmp_path: Path) -> None:
    lines = [f"{n} {'ü' * (n % 90)}" for n in range(5000)]
    (tmp_path / "f").write_text("\n".join(lines))
    collected: list[str] = []
    while True:
        page = await read(tmp_path, "f", offset=len(collected) + 1)
        assert len(page.encode()) <= DEFAULT_OUTPUT_BYTES
        got = page.split("\n")
        if not got[-1].startswith("[lines"):
            collected += got
            break
        collected += got[:-1]
    assert collected == lines


async def test_very_long_line_is_shown_in_part(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a" * 100_000 + "\nb")
    text = await read(tmp_path, "f")
    assert "bytes left out" in text
    assert text.endswith("[lines 1 to 1 of 2; go on with offset 2]")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a\0b", "it is binary"),
        (b"\xff\xfea", "it is not UTF-8 text"),
        (b"a" * (MAX_FILE_BYTES + 1), "it is larger than 8388608 bytes"),
    ],
)
async def test_binary_or_too_large_file_is_rejected(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "f").write_bytes(content)
    run = await run_read(tmp_path, "f")
    assert run.error == f"read_file: the file cannot be read: {reason}"


@pytest.mark.full_only
async def test_file_of_the_largest_allowed_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\n" * (MAX_FILE_BYTES // 2))
    assert (await read(tmp_path, "f", offset=MAX_FILE_BYTES // 2)) == "a"


async def test_path_leading_outside_the_working_directory_is_rejected_with_reason(
    tmp_path: Path,
) -> None:
    run = await run_read(tmp_path, "../x")
    assert (run.outcome, run.error_code) == ("refused", "tool_denied")
    assert run.output.text == "read_file: the path leads out of the working directory"


async def test_directory_entries_are_sorted_and_show_their_kind(
    tmp_path: Path,
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("")
    (tmp_path / "README").write_text("")
    (tmp_path / "link").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    assert await listed(tmp_path) == ["README", "link (link)", "pipe (special file)", "src/"]
    assert await listed(tmp_path, recursive=True) == [
        "README",
        "link (link)",
        "pipe (special file)",
        "src/",
        "src/a.py",
    ]
    assert await listed(tmp_path, path="src") == ["a.py"]


async def test_list_tool_lists_files_that_match_the_glob(tmp_path: Path) -> None:
    for name in ("a.py", "b.txt", "sub/c.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert await listed(tmp_path, glob="*.py") == ["a.py"]
    assert await listed(tmp_path, glob="*.py", recursive=True) == ["a.py", "sub/c.py"]
    assert await listed(tmp_path, glob="*.md") == ["[nothing there]"]


async def test_truncated_list_ends_with_a_note_about_the_limit(tmp_path: Path) -> None:
    for n in range(MAX_ENTRIES + 1):
        (tmp_path / f"{n:03}").write_text("")
    lines = await listed(tmp_path)
    assert lines[:-1] == [f"{n:03}" for n in range(MAX_ENTRIES)]
    assert lines[-1] == "[stopped after 200 entries; give a path or a glob]"
    (tmp_path / "000").unlink()
    assert len(await listed(tmp_path)) == MAX_ENTRIES


async def test_name_with_line_feeds_is_printed_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "a\nb").write_text("")
    (tmp_path / os.fsdecode(b"c\xff")).write_text("")
    assert await listed(tmp_path) == ["a\\nb", "c\\udcff"]


async def test_all_files_that_match_a_glob_are_read_in_one_call(tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "a.py").write_text("one\n")
    (tmp_path / "src" / "deep" / "b.py").write_text("two")
    (tmp_path / "src" / "c.txt").write_text("not this")
    (tmp_path / "src" / ".env.py").write_text("KEY=1")
    (tmp_path / "src" / "d.py").write_bytes(b"\0")
    assert await read(tmp_path, "src", glob="*.py") == (
        "== src/a.py ==\none\n== src/d.py ==\n[not read: it is binary]\n== src/deep/b.py ==\ntwo"
    )
    assert await read(tmp_path, ".", glob="src/*.txt") == "== src/c.txt ==\nnot this"
    assert await read(tmp_path, ".", glob="*.rs") == "[no file fits]"
    assert (await run_read(tmp_path, "src/a.py", glob="*")).outcome == "error"
    wrong = await run_read(tmp_path, "src", glob="*.py", offset=2)
    assert wrong.error_code == "invalid_arguments"


async def test_reading_many_files_stops_at_limit_with_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("x" * 10)
    monkeypatch.setattr(files, "MAX_FILES", 3)
    text = await read(tmp_path, ".", glob="*")
    assert text.count("== ") == 3
    assert text.endswith("[stopped: there is more; give a narrower glob]")
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 25)
    assert (await read(tmp_path, ".", glob="*")).count("== ") == 2
