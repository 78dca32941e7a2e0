"""A call that changes between its question and its run does not run with the old approval.

Every form changes real files between the moment a person is asked and the moment the tool runs. The
changed call must not take effect; a new question shows the current state.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.agents.runtime_services import Host
from perdure.client.conversation.workspace import Workspace
from perdure.engine.hooks.registry import Hooks
from perdure.engine.turns.session_turns import Signals
from perdure.models.scenario import CallTools, ScriptedCall
from perdure.session.ids import StreamId
from perdure.tools.permissions import Permissions
from tests.fakes.chats import MODEL, Stage, says, until
from tests.fakes.samples import sampled

Change = Callable[[Path], object]
TOOLS = ("write_file", "edit_file", "run_command", "git_commit")
ANY = Permissions(
    allowed_command_globs=(
        *("sh *", "sh -c *", "sh -e **", "./tool *", "./tool", "tool *"),
        *("python3 *", "python3 -u *", "python3 -m *", "python3 -c * --conf=*"),
    )
)


@dataclass(frozen=True)
class Form:
    """A call, the content of the folder at the question, and the change before the call runs.

    `effect` returns True for a folder in which the call was done. `is_doomed` means that the change
    makes the call impossible, so that perdure refuses the call without a new question.
    """

    tool: str
    args: Mapping[str, object]
    before: Change
    change: Change
    effect: Callable[[Path], bool]
    is_doomed: bool = False
    permissions: Permissions = field(default=ANY)


def put(name: str, text: str = "", mode: int = 0o644) -> Change:
    def make(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    return make


def all_of(*changes: Change) -> Change:
    def make(folder: Path) -> None:
        for change in changes:
            change(folder)

    return make


def link(name: str, target: str) -> Change:
    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return make


def unchanged_times(name: str, text: str) -> Change:
    """Write `text` and restore the times, to hide the change."""

    def make(folder: Path) -> None:
        path = folder / name
        times = path.stat()
        path.write_text(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    return make


def swapped(name: str) -> Change:
    """Replace `name` with another folder of the same content."""

    def make(folder: Path) -> None:
        old = folder / name
        files = {each.name: each.read_bytes() for each in old.iterdir()}
        old.rename(folder / f"{name}.moved")
        old.mkdir()
        for each, content in files.items():
            (old / each).write_bytes(content)

    return make


def holds(name: str, text: str) -> Callable[[Path], bool]:
    def is_done(folder: Path) -> bool:
        path = folder / name
        return path.is_file() and text in path.read_text()

    return is_done


def exists(name: str) -> Callable[[Path], bool]:
    return lambda folder: (folder / name).exists()


def git(folder: Path, *words: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(("git", *named, *words), cwd=folder, capture_output=True, check=True)
    return done.stdout.decode()


def repository(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "config", "user.name", "a")
    git(folder, "config", "user.email", "a@b")
    (folder / "a.txt").write_text("one")
    git(folder, "add", "a.txt")
    git(folder, "commit", "-qm", "first")
    (folder / "a.txt").write_text("two")
    git(folder, "add", "a.txt")


def is_committed(folder: Path) -> bool:
    return "asked for" in git(folder, "log", "--format=%s")


def staged(folder: Path) -> None:
    (folder / "other.txt").write_text("smuggled")
    git(folder, "add", "other.txt")


def write(path: str, **more: object) -> dict[str, object]:
    return {"path": path, "content": "WRITTEN", **more}


def edit(path: str) -> dict[str, object]:
    return {"path": path, "old_text": "old", "new_text": "WRITTEN"}


def command(line: str) -> dict[str, object]:
    return {"command": line}


nothing: Change = lambda folder: None  # noqa: E731 - a change like the others
RUNS = "touch ran\n"
PYTHON = "open('ran', 'w').close()\n"
SCRIPT = put("go.sh", "true\n")
EVIL = put("go.sh", RUNS)
RAN = exists("ran")
A = "a.txt"

FORMS: Mapping[str, Form] = {
    # writing
    "file_appeared": Form("write_file", write(A), nothing, put(A, "mine"), holds(A, "WRITTEN")),
    "file_changed": Form("write_file", write(A), put(A, "1"), put(A, "22"), holds(A, "WRITTEN")),
    "file_changed_with_size_and_times_kept": Form(
        "write_file", write(A), put(A, "one"), unchanged_times(A, "two"), holds(A, "WRITTEN")
    ),
    "file_deleted": Form(
        "write_file", write(A), put(A), lambda d: (d / A).unlink(), holds(A, "WRITTEN")
    ),
    "file_became_link_to_another_file": Form(
        "write_file", write(A), all_of(put(A), put("b")), link(A, "b"), holds("b", "WRITTEN")
    ),
    "link_retargeted": Form(
        "write_file",
        write("l"),
        all_of(put("one"), put("two"), link("l", "one")),
        link("l", "two"),
        holds("two", "WRITTEN"),
    ),
    "folder_link_retargeted": Form(
        "write_file",
        write("l/x"),
        all_of(put("one/k"), put("two/k"), link("l", "one")),
        link("l", "two"),
        exists("two/x"),
    ),
    "folder_swapped": Form(
        "write_file", write("d/x"), put("d/k", "k"), swapped("d"), exists("d/x")
    ),
    "file_grew_before_append": Form(
        "write_file", write(A, append=True), put(A, "1\n"), put(A, "1\n2\n"), holds(A, "WRITTEN")
    ),
    "new_folder_was_made_meanwhile": Form(
        "write_file", write("n/x", create_dirs=True), nothing, put("n/x", "1"), holds("n/x", "WR")
    ),
    "file_became_link_out_of_the_folder": Form(
        "write_file",
        write(A),
        put(A),
        link(A, "../outside"),
        holds("../outside", "WRITTEN"),
        is_doomed=True,
    ),
    "file_became_link_to_protected_file": Form(
        "write_file", write(A), put(A), link(A, ".bashrc"), exists(".bashrc"), is_doomed=True
    ),
    # editing
    "edited_file_changed_elsewhere": Form(
        "edit_file", edit(A), put(A, "old\n"), put(A, "old\nrm -rf\n"), holds(A, "WRITTEN")
    ),
    "edited_file_became_link": Form(
        "edit_file",
        edit(A),
        all_of(put(A, "old"), put("b", "old")),
        link(A, "b"),
        holds("b", "WRITTEN"),
    ),
    "edited_file_in_swapped_folder": Form(
        "edit_file", edit("d/x"), put("d/x", "old"), swapped("d"), holds("d/x", "WRITTEN")
    ),
    "edited_text_disappeared": Form(
        "edit_file", edit(A), put(A, "old"), put(A, "new"), holds(A, "WRITTEN"), is_doomed=True
    ),
    # commands
    "script_edited": Form("run_command", command("sh go.sh"), SCRIPT, EVIL, RAN),
    "script_edited_with_size_and_times_kept": Form(
        "run_command",
        command("sh go.sh"),
        put("go.sh", "true 1234\n"),
        unchanged_times("go.sh", RUNS),
        RAN,
    ),
    "script_link_retargeted": Form(
        "run_command",
        command("sh l"),
        all_of(put("one", "true\n"), put("two", RUNS), link("l", "one")),
        link("l", "two"),
        RAN,
    ),
    "script_folder_link_retargeted": Form(
        "run_command",
        command("sh l/go.sh"),
        all_of(put("one/go.sh", "true\n"), put("two/go.sh", RUNS), link("l", "one")),
        link("l", "two"),
        RAN,
    ),
    "script_appeared": Form("run_command", command("sh go.sh"), nothing, EVIL, RAN),
    "script_of_shell_line_edited": Form(
        "run_command", command("sh -c 'true && . ./go.sh'"), SCRIPT, EVIL, RAN
    ),
    "script_as_second_argument_edited": Form(
        "run_command", command("sh -e go.sh one two"), SCRIPT, EVIL, RAN
    ),
    "python_script_edited": Form(
        "run_command", command("python3 -u build.py"), put("build.py"), put("build.py", PYTHON), RAN
    ),
    "python_module_edited": Form(
        "run_command",
        command("python3 -m pkg.mod"),
        put("pkg/mod.py"),
        put("pkg/mod.py", PYTHON),
        RAN,
    ),
    "python_folder_edited": Form(
        "run_command",
        command("python3 app"),
        put("app/__main__.py"),
        put("app/__main__.py", PYTHON),
        RAN,
    ),
    "program_edited": Form(
        "run_command",
        command("./tool"),
        put("tool", "#!/bin/sh\ntrue\n", 0o755),
        put("tool", f"#!/bin/sh\n{RUNS}", 0o755),
        RAN,
    ),
    "program_behind_link_retargeted": Form(
        "run_command",
        command("./tool"),
        all_of(
            put("one", "#!/bin/sh\ntrue\n", 0o755),
            put("two", f"#!/bin/sh\n{RUNS}", 0o755),
            link("tool", "one"),
        ),
        link("tool", "two"),
        RAN,
    ),
    "program_found_elsewhere_on_path": Form(
        "run_command",
        command("tool now"),
        put("../bin2/tool", "#!/bin/sh\ntrue\n", 0o755),
        put("../bin1/tool", f"#!/bin/sh\n{RUNS}", 0o755),
        RAN,
    ),
    "working_folder_swapped": Form(
        "run_command",
        command("sh go.sh"),
        EVIL,
        lambda d: swapped(d.name)(d.parent),
        RAN,
    ),
    "working_folder_of_a_write_swapped": Form(
        "write_file", write(A), put("k"), lambda d: swapped(d.name)(d.parent), exists(A)
    ),
    "file_named_in_an_option_edited": Form(
        "run_command",
        command("python3 -c 'import sys; exec(open(sys.argv[1][7:]).read())' --conf=x.py"),
        put("x.py"),
        put("x.py", PYTHON),
        RAN,
    ),
    # commits
    "other_file_staged": Form(
        "git_commit", {"message": "asked for"}, repository, staged, is_committed
    ),
    "committed_file_changed": Form(
        "git_commit",
        {"message": "asked for", "files": [A]},
        repository,
        put(A, "smuggled"),
        is_committed,
    ),
}


class Case:
    """One session in a folder, whose model requests the call of a form repeatedly."""

    def __init__(self, form: Form, tmp_path: Path, hooks: Hooks | None = None) -> None:
        self.form = form
        self.folder = tmp_path / "work"
        self.folder.mkdir()
        form.before(self.folder)
        call = CallTools((ScriptedCall(form.tool, json.dumps(form.args), id="c"),))
        self.stage = Stage(says(call), says("done"), says("done"))
        self.agent = Agent(
            "helper", model=MODEL, tools=TOOLS, permissions=form.permissions, hooks=hooks
        )
        self.place = Workspace(working_dir=str(self.folder))

    async def asked(self) -> Chat:
        """Wait until the session's turn waits for a person."""
        chat = await self.stage.runtime(self.agent).start(self.agent, id="s", workspace=self.place)
        chat.send("go")
        await self.questions(chat, 1)
        return chat

    async def questions(self, chat: Chat, count: int) -> list[str]:
        """The ids of all questions so far, once there are `count` or the turn is over."""

        async def is_there() -> bool:
            return len(await self.all_of("question")) >= count or await self.is_over()

        await until(is_there)
        return await self.all_of("question")

    async def all_of(self, kind: str) -> list[str]:
        session = await self.stage.store.open("s")
        return [entry.id async for entry in session.entries() if entry.kind == kind]

    async def is_over(self) -> bool:
        return bool(await self.all_of("turn_finished"))

    async def does_not_run(self, chat: Chat) -> None:
        """Check that the call was refused or caused a new question; then deny that question."""
        asked = await self.questions(chat, 2)
        assert not self.form.effect(self.folder)
        if self.form.is_doomed:
            assert len(asked) == 1
            return
        assert len(asked) == 2
        (waiting,) = await chat.session.questions()
        assert waiting.id == asked[1]
        await chat.session.answer(waiting.id, "deny", by="me")
        await until(self.is_over)
        assert not self.form.effect(self.folder)


