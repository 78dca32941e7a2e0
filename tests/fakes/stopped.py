"""A second process that holds a lock and is stopped, as by Ctrl-Z."""

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
    """Yield the pid of a stopped process that holds the lock `arguments`; kill it at the end."""
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
    """Return the process state from the operating system; T means stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
