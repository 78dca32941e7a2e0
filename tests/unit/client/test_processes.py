"""A process is reported dead only if this is certain."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from perdure.client.processes import is_gone, this_process

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
SCRIPT = "from perdure.client.processes import this_process; print(this_process())"


@linux
def test_running_process_is_reported_as_alive() -> None:
    assert f"pid {os.getpid()} on " in this_process()
    assert not is_gone(this_process())


@linux
def test_ended_process_is_reported_as_dead() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    name = done.stdout.decode().strip()
    assert name.endswith(")")
    assert is_gone(name)


@linux
def test_killed_process_that_is_not_reaped_is_reported_as_dead() -> None:
    script = f"{SCRIPT[:-1]}, flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        name = child.stdout.readline().decode().strip()
        assert not is_gone(name)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(name)


@linux
def test_another_process_with_the_same_pid_is_not_the_same_process() -> None:
    head, _, start = this_process().rpartition(".")
    assert is_gone(f"{head}.{int(start[:-1]) + 1})")


@linux
def test_process_is_not_reported_as_dead_while_no_file_can_be_opened() -> None:
    name = this_process()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        is_reported_as_dead = is_gone(name)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not is_reported_as_dead


@pytest.mark.parametrize(
    "name", ["somebody", "pid 1 on elsewhere (1.1)", "pid 999999999 on here", ""]
)
def test_process_of_unknown_state_is_not_reported_as_dead(name: str) -> None:
    assert not is_gone(name)