@pytest.fixture(autouse=True)
def path_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin1:{tmp_path}/bin2:{os.environ['PATH']}")


@pytest.mark.parametrize("name", FORMS)
async def test_call_changed_before_the_answer_requires_new_approval(
    tmp_path: Path, name: str
) -> None:
    case = Case(FORMS[name], tmp_path)
    chat = await case.asked()
    (waiting,) = await chat.session.questions()
    case.form.change(case.folder)
    await chat.session.answer(waiting.id, "allow", by="me")
    await case.does_not_run(chat)


@sampled("name", list(FORMS), kind=lambda name: FORMS[name].tool)
async def test_call_changed_while_no_process_runs_requires_new_approval(
    tmp_path: Path, name: str
) -> None:
    case = Case(FORMS[name], tmp_path)
    chat = await case.asked()
    (waiting,) = await chat.session.questions()
    await chat.suspend()
    await chat.session.answer(waiting.id, "allow", by="me")
    case.form.change(case.folder)
    resumed = await case.stage.runtime(case.agent).resume("s", case.agent)
    await case.does_not_run(resumed)


@sampled("name", list(FORMS), kind=lambda name: FORMS[name].tool)
async def test_call_changed_just_before_its_run_requires_new_approval(
    tmp_path: Path, name: str
) -> None:
    """The hook runs when the intent is already in the log: the last moment before the run."""
    form = FORMS[name]
    hooks = Hooks()
    has_changed: list[bool] = []
    case = Case(form, tmp_path, hooks)

    def change(point: Any) -> None:
        if not has_changed:
            has_changed.append(True)
            form.change(case.folder)

    hooks.on("tool_call", change)
    chat = await case.asked()
    (waiting,) = await chat.session.questions()
    await chat.session.answer(waiting.id, "allow", by="me")
    await case.does_not_run(chat)
    assert has_changed


