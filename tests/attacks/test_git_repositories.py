"""A repository that points elsewhere is not followed; unavoidable settings need approval.

Real git, real repositories, as in `test_git_configurations`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.conversation.workspace import Workspace, git_ref_of
from perdure.client.reads import OpenQuestion
from perdure.models.scenario import CallTools, ScriptedCall
from perdure.tools.builtin.git import git_commit, git_status
from perdure.tools.permissions import Permissions
from tests.fakes.chats import MODEL, Stage, says, until
from tests.fakes.repositories import (
    SECRET,
    SUBJECT,
    Scene,
    all_runs,
    git,
    initialized,
    require_harmless,
    scene_in,
)
from tests.fakes.tool_calls import Tools


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return scene_in(tmp_path)


# ---------------------------------------------------------------- where the repository is


CONFIG_OF_A_BARE_ONE = """\
[core]
	repositoryformatversion = 1
	bare = false
	worktree = .
[extensions]
	partialclone = origin
[remote "origin"]
	url = "ext::{program}"
	promisor = true
[protocol "ext"]
	allow = always
"""


def bare_at(folder: Path, scene: Scene) -> None:
    """Write a bare repository as a model can: four files and a folder."""
    for name, text in (
        ("HEAD", "ref: refs/heads/main\n"),
        (
            "config",
            CONFIG_OF_A_BARE_ONE.format(program=scene.program),
        ),
        ("objects/info/x", ""),
        ("refs/heads/main", f"{'1' * 40}\n"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def remove_git(scene: Scene) -> None:
    scene.config.parent.rename(scene.outside / "old.git")


def bare_in_place(scene: Scene) -> None:
    remove_git(scene)
    bare_at(scene.repository, scene)


def bare_behind_an_empty_git_folder(scene: Scene) -> None:
    remove_git(scene)
    (scene.repository / ".git").mkdir()
    bare_at(scene.repository, scene)


def bare_behind_a_broken_git_folder(scene: Scene) -> None:
    (scene.repository / ".git" / "HEAD").write_text("nonsense\n")
    bare_at(scene.repository, scene)


def git_file_to_a_bare_one_inside(scene: Scene) -> None:
    remove_git(scene)
    bare_at(scene.repository / "inner", scene)
    scene.write(".git", "gitdir: inner\n")


def git_file_to_an_invented_worktree_inside(scene: Scene) -> None:
    remove_git(scene)
    bare_at(scene.repository / "inner", scene)
    scene.write("inner/worktrees/w/commondir", "../..\n")
    scene.write("inner/worktrees/w/gitdir", f"{scene.repository}/.git\n")
    scene.write("inner/worktrees/w/HEAD", "ref: refs/heads/main\n")
    scene.write(".git", "gitdir: inner/worktrees/w\n")


def git_file_to_another_repository(scene: Scene) -> None:
    remove_git(scene)
    scene.write(".git", f"gitdir: {scene.outside}/.git\n")


def git_file_up(scene: Scene) -> None:
    remove_git(scene)
    scene.write(".git", "gitdir: ../outside/.git\n")


def git_link_to_another_repository(scene: Scene) -> None:
    remove_git(scene)
    (scene.repository / ".git").symlink_to(scene.outside / ".git")


def common_folder_outside(scene: Scene) -> None:
    scene.write(".git/commondir", f"{scene.outside}/.git\n")


def objects_and_references_by_links(scene: Scene) -> None:
    for name in ("objects", "refs"):
        (scene.repository / ".git" / name).rename(scene.outside / f"old-{name}")
        (scene.repository / ".git" / name).symlink_to(scene.outside / ".git" / name)


def alternates_outside(scene: Scene) -> None:
    scene.write(".git/objects/info/alternates", f"{scene.outside}/.git/objects\n")
    head = git(scene.outside, "rev-parse", "HEAD")
    scene.write(".git/refs/heads/main", head)


def relative_alternates(scene: Scene) -> None:
    scene.write(".git/objects/info/alternates", "../../../outside/.git/objects\n")
    scene.write(".git/refs/heads/main", git(scene.outside, "rev-parse", "HEAD"))


def working_tree_elsewhere(scene: Scene) -> None:
    scene.configure("core.worktree", str(scene.outside))


def working_tree_in_etc(scene: Scene) -> None:
    scene.configure("core.worktree", "/etc")


def relative_working_tree(scene: Scene) -> None:
    scene.configure("core.worktree", "../../outside")


def bare_key_and_working_tree(scene: Scene) -> None:
    scene.configure("core.bare", "true")
    scene.config.write_text(scene.config.read_text() + f"[core]\n\tworktree = {scene.outside}\n")


def order_of_diffs_outside(scene: Scene) -> None:
    scene.configure("diff.orderFile", str(scene.outside / "missing"))


def mailmap_outside(scene: Scene) -> None:
    (scene.outside / "map").write_text(f"{SECRET} <ada@example.com>\n")
    scene.configure("mailmap.file", str(scene.outside / "map"))
    scene.configure("log.mailmap", "true")


def ignored_by_a_file_outside(scene: Scene) -> None:
    (scene.outside / "ignored").write_text("new.txt\n")
    scene.write("new.txt", "x")
    scene.configure("core.excludesFile", str(scene.outside / "ignored"))


def index_names_a_file_outside(scene: Scene) -> None:
    """``git add`` rejects a name outside the repository, but an index can contain the name."""
    rename_in_index(scene, "aa/outside/secret.txt", "../outside/secret.txt")


def index_names_an_absolute_file(scene: Scene) -> None:
    path = str(scene.outside / "secret.txt")
    rename_in_index(scene, "a" * len(path), path)


def index_names_a_file_of_git(scene: Scene) -> None:
    scene.configure("user.signingKey", SECRET)
    rename_in_index(scene, "agit/config", ".git/config")


def rename_in_index(scene: Scene, harmless: str, name: str) -> None:
    scene.write(harmless, "x\n")
    git(scene.repository, "add", harmless)
    index = scene.repository / ".git" / "index"
    data = index.read_bytes()[:-20].replace(harmless.encode(), name.encode())
    index.write_bytes(data + hashlib.sha1(data, usedforsecurity=False).digest())


def submodule_with_a_monitor(scene: Scene) -> None:
    """Git runs a second git in a submodule; the second git reads the submodule's settings."""
    sub = initialized(scene.repository / "sub")
    git(scene.repository, "add", "sub")
    scene.write(".gitmodules", '[submodule "sub"]\n\tpath = sub\n\turl = ./x\n\tignore = none\n')
    git(scene.repository, "add", ".gitmodules")
    git(scene.repository, "commit", "--quiet", "-m", "sub")
    git(sub, "config", "core.fsmonitor", str(scene.program))
    scene.configure("submodule.sub.ignore", "none")
    scene.configure("diff.submodule", "log")
    scene.configure("diff.ignoreSubmodules", "none")


