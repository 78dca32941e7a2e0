from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.tools.builtin import search
from perdure.tools.builtin.files import MAX_FILE_BYTES
from perdure.tools.builtin.search import search_files
from perdure.tools.execution import run_tool
from perdure.tools.paths import walk
from tests.fakes.clock import ManualClock
from tests.fakes.tool_calls import tool_call_of

STOPPED = "[stopped: there is too much to search; give a path or a glob]"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    texts = {
        "a.py": "import os\nprint(os)\n",
        "sub/b.py": "x = 1\n\tprint('Os')\n",
        "sub/c.txt": "os\u2028os\r\nno\n",
        ".env": "os=1\n",
        ".git/x": "os\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, newline="")
    (tmp_path / "binary").write_bytes(b"os\0os\n")
    (tmp_path / "latin").write_bytes(b"os \xe9\n")
    (tmp_path / "link.py").symlink_to("a.py")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


async def found(root: Path, pattern: str, **args: object) -> list[str]:
    call = tool_call_of("search_files", root, pattern=pattern, **args)
    run = await run_tool(search_files, call, clock=ManualClock())
    assert run.outcome == "ok", run
    return run.output.text.split("\n")


def test_search_changes_nothing_and_can_be_repeated() -> None:
    assert (search_files.effect, search_files.on_unknown) == ("read", "retry")


async def test_matching_lines_are_listed_with_path_and_number(root: Path) -> None:
    assert await found(root, "os") == [
        "a.py:1: import os",
        "a.py:2: print(os)",
        "sub/c.txt:1: os\u2028os",
    ]


async def test_letter_case_can_be_ignored(root: Path) -> None:
    assert await found(root, "OS", ignore_case=True, glob="*.py") == [
        "a.py:1: import os",
        "a.py:2: print(os)",
        "sub/b.py:2: \tprint('Os')",
    ]


async def test_result_paths_are_relative_to_the_working_directory(root: Path) -> None:
    assert await found(root, "os", path="sub") == ["sub/c.txt:1: os\u2028os"]
    assert await found(root, "os", path="sub/c.txt") == ["sub/c.txt:1: os\u2028os"]


async def test_search_text_is_not_a_regular_expression(root: Path) -> None:
    assert await found(root, "o.") == ["[not found]"]
    assert await found(root, "print(os)") == ["a.py:2: print(os)"]


async def test_search_with_invalid_arguments_is_rejected(root: Path) -> None:
    for args, code in (
        ({"pattern": ""}, "invalid_arguments"),
        ({"pattern": "x", "path": "../"}, "tool_denied"),
        ({"pattern": "x", "path": ".env"}, "tool_denied"),
        ({"pattern": "x", "path": "missing"}, "tool_error"),
    ):
        call = tool_call_of("search_files", root, **args)
        assert (await run_tool(search_files, call, clock=ManualClock())).error_code == code


async def test_long_line_in_a_search_result_is_cut(root: Path) -> None:
    (root / "long.txt").write_text("y" * 1000 + "needle")
    assert await found(root, "needle") == ["long.txt:1: " + "y" * search.MAX_LINE_CHARACTERS]


async def test_too_many_lines_end_the_search(root: Path) -> None:
    (root / "many.txt").write_text("needle\n" * 500)
    lines = await found(root, "needle")
    assert len(lines) == search.MAX_MATCHES + 1
    assert lines[-1] == "[stopped after 200 lines; give a path or a glob]"


async def test_too_many_bytes_or_entries_end_the_search(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(search, "MAX_READ_BYTES", 30)
        assert await found(root, "os") == ["a.py:1: import os", "a.py:2: print(os)", STOPPED]
    monkeypatch.setattr(walk, "MAX_VISITED", 2)
    assert await found(root, "os") == [STOPPED]


async def test_too_large_file_is_skipped(root: Path) -> None:
    (root / "large.txt").write_bytes(b"needle\n" + b"a" * MAX_FILE_BYTES)
    assert await found(root, "needle") == ["[not found]"]
