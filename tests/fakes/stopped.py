"""A second process that was stopped, as by Ctrl-Z, while it holds a lock."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "concurrency" / "children" / "stopped_holder.py"


@contextmanager
def stopped_holder(*arguments: object) -> Generator[int]:
    """The pid of a stopped process that holds what `arguments` say; it is killed at the end."""
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            while state_of(process.pid) != "T":
                time.sleep(0.005)
            yield process.pid
        finally:
            process.kill()


def state_of(pid: int) -> str:
    """How the operating system names what a process does: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
