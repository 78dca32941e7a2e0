"""``perdure serve`` sends the scheduled messages of chats, or reports why they wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import perdure
from tests.acceptance.cli.conftest import World
from tests.fakes.forked import Forked

PATIENCE_S = 120
PAST = datetime(2026, 1, 1, tzinfo=UTC)
LS = '/tool run_command {"command": "ls"}'


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("HOME", str(tmp_path))  # this process is of the same user
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    (tmp_path / "seen.txt").touch()
    return World(tmp_path, {"PERDURE_LOG": "warning"})


@contextmanager
def serving(world: World) -> Generator[Forked]:
    """Run ``perdure serve`` in `world`."""
    with world.fork("serve", "--port", "0") as process:
        yield process
        process.terminate()
        process.ended()


def error_with(process: Forked, text: str) -> str:
    """Wait for a line of stderr that contains `text`; return the lines until then."""
    lines: list[str] = []
    while not lines or text not in lines[-1]:
        line = process.error_line()
        assert line, "".join(lines)
        lines.append(line)
    return "".join(lines)


def until(is_met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_met():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def begun(world: World, *options: str) -> str:
    world.ok("chat", "-p", "hi", *options)
    return world.ok("sessions", "list", "--json").json[0]["id"]


def schedule_in_the_past(world: World, session: str, text: str) -> str:
    with perdure.blocking.open(f"sqlite:///{world.file}") as store:
        return store.schedule.add(session, text, at=PAST).id


def settings(world: World, text: str) -> None:
    file = world.folder / ".config" / "perdure" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_scheduled_message_waits_until_the_settings_allow_its_command(
    world: World,
) -> None:
    session = begun(world, "--allow-command", "ls", "--approve", "auto")
    message = schedule_in_the_past(world, session, LS)
    listed = " ".join(world.ok("schedule", "list").out.split())
    assert f"{message} waits for the tool run_command" in listed
    assert "add the commands that may run to chat.allowed_commands in your settings" in listed
    assert "1 scheduled message overdue" in world.ok("doctor").out
    with serving(world) as process:
        told = error_with(process, f"{message} waits: this process does not have")
        assert (
            "offers assistant (new sessions: scripted:echo, no language model); scheduled" in told
        )
    assert len(world.ok("schedule", "list", "--json").json) == 1

    settings(world, '[chat]\nallowed_commands = ["ls"]\napproval = "auto"\n')
    with serving(world):
        until(lambda: world.ok("schedule", "list", "--json").json == [])
        until(lambda: "seen.txt" in world.ok("sessions", "read", session).out)
    assert "overdue" not in world.ok("doctor").out


def test_serve_command_runs_only_commands_that_its_settings_allow(
    world: World,
) -> None:
    """A turn continued by ``perdure serve`` runs only commands that the settings of serve allow."""
    session = begun(world, "--allow-command", "touch made")
    call = '/tool run_command {"command": "touch made"}'
    world.run("chat", "--session", session, "-p", call)
    [question] = world.ok("inbox", "--json").json
    world.ok("inbox", "answer", question["id"], "allow")
    with serving(world):
        until(lambda: world.ok("sessions", "list", "--interrupted", "--json").json == [])
    assert not (world.folder / "made").exists()


def test_overdue_message_is_listed_despite_unusable_settings(
    world: World,
) -> None:
    schedule_in_the_past(world, begun(world), "Hello")
    settings(world, '[chat]\nagent = "nobody"\n')
    [listed] = world.ok("schedule", "list", "--json").json
    assert listed["waits_for"].startswith("`perdure serve`, which cannot start here: ")


@pytest.mark.all_only
def test_waiting_scheduled_message_reports_the_missing_agent(
    world: World,
) -> None:
    clerk = world.folder / "clerk.agent.yaml"
    clerk.write_text("id: clerk\nmodel: scripted:echo\nsystem_prompt: Answer.\n")
    message = schedule_in_the_past(world, begun(world, "--agent", str(clerk)), "Hello")

    with serving(world) as process:
        told = f"scheduled message {message} waits: this process does not have the agent 'clerk'"
        error_with(process, told)
        [listed] = world.ok("schedule", "list", "--json").json
        assert listed["waits_for"].startswith("the agent 'clerk': `perdure serve` in this folder")
        process.terminate()
        assert told not in process.ended().err
