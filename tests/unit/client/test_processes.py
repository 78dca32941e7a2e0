"""A process is reported dead only if its death is certain."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.client import processes
from perdure.client.processes import is_gone, this_process


def ended_pid() -> int:
    """Return the pid of a process that has ended."""
    with subprocess.Popen(["true"]) as child:
        child.wait()
    return child.pid


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
def test_lack_of_file_descriptors_does_not_make_a_process_look_dead() -> None:
    name = this_process()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        is_reported_as_dead = is_gone(name)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not is_reported_as_dead


@linux
def test_running_process_missing_from_proc_is_not_reported_as_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = this_process()
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to(os.readlink("/proc/self/ns/pid"))  # noqa: PTH115 - the link is no path
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    assert not is_gone(name)
    assert is_gone(name.replace(f"pid {os.getpid()} ", f"pid {ended_pid()} "))


@linux
def test_process_whose_program_name_is_not_utf8_has_a_name(tmp_path: Path) -> None:
    program = tmp_path / "abcdefghijklmn\u00e4"  # the kernel cuts it after 15 bytes
    program.symlink_to(Path(sys.executable).resolve())
    source = str(Path(perdure.__file__).parents[1])
    environment = {"PYTHONPATH": os.pathsep.join([source, *sys.path])}
    script = f"{SCRIPT}; import sys; sys.stdin.read()"
    with subprocess.Popen(
        [
            str(program),
            "-c",
            script.replace("print(this_process())", "print(this_process(), flush=True)"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as child:
        assert child.stdout is not None
        name = child.stdout.readline().decode().strip()
        assert name.startswith(f"pid {child.pid} on ")
        assert not is_gone(name)


@pytest.mark.parametrize(
    "name", ["somebody", "pid 1 on elsewhere (1.1)", "pid 999999999 on here", ""]
)
def test_process_of_unknown_state_is_not_reported_as_dead(name: str) -> None:
    assert not is_gone(name)
