"""``perdure serve`` sends the scheduled messages of chats, or says what they wait for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import perdure
from tests.acceptance.cli.conftest import World

PAST = datetime(2026, 1, 1, tzinfo=UTC)
LS = '/tool run_command {"command": "ls"}'


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("HOME", str(tmp_path))  # this process is of the same user
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    (tmp_path / "seen.txt").touch()
    return World(tmp_path, {"PERDURE_LOG": "warning"})


@asynccontextmanager
async def serving(world: World) -> AsyncGenerator[Path]:
    """Run ``perdure serve`` in `world`; yield the file of its stderr."""
    errors = world.folder / "stderr"
    with errors.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perdure", "serve", "--port", "0"),
            env=world.environment,
            cwd=world.folder,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=file,
        )
    try:
        yield errors
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def until(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not is_met():  # noqa: ASYNC110 - another process brings it about
            await asyncio.sleep(0.2)


def begun(world: World, *options: str) -> str:
    world.ok("chat", "-p", "hi", *options)
    return world.ok("sessions", "list", "--json").json[0]["id"]


async def schedule_in_the_past(world: World, session: str, text: str) -> str:
    async with perdure.open(f"sqlite:///{world.file}") as store:
        return (await store.schedule.add(session, text, at=PAST)).id


def settings(world: World, text: str) -> None:
    file = world.folder / ".config" / "perdure" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


async def test_scheduled_message_waits_until_the_settings_allow_its_command(
    world: World,
) -> None:
    session = begun(world, "--allow-command", "ls", "--approve", "auto")
    message = await schedule_in_the_past(world, session, LS)
    listed = " ".join(world.ok("schedule", "list").out.split())
    assert f"{message} waits for the tool run_command" in listed
    assert "add the commands that may run to chat.allowed_commands in your settings" in listed
    assert "1 scheduled message overdue" in world.ok("doctor").out
    async with serving(world) as errors:
        await until(lambda: f"{message} waits: this process does not have" in errors.read_text())
        offered = "offers assistant (new sessions: scripted:echo, no language model); scheduled"
        assert offered in errors.read_text()
    assert len(world.ok("schedule", "list", "--json").json) == 1

    settings(world, '[chat]\nallowed_commands = ["ls"]\napproval = "auto"\n')
    async with serving(world):
        await until(lambda: world.ok("schedule", "list", "--json").json == [])
        await until(lambda: "seen.txt" in world.ok("sessions", "read", session).out)
    assert "overdue" not in world.ok("doctor").out


async def test_serve_command_runs_only_commands_that_its_settings_allow(
    world: World,
) -> None:
    """A turn continued by ``perdure serve`` runs only commands that the settings of serve allow."""
    session = begun(world, "--allow-command", "touch made")
    call = '/tool run_command {"command": "touch made"}'
    world.run("chat", "--session", session, "-p", call)
    [question] = world.ok("inbox", "--json").json
    world.ok("inbox", "answer", question["id"], "allow")
    async with serving(world):
        await until(lambda: world.ok("sessions", "list", "--interrupted", "--json").json == [])
    assert not (world.folder / "made").exists()


async def test_overdue_message_is_listed_despite_unusable_settings(
    world: World,
) -> None:
    await schedule_in_the_past(world, begun(world), "Hello")
    settings(world, '[chat]\nagent = "nobody"\n')
    [listed] = world.ok("schedule", "list", "--json").json
    assert listed["waits_for"].startswith("`perdure serve`, which cannot start here: ")


@pytest.mark.all_only
async def test_waiting_scheduled_message_reports_the_missing_agent(
    world: World,
) -> None:
    clerk = world.folder / "clerk.agent.yaml"
    clerk.write_text("id: clerk\nmodel: scripted:echo\nsystem_prompt: Answer.\n")
    message = await schedule_in_the_past(world, begun(world, "--agent", str(clerk)), "Hello")

    async with serving(world) as errors:
        told = f"scheduled message {message} waits: this process does not have the agent 'clerk'"
        await until(lambda: told in errors.read_text())
        [listed] = world.ok("schedule", "list", "--json").json
    assert listed["waits_for"].startswith("the agent 'clerk': `perdure serve` in this folder")
    assert errors.read_text().count(told) == 1
