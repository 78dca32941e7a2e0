"""Approvals are bound to the content of the files that a command line names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.errors import ToolError
from perdure.tools.builtin.named_files import MAX_FILES, file_at, program_facts, script_facts


@pytest.mark.parametrize(
    ("argv", "file"),
    [
        (("python3", "build.py"), "build.py"),
        (("python3", "./build.py"), "build.py"),
        (("node", "app"), "app.js"),
        (("node", "app"), "app/index.js"),
        (("python3", "-m", "pkg.mod"), "pkg/mod.py"),
        (("python3", "pkg"), "pkg/__main__.py"),
        (("pytest", "--rootdir=x", "--config=conf.ini"), "conf.ini"),
        (("sh", "-c", "cd . && ./go.sh; true"), "go.sh"),
        (("make", "-f", "rules.mk"), "rules.mk"),
        (("tool", "a:b,c.txt"), "c.txt"),
    ],
)
def test_approval_is_bound_to_hash_of_script(
    tmp_path: Path, argv: tuple[str, ...], file: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("one")
    before = script_facts(argv, tmp_path)
    assert any(str(path.resolve()) in fact for fact in before.values())
    path.write_text("two")
    assert script_facts(argv, tmp_path) != before


def test_approval_is_bound_to_target_of_linked_script(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("same")
    link = tmp_path / "run.sh"
    link.symlink_to("one")
    before = script_facts(("sh", "run.sh"), tmp_path)
    link.unlink()
    link.symlink_to("two")
    assert script_facts(("sh", "run.sh"), tmp_path) != before


def test_pipe_or_device_named_by_a_command_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert script_facts(("cat", "pipe", "/dev/zero"), tmp_path) == {}


def test_approval_is_bound_to_every_file_of_a_command(tmp_path: Path) -> None:
    names = [f"f{n}" for n in range(MAX_FILES + 2)]
    for name in names:
        (tmp_path / name).write_text("x")
    before = script_facts(("cat", *names), tmp_path)
    assert len(before) == MAX_FILES + 1
    assert before["further files"].startswith("2, blake2b-256 ")
    (tmp_path / names[-1]).write_text("y")
    assert script_facts(("cat", *names), tmp_path) != before


def test_command_that_names_too_many_files_is_refused(tmp_path: Path) -> None:
    words = " ".join(f"w{n}" for n in range(20_000))
    with pytest.raises(ToolError, match="too long to be approved"):
        script_facts(("sh", "-c", words), tmp_path)


@pytest.mark.parametrize(
    ("argv", "file"),
    [
        (("make",), "Makefile"),
        (("npm", "test"), "package.json"),
        (("pytest",), "conftest.py"),
        (("python3", "-m", "pytest"), "pyproject.toml"),
        (("/usr/bin/make", "all"), "makefile"),
    ],
)
def test_approval_includes_files_that_a_program_reads_by_default(
    tmp_path: Path, argv: tuple[str, ...], file: str
) -> None:
    (tmp_path / file).write_text("one")
    before = script_facts(argv, tmp_path)
    (tmp_path / file).write_text("two")
    assert script_facts(argv, tmp_path) != before


def test_approval_is_bound_to_path_and_content_of_program(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    before = program_facts("./tool", tmp_path)
    assert before["program"] == str(program.resolve())
    program.write_text("#!/bin/sh\nid\n")
    assert program_facts("./tool", tmp_path) != before
    with pytest.raises(ToolError, match="not a readable file"):
        program_facts("./missing", tmp_path)


def test_files_links_and_missing_paths_are_described_differently(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "l").symlink_to("a")
    assert file_at(tmp_path / "a").startswith("1 bytes, blake2b-256 ")
    assert file_at(tmp_path / "l") == "link to a"
    assert file_at(tmp_path / "no") == "nothing is there"