@sampled("name", list(FORMS), kind=lambda name: FORMS[name].tool)
async def test_always_answer_does_not_cover_the_changed_call(tmp_path: Path, name: str) -> None:
    case = Case(FORMS[name], tmp_path)
    chat = await case.asked()
    (waiting,) = await chat.session.questions()
    case.form.change(case.folder)
    choice = "always" if "always" in waiting.question.choices else "allow"
    await chat.session.answer(waiting.id, choice, by="me")
    await case.does_not_run(chat)


@sampled("name", list(FORMS), kind=lambda name: FORMS[name].tool)
async def test_unchanged_call_runs_after_one_approval(tmp_path: Path, name: str) -> None:
    """Control: if nothing changes, the call runs, and a person is asked once."""
    case = Case(FORMS[name], tmp_path)
    chat = await case.asked()
    (waiting,) = await chat.session.questions()
    await chat.session.answer(waiting.id, "allow", by="me")
    await until(case.is_over)
    assert len(await case.all_of("question")) == 1
    assert len(await case.all_of("tool_started")) == 1


# ---------------------------------------------------------------- the agent


WRITES = Form("write_file", write(A), nothing, nothing, exists(A))
AGENTS: Mapping[str, Mapping[str, object]] = {
    "permissions_wider": {"permissions": Permissions(scope="full")},
    "permissions_narrower": {"permissions": Permissions(scope="sandboxed")},
    "environment_of_commands": {"permissions": Permissions(command_env={"X": "1"})},
    "credentials": {
        "permissions": Permissions(
            allowed_domains=("a.example",), credentials={"a.example": "{{secrets.A}}"}
        )
    },
    "agent": {"id": "another"},
}


