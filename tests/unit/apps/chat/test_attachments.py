"""Files that a message refers to as ``@FILE``."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.apps.chat.attachments import Mentions, attach_mentioned

ELSEWHERE = "memory:"


@pytest.mark.parametrize("variable", ["PERDURE_KEY_FILE", "KUBECONFIG"])
def test_credentials_file_set_by_a_variable_is_not_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    (tmp_path / "main.key.txt").write_text("0123")
    (tmp_path / "link").symlink_to("main.key.txt")
    monkeypatch.setenv(variable, str(tmp_path / "main.key.txt"))
    found = attach_mentioned("see @main.key.txt and @link", tmp_path, ELSEWHERE)
    assert not found.attached
    assert found.remarks == (
        "@main.key.txt may hold credentials; /attach main.key.txt attaches it",
        "@link may hold credentials; /attach link attaches it",
    )
    monkeypatch.delenv(variable)
    assert len(attach_mentioned("see @main.key.txt", tmp_path, ELSEWHERE).attached) == 1


@pytest.mark.parametrize(
    ("address", "name"),
    [("jsonl:///{}/files", "files/s.jsonl"), ("sqlite:///{}/s.db", "s.db-wal")],
)
def test_file_of_the_store_is_not_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, name: str
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / name).write_text("{}")
    text, place = f"see @{name}", address.format(tmp_path)
    assert not attach_mentioned(text, tmp_path, place).attached
    assert len(attach_mentioned(text, tmp_path, ELSEWHERE).attached) == 1
    monkeypatch.setenv("PERDURE_STORE", place)
    assert not attach_mentioned(text, tmp_path, ELSEWHERE).attached


def attached_of(text: str, folder: Path, *known: str) -> list[str]:
    return [each.name for each in attach_mentioned(text, folder, ELSEWHERE, known).attached]


@pytest.mark.parametrize(
    "text",
    [
        "(@notes.md)",
        "`@notes.md`",
        '"@notes.md".',
        "'@notes.md',",
        "[@notes.md]:",
        "<@notes.md>",
        'see ("@notes.md")?',
    ],
)
def test_file_name_in_brackets_or_quotes_is_found(tmp_path: Path, text: str) -> None:
    missing = attach_mentioned(text, tmp_path, ELSEWHERE)
    assert missing.remarks == ("sent as text, because the folder has no such file: @notes.md",)
    (tmp_path / "notes.md").write_text("the sea")
    assert attached_of(text, tmp_path) == ["notes.md"]


def test_file_notes_md_can_be_attached_after_the_file_notes(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("the sea")
    told = attach_mentioned("see @notes.md", tmp_path, ELSEWHERE, ["notes"]).remarks
    assert told == ("sent as text, because the folder has no such file: @notes.md",)
    (tmp_path / "notes.md").write_text("the land")
    assert attached_of("see @notes.md", tmp_path, "notes") == ["notes.md"]


@pytest.mark.parametrize("text", ["see @my notes", "(@my notes), and", "@my notes.", "@my notes\n"])
def test_attached_file_name_with_a_blank_is_matched_whole(tmp_path: Path, text: str) -> None:
    (tmp_path / "my").write_text("another file")
    assert attach_mentioned(text, tmp_path, ELSEWHERE, ["my notes"]) == Mentions()


def test_quoted_name_with_blanks_is_attached(tmp_path: Path) -> None:
    (tmp_path / "my notes.md").write_text("the sea")
    for text in ('see @"my notes.md"', '(@"my notes.md"), and more', '@"my notes.md".'):
        assert attached_of(text, tmp_path) == ["my notes.md"], text
    assert attached_of('mail@"my notes.md"', tmp_path) == []
    assert attach_mentioned("see @my notes.md", tmp_path, ELSEWHERE).remarks == (
        "sent as text, because the folder has no such file: @my",
        'write a name with blanks in quotation marks: @"my notes.md"',
    )
