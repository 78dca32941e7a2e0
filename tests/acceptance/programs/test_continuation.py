"""Claude Code, Codex and pi, as published, each resume a session that another program began."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import perdure
from perdure import TextPart, ToolCallPart, ToolResultPart, assistant, user
from perdure.interop.continuation import Program
from perdure.session.messages import Message
from tests.conftest import NO_AGENT_PROGRAM
from tests.fakes import agent_programs
from tests.fakes.model_server import ModelServer
from tests.fakes.openai_server import ServerAnswer, answering, openai_server
from tests.fakes.real_pi import RealPi

pytestmark = pytest.mark.all_only

HISTORY = ("Which bird is it?", "I look it up.", "heron", "Grey, with long legs.", "A heron.")
"""What is said in `bird_session`, in order."""


class World:
    """A person's home folder, project and store."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "bird book"
        self.home.mkdir()
        self.project.mkdir()
        self.address = f"sqlite:///{folder}/s.db"

    async def perdure(self, *words: str) -> str:
        """Run a command of perdure and return its output."""
        environment = {name: os.environ[name] for name in ("PATH", "XDG_DATA_HOME")}
        environment |= {"HOME": str(self.home), "CODEX_HOME": str(self.home / ".codex")}
        command = [sys.executable, "-m", "perdure", *words, "--store", self.address]
        ended = await asyncio.to_thread(
            subprocess.run,
            command,
            env=environment,
            cwd=self.project,
            capture_output=True,
            text=True,
            check=True,
        )
        return ended.stdout

    async def resumed(self, program: Program, command: str) -> str:
        """Run `command`, which continues a session in `program`; return the conversation sent."""
        folder, _, words = command.strip().removeprefix("cd ").partition(" && ")
        assert shlex.split(folder) == [str(self.project)]
        arguments = shlex.split(words)[1:]
        async with agent_programs.model_for(program, "Frogs.") as server:
            out = await agent_programs.run(
                program,
                real(program),
                *arguments,
                "And what does it eat?",
                home=self.home,
                cwd=self.project,
                server=server,
            )
            assert "Frogs." in out
            return sent_to(server)


def sent_to(server: ModelServer) -> str:
    """Return the conversation of the newest request that has a conversation, without instructions
    and tools.

    Claude Code opens an additional connection with a request for ``/``, which can arrive at any
    time.
    """
    bodies = (request.body for request in reversed(server.requests))
    said = (body.get("messages") or body.get("input") for body in bodies)
    return json.dumps(next(filter(None, said)))


def real(program: Program) -> Path:
    command = agent_programs.installed(program)
    if command is None:
        pytest.skip(f"{NO_AGENT_PROGRAM}: {program} (make programs)")
    return command


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def in_order(words: tuple[str, ...], text: str) -> bool:
    at = -1
    return all((at := text.find(word, at + 1)) >= 0 for word in words)


async def bird_session(world: World) -> str:
    """Begin a session of perdure whose tool name and call id every provider rejects."""
    call = ToolCallPart("call:1|x", "field guide.look up", {"bird": "heron"})
    async with perdure.open(world.address) as store:
        session = await store.create(title="Birds", cwd=world.project)
        await session.append(
            user("Which bird is it?"),
            Message("assistant", (TextPart("I look it up."), call), stop_reason="tool_calls"),
            Message("tool", (ToolResultPart("call:1|x", "Grey, with long legs."),)),
            assistant("A heron."),
        )
        return session.id


@pytest.mark.parametrize("program", ["claude-code", "codex"])
async def test_other_program_resumes_session_of_perdure(world: World, program: Program) -> None:
    session = await bird_session(world)
    command = await world.perdure("continue-in", session, program)
    assert in_order((*HISTORY, "And what does it eat?"), await world.resumed(program, command))
    assert await world.perdure("continue-in", session, program) == command


@pytest.mark.parametrize(("first", "second"), [("claude-code", "codex"), ("codex", "claude-code")])
async def test_program_resumes_a_session_begun_in_another_program(
    world: World, first: Program, second: Program
) -> None:
    async with agent_programs.model_for(first, "A heron.") as server:
        words = ("Which bird is it?",)
        await agent_programs.run(
            first, real(first), *words, home=world.home, cwd=world.project, server=server
        )
    real(second)
    await world.perdure("import")
    (session,) = json.loads(await world.perdure("sessions", "list", "--json"))
    command = await world.perdure("continue-in", session["id"], second)
    sent = await world.resumed(second, command)
    assert in_order(("Which bird is it?", "A heron.", "And what does it eat?"), sent)


