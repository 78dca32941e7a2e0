"""Single programs and how they end. tests/attacks/test_processes.py tests process trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import ToolUnavailable
from perdure.tools.processes import ProcessResult, exit_report, program_of, small_environment


def test_program_inherits_only_needed_environment_variables(tmp_path: Path) -> None:
    inherited = {
        "PATH": f"/usr/bin:.:bin:{tmp_path}/bin::/bin",
        "HOME": "/home/x",
        "OPENAI_API_KEY": "x",
        "LD_PRELOAD": "x",
        "GIT_DIR": "x",
        "PYTHONPATH": "x",
    }
    found = small_environment(inherited, tmp_path)
    assert found == {"PATH": "/usr/bin:/bin", "HOME": "/home/x", "TERM": "dumb"}


def test_environment_always_has_a_path(tmp_path: Path) -> None:
    assert small_environment({}, tmp_path)["PATH"]


def test_program_is_found_only_on_the_path() -> None:
    assert program_of("sh", "/usr/bin:/bin", "t").endswith("/sh")
    assert program_of("./x", "", "t") == "./x"
    with pytest.raises(ToolUnavailable, match="no such program"):
        program_of("no-such-program-anywhere", "/usr/bin:/bin", "t")


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (ProcessResult(0, b"out\n", b""), "[exit code 0]\nout"),
        (
            ProcessResult(2, b"", b"bad\xff\n"),
            "[exit code 2]\n[stderr]\nbad\N{REPLACEMENT CHARACTER}",
        ),
        (ProcessResult(-9, b"", b""), "[killed by signal 9]"),
        (ProcessResult(None, b"a", b""), "[killed: no end within 3 s]\na"),
        (ProcessResult(0, b"a", b"", 7), "[exit code 0]\na\n[7 more bytes were not kept]"),
    ],
)
def test_exit_report_describes_how_the_program_ended(ended: ProcessResult, text: str) -> None:
    assert exit_report(ended, 3) == text
