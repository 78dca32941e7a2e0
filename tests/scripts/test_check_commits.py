"""scripts/check_commits.py finds long and malformed subjects, and skips without history."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.check_commits import SUBJECT_CHARACTERS, main, violations

LONGEST = "area: " + "x" * (SUBJECT_CHARACTERS - len("area: "))


def git(root: Path, *arguments: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(root), *names, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path, subject: str) -> str:
    git(root, "commit", "--quiet", "--allow-empty", "-m", subject)
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet")
    return root


@pytest.mark.parametrize(
    "subject",
    [LONGEST, "sqlite: fix race", "stores/jsonl: skip lines", "cli, docs: rename", "a.yaml: add x"],
)
def test_well_formed_commit_subject_passes_the_check(subject: str) -> None:
    assert list(violations([("abc", subject)])) == []


@pytest.mark.parametrize(
    ("subject", "rule"),
    [
        (LONGEST + "x", "commit-size"),
        ("fix a race", "commit-form"),
        ("area:no space", "commit-form"),
        ("area: ", "commit-form"),
        (": summary", "commit-form"),
        ("an area of words: summary", "commit-form"),
    ],
)
def test_malformed_commit_subject_fails_the_check(subject: str, rule: str) -> None:
    assert [line.split(": ")[:2] for line in violations([("abc", subject)])] == [["abc", rule]]


def test_only_commits_after_the_base_are_checked(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = commit(repository, "an old subject " * 9)
    commit(repository, "area: first")
    assert main([str(repository)], base) == 0
    assert capsys.readouterr().out == ""
    bad = commit(repository, "no form")
    commit(repository, "area: third")
    assert main([str(repository)], base) == 1
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert bad.startswith(printed.split(":")[0])


def test_commit_check_is_skipped_with_a_reason_in_a_shallow_clone(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = commit(repository, "area: base")
    commit(repository, "no form")
    shallow = tmp_path / "shallow"
    git(repository, "clone", "--quiet", "--depth", "1", repository.as_uri(), str(shallow))
    assert main([str(shallow)], base) == 0
    assert f"not checked: the history does not reach back to commit {base[:8]}" in (
        capsys.readouterr().out
    )


def test_commit_check_is_skipped_outside_of_a_git_repository(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpacked = repository / "unpacked"
    unpacked.mkdir()
    assert main([str(unpacked)]) == 0
    assert f"not checked: {unpacked} is not a git repository" in capsys.readouterr().out


def test_commit_check_is_skipped_with_a_reason_if_git_is_missing(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(repository))
    assert main([str(repository)]) == 0
    assert "not checked: git is not installed" in capsys.readouterr().out