def history_by_grafts(scene: Scene) -> None:
    scene.write(".git/info/grafts", f"{git(scene.outside, 'rev-parse', 'HEAD')}")


def credential_in_a_diff(scene: Scene) -> None:
    """A file that tools must not read is not shown by git either."""
    scene.write(".env", "A=1\n")
    git(scene.repository, "add", "--force", ".env")
    scene.write(".env", f"A={SECRET}\n")


PLACES = {
    case.__name__.replace("_", " "): case
    for case in (
        bare_in_place,
        bare_behind_an_empty_git_folder,
        bare_behind_a_broken_git_folder,
        git_file_to_a_bare_one_inside,
        git_file_to_an_invented_worktree_inside,
        git_file_to_another_repository,
        git_file_up,
        git_link_to_another_repository,
        common_folder_outside,
        objects_and_references_by_links,
        alternates_outside,
        relative_alternates,
        working_tree_elsewhere,
        working_tree_in_etc,
        relative_working_tree,
        bare_key_and_working_tree,
        order_of_diffs_outside,
        mailmap_outside,
        ignored_by_a_file_outside,
        index_names_a_file_outside,
        index_names_an_absolute_file,
        index_names_a_file_of_git,
        submodule_with_a_monitor,
        history_by_grafts,
        credential_in_a_diff,
    )
}


@pytest.mark.parametrize("case", PLACES)
async def test_git_tools_do_not_follow_a_pointer_to_another_repository(
    scene: Scene, case: str
) -> None:
    PLACES[case](scene)
    require_harmless(scene, await all_runs(scene))


def head_is_a_link_out(scene: Scene) -> None:
    (scene.repository / ".git" / "HEAD").unlink()
    (scene.repository / ".git" / "HEAD").symlink_to(scene.outside / "secret.txt")


def git_file_to_a_folder_with_a_secret(scene: Scene) -> None:
    remove_git(scene)
    (scene.outside / "HEAD").write_text(f"{SECRET}\n")
    scene.write(".git", f"gitdir: {scene.outside}\n")


@pytest.mark.parametrize("prepare", [head_is_a_link_out, git_file_to_a_folder_with_a_secret])
def test_git_branch_name_is_not_read_from_outside_the_workspace(
    scene: Scene, prepare: Callable[[Scene], None]
) -> None:
    """The branch is part of prompts; it is read without git."""
    assert git_ref_of(scene.repository) == "main"
    prepare(scene)
    assert git_ref_of(scene.repository) is None


# ---------------------------------------------------------------- what a person is asked


def looks(id: str) -> CallTools:
    return CallTools((ScriptedCall("git_status", '{"command": "status"}', id=id),))


async def chat_in(stage: Stage, folder: Path, **permissions: Any) -> Chat:
    agent = Agent(
        "helper", model=MODEL, tools=("git_status",), permissions=Permissions(**permissions)
    )
    place = Workspace(working_dir=str(folder))
    return await stage.runtime(agent).start(agent, id="s", workspace=place)


