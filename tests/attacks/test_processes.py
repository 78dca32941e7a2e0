"""Real programs: they end on time with all their children, and inherit nothing of perdure."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.tools.builtin.shell import run_command
from perdure.tools.permissions import Permissions
from tests.fakes.chats import until
from tests.fakes.tool_calls import Tools


def tools(folder: Path, **settings: Any) -> Tools:
    globs = ("sh -c *", "env", "pwd", f"{sys.executable} -c *")
    allowed = Permissions(allowed_command_globs=globs, **settings)
    return Tools(folder, allowed, {"TOKEN": "s3cr3t-value"})


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_program_output_is_returned_with_exit_code(tmp_path: Path) -> None:
    script = "echo out; echo err >&2; exit 3"
    run = await tools(tmp_path).run(run_command, command="sh", args=["-c", script])
    assert run.output.text == "[exit code 3]\nout\n[stderr]\nerr"
    assert run.outcome == "error"


async def test_program_runs_in_the_working_directory(tmp_path: Path) -> None:
    place = str(tmp_path)
    run = await tools(tmp_path).run(run_command, command="pwd", cwd="/")
    assert run.output.text == f"[exit code 0]\n{place}"


async def test_command_arguments_that_the_model_must_not_set_are_dropped(
    tmp_path: Path,
) -> None:
    # Scenario 9.28 of the specification.
    run = await tools(tmp_path).run(
        run_command, command="env", env={"LD_PRELOAD": "x"}, cwd="/", timeout=9, shell=True
    )
    assert run.outcome == "ok"
    assert "LD_PRELOAD" not in run.output.text


async def test_environment_has_no_perdure_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    monkeypatch.setenv("PERDURE_KEY", "planted")
    run = await tools(tmp_path).run(run_command, command="env")
    assert "planted" not in run.output.text


async def test_configured_secret_is_passed_to_the_program_and_removed_from_its_output(
    tmp_path: Path,
) -> None:
    given = {"API_TOKEN": "{{secrets.TOKEN}}"}
    run = await tools(tmp_path, command_env=given).run(
        run_command,
        command="sh",
        args=["-c", 'echo "$API_TOKEN"; test "$API_TOKEN" = s3cr3t-value'],
    )
    assert run.output.text == "[exit code 0]\n[secret:TOKEN]"


async def test_whole_process_group_is_killed_at_its_time_limit(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 100 & echo $! > child; sleep 100 & wait"
    place = tmp_path / "child"
    for limit_s in (0.3, 3, 30):
        run = await tools(tmp_path, command_timeout_s=limit_s).run(
            run_command, command="sh", args=["-c", script]
        )
        assert f"killed: no end within {limit_s:g} s" in run.output.text
        if place.exists() and place.read_text():
            break  # on a busy machine it may be killed before it starts
    child = int(place.read_text())

    async def is_gone() -> bool:
        return not is_alive(child)

    await until(is_gone)


async def test_leftover_processes_are_killed_at_exit(tmp_path: Path) -> None:
    script = "sleep 100 & echo $! > child; exit 0"
    run = await tools(tmp_path).run(run_command, command="sh", args=["-c", script])
    assert run.outcome == "ok"
    child = int((tmp_path / "child").read_text())

    async def is_gone() -> bool:
        return not is_alive(child)

    await until(is_gone)


async def test_whole_process_group_is_killed_when_the_turn_is_aborted(tmp_path: Path) -> None:
    script = "echo $$ > leader; sleep 100"
    running = asyncio.create_task(
        tools(tmp_path).run(run_command, command="sh", args=["-c", script])
    )
    leader = tmp_path / "leader"

    async def has_begun() -> bool:
        return leader.exists() and bool(leader.read_text())

    await until(has_begun)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    pid = int(leader.read_text())

    async def is_gone() -> bool:
        return not is_alive(pid)

    await until(is_gone)


async def test_huge_program_output_is_read_completely_but_stored_in_part(tmp_path: Path) -> None:
    script = "import sys; sys.stdout.write('x' * 5_000_000)"
    run = await tools(tmp_path).run(run_command, command=sys.executable, args=["-c", script])
    assert run.outcome == "ok"
    assert len(run.output.text) <= 51 * 1024
    assert run.whole is not None
    assert len(run.whole) < 1_100_000
    assert "3951424 more bytes were not kept" in run.whole


async def test_program_gets_empty_standard_input(tmp_path: Path) -> None:
    run = await tools(tmp_path).run(run_command, command="sh", args=["-c", "read x; echo end"])
    assert run.output.text == "[exit code 0]\nend"


async def test_open_descriptors_are_not_inherited(tmp_path: Path) -> None:
    secret = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(secret, True)
    script = "import os; print(sorted(os.listdir('/proc/self/fd'))[:9])"
    run = await tools(tmp_path).run(run_command, command=sys.executable, args=["-c", script])
    os.close(secret)
    assert "'0', '1', '2', '3']" in run.output.text  # 3 is the listing itself
