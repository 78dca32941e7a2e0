from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.engine.flows.files.record import RecordFolder
from perdure.engine.flows.rules.handoffs import Artifact


@pytest.fixture
def record(tmp_path: Path) -> RecordFolder:
    folder = tmp_path / "project" / "record"
    (folder / "notes").mkdir(parents=True)
    (folder / "plan.md").write_text("the plan")
    (folder / "notes" / "a.md").write_text("a note")
    (tmp_path / "secret.md").write_text("not yours")
    return RecordFolder(folder, tmp_path)


def artifact(record: RecordFolder, name: str) -> Artifact:
    return record.look_up([name])[name].artifact


@pytest.mark.parametrize(
    "name",
    ["plan.md", "./plan.md", "notes/../plan.md", "project/record/plan.md", "//plan.md"[2:]],
)
def test_every_spelling_of_a_file_path_gives_one_canonical_path(
    record: RecordFolder, name: str
) -> None:
    found = artifact(record, name)
    assert (found.path, found.problem) == ("plan.md", None)
    assert found.digest is not None
    assert artifact(record, str(record.folder / "plan.md")) == found


def test_link_within_folder_resolves_to_its_target(record: RecordFolder) -> None:
    (record.folder / "link.md").symlink_to("notes/a.md")
    assert artifact(record, "link.md").path == "notes/a.md"


@pytest.mark.parametrize("name", ["../../secret.md", "secret.md", "out.md", "up/secret.md"])
def test_path_outside_folder_is_rejected(record: RecordFolder, name: str) -> None:
    (record.folder / "out.md").symlink_to("../../secret.md")
    (record.folder / "up").symlink_to("../..")
    found = record.look_up([name])[name]
    assert found.artifact.problem in (
        "it lies outside of the record folder",
        "no such file",
    )
    assert found.content == b""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no.md", "no such file"),
        ("notes", "it is not a file"),
        ("empty.md", "it is empty"),
        ("pipe", "it is not a file"),
        ("large.md", "it exceeds limits.artifact_bytes = 8,388,608"),
        ("a\0b", "no such file"),
    ],
)
def test_error_for_an_unusable_artifact_gives_the_reason(
    record: RecordFolder, name: str, problem: str
) -> None:
    (record.folder / "empty.md").write_text(" \n")
    os.mkfifo(record.folder / "pipe")
    with (record.folder / "large.md").open("wb") as file:
        file.truncate(9 * 1024 * 1024)
    assert artifact(record, name).problem == problem


def test_text_sent_to_a_role_reports_a_missing_artifact(record: RecordFolder) -> None:
    texts = record.texts(["plan.md", "gone.md"])
    assert texts["plan.md"] == "the plan"
    assert texts["gone.md"] == "(this file cannot be read any more: no such file)"
