"""The real pi, from its npm package. Tests use pi's session manager and the command ``pi``.

The package is in the folder $PERDURE_PI, or else in `.programs/pi` (`make programs`).
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

REPOSITORY = Path(__file__).resolve().parents[2]
DRIVER = REPOSITORY / "tests" / "acceptance" / "pi" / "driver.mjs"
NAMED = "PERDURE_PI"
PACKAGES = ("@mariozechner/pi-coding-agent", "@earendil-works/pi-coding-agent")
"""The npm names of pi: the name up to version 0.73, and the name of later versions."""

PATIENCE_S = 60
_CONTROLS = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[\]_][^\x07\x1b]*(?:\x07|\x1b\\)?)")


def installed() -> Path | None:
    """Return the folder of pi's package; None if the package or the program node is missing."""
    folder = Path(os.environ.get(NAMED) or REPOSITORY / ".programs" / "pi")
    packages = [folder / "node_modules" / name for name in PACKAGES]
    found = [package for package in packages if (package / "package.json").is_file()]
    return found[0] if found and shutil.which("node") else None


class RealPi:
    """pi's session manager in a process of its own. Every call reads the file again."""

    def __init__(self, package: Path, process: subprocess.Popen[str]) -> None:
        self.package = package
        self._process = process

    def ask(self, op: str, **facts: object) -> dict[str, Any]:
        """Run one operation of `driver.mjs`; return its answer."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        asked = {name: str(v) if isinstance(v, Path) else v for name, v in facts.items()}
        process.stdin.write(json.dumps({"op": op, **asked}) + "\n")
        process.stdin.flush()
        answer = cast("dict[str, Any]", json.loads(process.stdout.readline()))
        assert "error" not in answer, answer["error"]
        return answer

    def make(self, folder: Path, cwd: str, seed: int, steps: int) -> Path:
        """Write a random session; return its file."""
        return Path(self.ask("make", folder=folder, cwd=cwd, seed=seed, steps=steps)["path"])

    def look(self, path: Path) -> dict[str, Any]:
        """Return what pi reads in `path`: ids, leaf, labels, name, and the messages for a model."""
        return self.ask("look", path=path)

    def run(self, *words: str, home: Path, cwd: Path, address: str = "") -> str:
        """Run the command ``pi`` with `words` against the model server at `address`."""
        settle(home, address)
        done = subprocess.run(
            self._command(*words),
            env=_environment(home),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def show_tree(self, path: Path, home: Path) -> str:
        """Open `path` in pi at a terminal and type ``/tree``; return what the screen shows."""
        settle(home, "http://127.0.0.1:9/v1")  # no model is called
        own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 160, 0, 0))
        words = ("--provider", "local", "--model", "tides", "--no-tools", "--session", str(path))
        with subprocess.Popen(
            self._command(*words),
            env={**_environment(home), "TERM": "xterm-256color"},
            cwd=home,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            try:
                _read_until(own, "tides")  # the model, on the last line of the screen
                os.write(own, b"/tree")
                _read_until(own, "Navigate session tree")
                os.write(own, b"\r")
                return _read_until(own, r"Session Tree.*\(\d+/\d+\)")  # which row of how many
            finally:
                process.kill()
                os.close(own)

    def _command(self, *words: str) -> list[str]:
        return ["node", str(self.package / "dist" / "cli.js"), *words]


def _environment(home: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PI_OFFLINE": "1",
        "PI_SKIP_VERSION_CHECK": "1",
        "LANG": "C.UTF-8",
    }


def _read_until(terminal: int, pattern: str) -> str:
    """Return the terminal output, without colours, up to a match of `pattern`."""
    printed = b""
    end = time.monotonic() + PATIENCE_S
    while True:
        text = _CONTROLS.sub("", printed.decode("utf-8", "replace"))
        if re.search(pattern, text, re.DOTALL):
            return text
        assert time.monotonic() < end, text
        if select.select([terminal], [], [], 1)[0]:
            printed += os.read(terminal, 65_536)


def settle(home: Path, address: str) -> None:
    """Configure pi in `home` with a provider ``local`` and the model ``tides`` at `address`."""
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    model = {"id": "tides", "name": "Tides", "reasoning": False, "input": ["text"]}
    cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    provider: Mapping[str, object] = {
        "baseUrl": address,
        "apiKey": "none",
        "api": "openai-completions",
        "models": [{**model, "cost": cost, "contextWindow": 100_000, "maxTokens": 1_000}],
    }
    models = {"providers": {"local": provider}}
    (folder / "models.json").write_text(json.dumps(models), encoding="utf-8")


@contextmanager
def running(package: Path) -> Generator[RealPi]:
    """Run the driver for the duration of the block."""
    command = ["node", str(DRIVER), str(package)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    with process:
        try:
            yield RealPi(package, process)
        finally:
            process.kill()
