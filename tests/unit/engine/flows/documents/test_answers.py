"""Answers are files in the record folder. Each answer is written completely or not at all."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from perdure.engine.flows.documents.answers import kept_answer
from perdure.session.ids import blob_hash


def test_answer_of_a_node_is_stored_as_a_file(tmp_path: Path) -> None:
    kept = kept_answer(tmp_path, "outputs/a.md", "Grüße")
    assert kept is not None
    assert kept.content == "Grüße".encode()
    assert kept.artifact.digest == blob_hash(kept.content)
    assert (tmp_path / "outputs" / "a.md").read_bytes() == kept.content
    kept_answer(tmp_path, "outputs/a.md", "new")
    assert [file.name for file in (tmp_path / "outputs").iterdir()] == ["a.md"]
    assert (tmp_path / "outputs" / "a.md").read_text() == "new"


def test_blank_answer_gives_no_artifact(tmp_path: Path) -> None:
    assert kept_answer(tmp_path, "outputs/a.md", " \n") is None


def test_half_written_answer_file_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / ".a.md.new").write_text("half")
    assert kept_answer(tmp_path, "outputs/a.md", "whole") is not None
    assert [file.name for file in (tmp_path / "outputs").iterdir()] == ["a.md"]


def test_answer_is_stored_without_file_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_file: object, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    kept = kept_answer(tmp_path, "outputs/a.md", "x")
    assert kept is not None
    assert kept.artifact.problem is None


def test_answer_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    record, outside = tmp_path / "record", tmp_path / "outside"
    record.mkdir()
    outside.mkdir()
    (record / "outputs").symlink_to(outside)
    kept = kept_answer(record, "outputs/a.md", "x")
    assert kept is not None
    assert "cannot be written" in (kept.artifact.problem or "")
    assert list(outside.iterdir()) == []


def test_missing_record_folder_is_reported_as_problem(tmp_path: Path) -> None:
    kept = kept_answer(tmp_path / "gone", "outputs/a.md", "x")
    assert kept is not None
    assert kept.artifact.problem is not None