@pytest.mark.parametrize("name", AGENTS)
async def test_agent_change_before_the_answer_requires_new_approval(
    tmp_path: Path, name: str
) -> None:
    case = Case(WRITES, tmp_path)
    chat = await case.asked()
    (waiting,) = await chat.session.questions()
    await chat.suspend()
    await chat.session.answer(waiting.id, "allow", by="me")
    facts = {"id": "helper", "model": MODEL, "tools": TOOLS, "permissions": ANY, **AGENTS[name]}
    other = Agent(**facts)  # pyright: ignore[reportArgumentType] - a table
    host = Host(case.stage.store, models=case.stage.models, owner="there")
    running = host.running(StreamId("s"), other, case.place, prompt=None)
    turn = asyncio.ensure_future(running.lost_turn(Signals()))
    await case.questions(chat, 2)
    assert not (case.folder / A).exists()
    assert len(await chat.session.questions()) == 1
    turn.cancel()
    await asyncio.wait((turn,))


async def test_stricter_mode_refuses_previously_allowed_call(tmp_path: Path) -> None:
    case = Case(WRITES, tmp_path)
    chat = await case.asked()
    (waiting,) = await chat.session.questions()
    await chat.suspend()
    await chat.session.answer(waiting.id, "allow", by="me")
    planning = Permissions(approval="plan")
    other = Agent("helper", model=MODEL, tools=TOOLS, permissions=planning)
    host = Host(case.stage.store, models=case.stage.models, owner="there")
    await host.running(StreamId("s"), other, case.place, prompt=None).lost_turn(Signals())
    assert not (case.folder / A).exists()