async def waiting(chat: Chat) -> OpenQuestion:
    async def is_asked() -> bool:
        return bool(await chat.session.questions())

    await until(is_asked)
    return (await chat.session.questions())[0]


async def results(chat: Chat) -> list[str]:
    return [m.text for m in await chat.session.messages() if m.role == "tool"]


@pytest.mark.parametrize("approval", ["ask", "accept-edits", "auto"])
async def test_approval_of_a_git_setting_is_valid_until_its_content_changes(
    scene: Scene, approval: str
) -> None:
    shared = scene.write("shared.ini", "[status]\n\tshowStash = false\n")
    scene.configure("include.path", "../shared.ini")
    stage = Stage(says(looks("1")), says(looks("2")), says("done"), says(looks("3")), says("done"))
    chat = await chat_in(stage, scene.repository, approval=approval)
    turn = chat.send("look")
    asked = await waiting(chat)
    assert "include.path" in asked.question.text
    await chat.session.answer(asked.id, "always", by="me")
    await turn
    assert [text.startswith("## main") for text in await results(chat)] == [True, True]
    shared.write_text(f'[filter "evil"]\n\tclean = {scene.program}\n')
    turn = chat.send("look again")
    asked = await waiting(chat)
    await chat.session.answer(asked.id, "deny", by="me")
    await turn
    assert "did not allow" in (await results(chat))[-1]
    require_harmless(scene, [])


async def test_git_call_with_a_denied_setting_does_not_run(scene: Scene) -> None:
    scene.configure("unknown.key", "x")
    stage = Stage(says(looks("1")), says("done"))
    chat = await chat_in(stage, scene.repository, approval="auto")
    turn = chat.send("look")
    asked = await waiting(chat)
    await chat.session.answer(asked.id, "deny", by="me")
    await turn
    assert "did not allow" in (await results(chat))[-1]


async def test_git_setting_changed_before_the_answer_requires_new_approval(scene: Scene) -> None:
    scene.configure("unknown.key", "x")
    stage = Stage(says(looks("1")), says("done"))
    chat = await chat_in(stage, scene.repository, approval="auto")
    turn = chat.send("look")
    first = await waiting(chat)
    scene.configure("hook.evil.command", str(scene.program))
    await chat.session.answer(first.id, "always", by="me")

    async def asks_again() -> bool:
        return any(other.id != first.id for other in await chat.session.questions())

    await until(asks_again)
    (again,) = await chat.session.questions()
    assert "hook.evil.command" in again.question.text
    await chat.session.answer(again.id, "deny", by="me")
    await turn


async def test_git_repository_without_special_settings_needs_no_approval(scene: Scene) -> None:
    stage = Stage(says(looks("1")), says("done"))
    chat = await chat_in(stage, scene.repository)
    await chat.send("look")
    assert (await results(chat))[0].startswith("## main")


# ---------------------------------------------------------------- repositories as they should be


async def test_git_tools_work_in_a_worktree(scene: Scene, tmp_path: Path) -> None:
    place = tmp_path / "tree"
    git(scene.repository, "worktree", "add", "--quiet", "-b", "side", str(place))
    (place / "a.txt").write_text("two\n")
    tools = Tools(place)
    assert " M a.txt" in (await tools.run(git_status)).output.text
    assert (await tools.run(git_commit, message="x", files=["a.txt"])).outcome == "ok"
    assert git(place, "log", "-1", "--format=%s").strip() == "x"


async def test_git_tools_work_in_a_submodule(scene: Scene) -> None:
    command = ("-c", "protocol.file.allow=always", "submodule", "add", "--quiet")
    git(scene.repository, *command, str(scene.outside), "sub")
    run = await Tools(scene.repository / "sub").run(git_status, command="log")
    assert SUBJECT in run.output.text


async def test_git_commit_of_a_file_with_a_filter_is_refused(scene: Scene) -> None:
    scene.write(".gitattributes", "*.bin filter=lfs\n")
    git(scene.repository, "config", "--global", "filter.lfs.clean", str(scene.program))
    scene.write("x.bin", "content")
    tools = Tools(scene.repository)
    assert "?? x.bin" in (await tools.run(git_status)).output.text
    run = await tools.run(git_commit, message="x", files=["x.bin"])
    assert "filter" in run.output.text
    assert run.outcome == "error"
    assert git(scene.repository, "log", "--oneline").count("\n") == 1
    require_harmless(scene, [])


async def test_folder_with_a_credential_in_it_is_not_committed(scene: Scene) -> None:
    scene.write(".env", "A=1\n")
    scene.write("plain.txt", "x\n")
    run = await Tools(scene.repository).run(git_commit, message="x", files=["."])
    assert (run.outcome, run.error_code) == ("refused", "tool_denied")
