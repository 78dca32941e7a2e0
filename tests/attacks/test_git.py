"""Git in real repositories, some of which try to run programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.tools.builtin.git import git_commit, git_status
from tests.fakes.repositories import git, initialized
from tests.fakes.tool_calls import Tools


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return initialized(tmp_path / "repository")


async def test_git_status_log_and_diff_are_shown(repository: Path) -> None:
    (repository / "a.txt").write_text("two\n")
    tools = Tools(repository)
    assert " M a.txt" in (await tools.run(git_status)).output.text
    assert "first" in (await tools.run(git_status, command="log")).output.text
    assert "+two" in (await tools.run(git_status, command="diff")).output.text


async def test_git_commit_includes_only_the_named_files(repository: Path) -> None:
    (repository / "b.txt").write_text("new\n")
    (repository / "c.txt").write_text("not this one\n")
    run = await Tools(repository).run(git_commit, message="add b", files=["b.txt"])
    assert run.outcome == "ok"
    assert git(repository, "show", "--stat", "--format=%s").split()[:3] == ["add", "b", "b.txt"]
    assert "?? c.txt" in git(repository, "status", "--porcelain")


async def test_git_commit_without_changes_fails_without_showing_paths(repository: Path) -> None:
    run = await Tools(repository).run(git_commit, message="nothing")
    assert run.outcome == "error"
    assert str(repository) not in run.output.text


async def test_git_repository_above_the_workspace_is_not_read(repository: Path) -> None:
    below = repository / "below"
    below.mkdir()
    run = await Tools(below).run(git_status)
    assert run.error == "git_status: the working directory is not the top of a git repository"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("core.fsmonitor", "touch {mark}"),
        ("diff.external", "touch {mark}"),
        ("core.pager", "touch {mark}"),
        ("core.editor", "touch {mark}"),
        ("diff.evil.textconv", "touch {mark} #"),
        ("diff.evil.command", "touch {mark}"),
        ("gpg.program", "{mark}.sh"),
        ("commit.gpgSign", "true"),
        ("core.sshCommand", "touch {mark}"),
    ],
)
async def test_git_configuration_that_names_a_program_runs_nothing(
    repository: Path, tmp_path: Path, key: str, value: str
) -> None:
    mark = tmp_path / "mark"
    (repository / ".gitattributes").write_text("*.txt diff=evil\n")
    git(repository, "add", ".gitattributes")
    git(repository, "config", key, value.format(mark=mark))
    (repository / "a.txt").write_text("two\n")
    tools = Tools(repository)
    for command in ("status", "log", "diff"):
        assert (await tools.run(git_status, command=command)).outcome == "ok"
    assert (await tools.run(git_commit, message="x", files=["a.txt"])).outcome == "ok"
    assert not mark.exists()


@pytest.mark.parametrize("hook", ["pre-commit", "commit-msg", "post-commit", "prepare-commit-msg"])
async def test_git_hooks_do_not_run(repository: Path, tmp_path: Path, hook: str) -> None:
    mark = tmp_path / "mark"
    for folder in (repository / ".git" / "hooks", repository / "hooks"):
        folder.mkdir(exist_ok=True)
        script = folder / hook
        script.write_text(f"#!/bin/sh\ntouch {mark}\n")
        script.chmod(0o755)
    git(repository, "config", "core.hooksPath", "hooks")
    (repository / "a.txt").write_text("two\n")
    assert (await Tools(repository).run(git_commit, message="x", files=["a.txt"])).outcome == "ok"
    assert not mark.exists()


@pytest.mark.parametrize(
    "path", ["../outside.txt", ":(top)a.txt", ":/a.txt", ":!a.txt", "*.txt", "/etc/passwd"]
)
async def test_git_commit_rejects_patterns_and_paths_outside_the_repository(
    repository: Path, path: str
) -> None:
    (repository / "a.txt").write_text("two\n")
    before = git(repository, "rev-parse", "HEAD")
    run = await Tools(repository).run(git_commit, message="x", files=[path])
    assert run.outcome == "error"
    assert git(repository, "rev-parse", "HEAD") == before
