"""The scratch directory of a session."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perdure.errors import ToolDenied, ToolError
from perdure.tools.builtin.edits import write_file
from perdure.tools.builtin.files import list_directory, read_file
from perdure.tools.builtin.search import search_files
from perdure.tools.execution import run_tool
from perdure.tools.paths.jail import Jail
from perdure.tools.paths.scratch import below, make_scratch, remove_scratch, scratch_of
from perdure.tools.permissions import SCOPES, Permissions, Scope
from perdure.tools.spec import ToolSpec
from tests.fakes.clock import ManualClock
from tests.fakes.tool_calls import tool_call_of


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "own" / "scratch"


def mode_of(folder: Path) -> int:
    return folder.stat().st_mode & 0o777


def in_folder(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def ran(spec: ToolSpec, work: Path, scratch: Path, scope: Scope, **args: object) -> str:
    call = tool_call_of(spec.name, work, **args)
    allowed = Permissions(scope=scope)
    call = msgspec.structs.replace(call, scratch_dir=scratch, permissions=allowed)
    run = await run_tool(spec, call, clock=ManualClock())
    assert run.outcome == "ok", run
    return run.output.text


@pytest.mark.parametrize("scope", SCOPES)
async def test_scratch_files_are_separate_from_workspace(
    work: Path, scratch: Path, scope: Scope
) -> None:
    place = {"path": "~scratch/notes/a.txt", "content": "the sea"}
    await ran(write_file, work, scratch, scope, **place, create_dirs=True)
    assert (mode_of(scratch), in_folder(work)) == (0o700, [])
    assert await ran(read_file, work, scratch, scope, path="~scratch/notes/a.txt") == "the sea"
    assert await ran(list_directory, work, scratch, scope, path="~scratch") == "notes/"
    found = await ran(search_files, work, scratch, scope, path="~scratch", pattern="sea")
    assert found == "~scratch/notes/a.txt:1: the sea"


@pytest.mark.parametrize("path", ["~scratch/../x", "~scratch/link/x", "~scratch/.ssh/x"])
def test_scratch_path_cannot_reach_forbidden_files(work: Path, scratch: Path, path: str) -> None:
    make_scratch(scratch.parent / scratch.name)
    (scratch / "link").symlink_to(work)
    (work / "x").write_text("mine")
    with pytest.raises(ToolDenied), Jail(work, "tool", scratch_dir=scratch).file(path):
        raise AssertionError("it was reached")


def test_workspace_folder_named_scratch_can_be_opened(work: Path) -> None:
    (work / "~scratch").mkdir()
    with Jail(work, "tool").directory("~scratch") as found:
        assert found.names == ("~scratch",)


@pytest.mark.parametrize("is_link", [True, False])
def test_scratch_folder_of_another_user_is_rejected(
    work: Path, scratch: Path, *, is_link: bool
) -> None:
    if is_link:
        scratch.parent.symlink_to(work)
    else:
        scratch.parent.mkdir(mode=0o755)
    with (
        pytest.raises(ToolError, match="not the person's own"),
        Jail(work, "tool", scratch_dir=scratch).directory("~scratch"),
    ):
        raise AssertionError("it was reached")
    assert list(work.iterdir()) == []


def test_scratch_directory_is_stable_per_session(work: Path) -> None:
    one = scratch_of("sqlite:////a.db", "default", "s")
    assert one == scratch_of("sqlite:////a.db", "default", "s")
    others = [("sqlite:////b.db", "default", "s"), ("sqlite:////a.db", "x", "s")]
    assert len({one, *(scratch_of(*other) for other in others)}) == 3
    assert below("~scratch") == ""
    assert below("~scratch/a/b") == "a/b"
    assert below("~scratches/a") is None


def test_removing_a_linked_scratch_folder_keeps_the_link_target(work: Path, scratch: Path) -> None:
    (make_scratch(scratch) / "a").write_text("x")
    remove_scratch(scratch)
    assert not scratch.exists()
    remove_scratch(scratch)
    scratch.symlink_to(work)
    remove_scratch(scratch)
    assert work.is_dir()
