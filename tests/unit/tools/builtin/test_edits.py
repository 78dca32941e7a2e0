"""Files are written and edited atomically, only inside the jail, and never if protected."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.errors import ToolDenied
from perdure.tools.builtin.edits import about_path, edit_file, write_file
from perdure.tools.permissions import Permissions
from tests.fakes.tool_calls import Tools

FULL = Permissions(scope="full")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_file_is_written_and_replaced_whole(tmp_path: Path) -> None:
    tools = Tools(tmp_path)
    assert (await tools.run(write_file, path="a.txt", content="one")).outcome == "ok"
    (tmp_path / "a.txt").chmod(0o750)
    run = await tools.run(write_file, path="./a.txt", content="zwei")
    assert (run.outcome, run.output.text) == ("ok", "4 bytes written")
    assert (tmp_path / "a.txt").read_text() == "zwei"
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o750
    assert names_in(tmp_path) == ["a.txt"]


async def test_append_tool_adds_text_at_the_end_of_a_file(tmp_path: Path) -> None:
    tools = Tools(tmp_path)
    for _ in range(2):
        run = await tools.run(write_file, path="log", content="x\n", append=True)
        assert run.outcome == "ok"
    assert (tmp_path / "log").read_text() == "x\nx\n"


async def test_missing_directories_are_created_only_on_request(tmp_path: Path) -> None:
    tools = Tools(tmp_path)
    run = await tools.run(write_file, path="a/b/c.txt", content="x")
    assert (run.outcome, names_in(tmp_path)) == ("error", [])
    run = await tools.run(write_file, path="a/b/c.txt", content="x", create_dirs=True)
    assert run.outcome == "ok"
    assert (tmp_path / "a/b/c.txt").read_text() == "x"


@pytest.mark.parametrize("path", ["new/.git/hooks/x", "new/../../x", "new/.ssh/config"])
async def test_failing_write_creates_no_directory(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    run = await Tools(root).run(write_file, path=path, content="x", create_dirs=True)
    assert run.outcome != "ok"
    assert names_in(root) == []


async def test_write_through_a_link_that_leads_outside_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside.txt"
    root.mkdir()
    outside.write_text("safe")
    (root / "real").write_text("old")
    (root / "in").symlink_to("real")
    (root / "out").symlink_to(outside)
    tools = Tools(root)
    assert (await tools.run(write_file, path="in", content="new")).outcome == "ok"
    assert (root / "real").read_text() == "new"
    assert (root / "in").is_symlink()
    assert (await tools.run(write_file, path="out", content="bad")).outcome == "refused"
    assert (
        await tools.run(write_file, path="out", content="bad", append=True)
    ).outcome == "refused"
    assert outside.read_text() == "safe"


async def test_hard_linked_file_is_rejected_except_in_full_scope(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "other").write_text("safe")
    os.link(tmp_path / "other", root / "linked")
    for append in (False, True):
        run = await Tools(root).run(write_file, path="linked", content="x", append=append)
        assert (run.outcome, run.error_code) == ("refused", "tool_denied")
    assert (await Tools(root, FULL).run(write_file, path="linked", content="x")).outcome == "ok"
    assert (tmp_path / "other").read_text() == "safe"


async def test_additional_directories_are_accessible_only_in_project_scope(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    root.mkdir()
    other.mkdir()
    path = str(other / "x")
    project = Permissions(scope="project", roots=("../other",))
    assert (await Tools(root, project).run(write_file, path=path, content="x")).outcome == "ok"
    sandboxed = Permissions(scope="sandboxed", roots=("../other",))
    run = await Tools(root, sandboxed).run(write_file, path=path, content="x")
    assert run.outcome == "refused"


async def test_full_scope_allows_all_paths_except_protected_paths(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    tools = Tools(root, FULL)
    assert (await tools.run(write_file, path="../x", content="x")).outcome == "ok"
    assert (await tools.run(write_file, path=f"{tmp_path}/y", content="x")).outcome == "ok"
    for path in ("../.bashrc", f"{tmp_path}/.ssh/config", "/etc/x", "/proc/self/mem"):
        assert (await tools.run(write_file, path=path, content="x")).outcome == "refused"


async def test_edit_replaces_a_unique_text(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 1\n")
    tools = Tools(tmp_path)
    run = await tools.run(edit_file, path="a.py", old_text="x = 1", new_text="x = 2")
    assert run.output.text == "replaced 1 time"
    assert (tmp_path / "a.py").read_text() == "x = 2\ny = 1\n"


@pytest.mark.parametrize(("old", "reason"), [("z", "not in the file"), ("= 1", "there 2 times")])
async def test_edit_of_ambiguous_text_changes_no_file(
    tmp_path: Path, old: str, reason: str
) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 1\n")
    run = await Tools(tmp_path).run(edit_file, path="a.py", old_text=old, new_text="!")
    assert run.outcome == "error"
    assert reason in run.output.text
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 1\n"


async def test_edit_can_replace_all_occurrences(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1 1")
    tools = Tools(tmp_path)
    run = await tools.run(edit_file, path="a", old_text="1", new_text="2", replace_all=True)
    assert (run.output.text, (tmp_path / "a").read_text()) == ("replaced 2 times", "2 2")


@pytest.mark.parametrize("content", [b"a\0b", b"\xff\xfe"])
async def test_binary_file_is_not_edited(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    run = await Tools(tmp_path).run(edit_file, path="a", old_text="a", new_text="b")
    assert run.outcome == "error"
    assert (tmp_path / "a").read_bytes() == content


async def test_text_that_is_not_utf_8_is_not_written(tmp_path: Path) -> None:
    run = await Tools(tmp_path).run(write_file, path="a", content="\ud800")
    assert run.error_code == "invalid_arguments"
    assert names_in(tmp_path) == []


async def test_directory_or_pipe_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "p")
    for path in ("d", "d/", "p", ".", "d/.."):
        run = await Tools(tmp_path).run(write_file, path=path, content="x")
        assert run.outcome == "error"


def test_write_grant_contains_the_normalized_path() -> None:
    assert about_path({"path": "./src//a.py"}, Permissions()).grant == "src/a.py"


@pytest.mark.parametrize("path", [".git/hooks/x", "a/.SSH/x", ".bashrc.", ".perdure/x"])
def test_protected_path_is_refused_without_asking(path: str) -> None:
    with pytest.raises(ToolDenied):
        about_path({"path": path}, Permissions())