async def test_pi_resumes_session_that_claude_code_began(world: World, pi: RealPi) -> None:
    async with agent_programs.model_for("claude-code", "A heron.") as server:
        await agent_programs.run(
            "claude-code",
            real("claude-code"),
            "Which bird is it?",
            home=world.home,
            cwd=world.project,
            server=server,
        )
    await world.perdure("import")
    (session,) = json.loads(await world.perdure("sessions", "list", "--json"))
    command = await world.perdure("continue-in", session["id"], "pi")
    words = shlex.split(command.partition(" && ")[2])[1:]
    async with openai_server() as models:
        models.will(answering(ServerAnswer(text="Frogs.")))
        options = ("--provider", "local", "--model", "tides", "--no-tools", "-p")
        await asyncio.to_thread(
            pi.run,
            *words,
            *options,
            "And what does it eat?",
            home=world.home,
            cwd=world.project,
            address=models.url,
        )
        sent = sent_to(models)
    assert in_order(("Which bird is it?", "A heron.", "And what does it eat?"), sent)


@pytest.mark.parametrize("program", ["claude-code", "codex"])
async def test_other_program_resumes_session_that_pi_began(
    world: World, pi: RealPi, program: Program
) -> None:
    real(program)
    async with openai_server() as models:
        models.will(answering(ServerAnswer(text="A heron.")))
        options = ("--provider", "local", "--model", "tides", "--no-tools", "-p")
        await asyncio.to_thread(
            pi.run,
            *options,
            "Which bird is it?",
            home=world.home,
            cwd=world.project,
            address=models.url,
        )
    await world.perdure("import")
    (session,) = json.loads(await world.perdure("sessions", "list", "--json"))
    command = await world.perdure("continue-in", session["id"], program)
    sent = await world.resumed(program, command)
    assert in_order(("Which bird is it?", "A heron.", "And what does it eat?"), sent)


async def test_continue_in_command_writes_to_the_only_operator_profile(
    world: World,
) -> None:
    sessions = world.home / ".operator" / "profiles" / "ana" / "sessions"
    sessions.mkdir(parents=True)
    session = await bird_session(world)
    command = await world.perdure("continue-in", session, "operator")
    (file,) = sessions.iterdir()
    steps = shlex.split(command.partition(" && ")[2])
    assert steps == ["operator", "--repl", "--session-file", str(file)]
    assert await world.perdure("continue-in", session, "operator") == command
    printed = await world.perdure("import", "--json")
    assert json.loads(printed)["format"] == "operator"


async def test_continue_in_command_suggests_a_remedy_for_a_missing_folder(world: World) -> None:
    gone = world.project / "gone"
    async with perdure.open(world.address) as store:
        session = await store.create(cwd=gone)
        await session.append(user("Which bird is it?"), assistant("A heron."))
    printed = json.loads(await world.perdure("continue-in", session.id, "pi", "--json"))
    (told,) = printed["warnings"]
    assert f"the session's folder {gone} does not exist" in told
    assert f"mkdir -p {shlex.quote(str(gone))}" in told
    fork = json.loads(
        await world.perdure("sessions", "fork", session.id, "--cwd", str(world.project), "--json")
    )
    assert f"perdure sessions fork {session.id} --cwd DIR" in told
    command = await world.perdure("continue-in", fork["session"], "pi")
    assert command.startswith(f"cd {shlex.quote(str(world.project))} && ")


async def counted(world: World) -> int:
    """Return the number of messages in the activity of all sessions."""
    days = json.loads(await world.perdure("activity", "--json"))
    return sum(day["messages"] for day in days)


@pytest.mark.parametrize("program", ["claude-code", "codex"])
async def test_session_continued_in_another_program_is_imported_back(
    world: World, program: Program
) -> None:
    real(program)
    session = await bird_session(world)
    before = await counted(world)
    command = await world.perdure("continue-in", session, program)
    unchanged = json.loads(await world.perdure("import", "--json"))
    assert (unchanged["session"], unchanged["entries"]) == (session, 0)
    await world.resumed(program, command)
    await world.perdure("import")
    async with perdure.open(world.address) as store:
        (back,) = [info for info in await store.recent() if info.id != session]
        messages = await (await store.open(back.id)).messages()
    assert [each.text for each in messages][-2:] == ["And what does it eat?", "Frogs."]
    assert back.parent == session
    assert await counted(world) == before + 2


async def test_opencode_resumes_session_of_perdure(world: World) -> None:
    command = real("opencode")
    session = await bird_session(world)
    printed = await world.perdure("continue-in", session, "opencode")
    _, taking, resuming = (shlex.split(step) for step in printed.split(" && "))
    async with agent_programs.model_for("opencode", "Frogs.") as server:
        run = partial(
            agent_programs.run,
            "opencode",
            command,
            home=world.home,
            cwd=world.project,
            server=server,
        )
        await run(*taking[1:])
        model = ("--model", "local/tides")
        words = ("run", *model, *resuming[1:], "And what does it eat?")
        out = await run(*words)
        sent = sent_to(server)
        exported = await run("export", resuming[2])
    assert "Frogs." in out
    assert in_order((*HISTORY, "And what does it eat?"), sent)
    before = await counted(world)
    file = world.home / "exported.json"
    file.write_text(exported[exported.index("{") :])
    report = json.loads(await world.perdure("import", str(file), "--json"))
    async with perdure.open(world.address) as store:
        assert (await (await store.open(report["session"])).info()).parent == session
    assert await counted(world) == before + 2
