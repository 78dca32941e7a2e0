"""The files of a record folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.bounds.limits import InputLimits, limits, use_input_limits
from perdure.errors import LimitExceeded
from perdure.interop.a_society.record import read_record


def record(tmp_path: Path) -> Path:
    (tmp_path / "findings").mkdir()
    (tmp_path / "plan.md").write_text("plan")
    (tmp_path / "findings" / "owner-findings.md").write_text("findings")
    (tmp_path / ".flow").write_text("f")
    return tmp_path


def test_record_contains_no_files_written_by_perdure(tmp_path: Path) -> None:
    read = read_record(record(tmp_path))
    assert read.files == {"findings/owner-findings.md": b"findings", "plan.md": b"plan"}
    assert read.left_out == {}


def test_dot_files_are_omitted_and_reported(tmp_path: Path) -> None:
    folder = record(tmp_path)
    (folder / ".git" / "deep").mkdir(parents=True)
    (folder / ".git" / "deep" / "config").write_text("x")
    for name in (".env", "findings/.notes", "findings/.flow"):
        (folder / name).write_text("x")
    read = read_record(folder)
    assert sorted(read.files) == ["findings/owner-findings.md", "plan.md"]
    assert sorted(read.left_out) == [".env", ".git", "findings/.flow", "findings/.notes"]
    assert all(why.endswith("its name begins with a dot") for why in read.left_out.values())


def test_missing_record_files_are_reported(
    tmp_path: Path,
) -> None:
    read = read_record(record(tmp_path), ["plan.md", "gone.md"])
    assert list(read.files) == ["plan.md"]
    assert list(read.left_out) == ["gone.md"]
    assert "No such file" in read.left_out["gone.md"]


def test_large_file_is_skipped_and_large_record_is_rejected(tmp_path: Path) -> None:
    before = limits()
    try:
        use_input_limits(InputLimits(artifact_bytes=5))
        assert list(read_record(record(tmp_path)).files) == ["plan.md"]
        use_input_limits(InputLimits(import_file_bytes=5))
        with pytest.raises(LimitExceeded):
            read_record(tmp_path)
    finally:
        use_input_limits(before)
