"""Run the command line in a folder with its own store.

`World.run` runs a command in the process of the test, which takes a tenth of the time of a new
process. In an asyncio test, `World.run` forks the command from a process that has loaded the
modules of the command. `World.fork` starts a forked command in the background. `World.start` starts
the installed command in a new process. A variable in the environment that Python itself reads at
its start makes `World.run` start a new process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.forked import Forked
from tests.fakes.forked_commands import is_forkable, run_command, started_command
from tests.fakes.inner_commands import can_run_here, run_here

SAMPLE = Path(__file__).resolve().parents[3] / "src" / "perdure" / "data" / "sample.jsonl"
SAMPLE_ID = "0196f0c2-7d1e-7a54-9c3b-5e2d8f41a6b0"
PERDURE = Path(sys.executable).with_name("perdure")
PATIENCE_S = 180


@dataclass(frozen=True)
class Ended:
    """The end of a command: its exit code, and its texts on stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return the output, which must be one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Return the output, which must be one JSON document per line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """Return the error that the command wrote to stderr as JSON."""
        return json.loads(self.err.splitlines()[-1])["error"]


@dataclass(frozen=True)
class World:
    """A folder with a store in it, and commands that work on that store.

    `extra` contains variables to add to the environment; the value None removes a variable.
    """

    folder: Path
    extra: Mapping[str, str | None] = field(default_factory=dict[str, str | None])

    @property
    def file(self) -> Path:
        """The store's file."""
        return self.folder / "store.db"

    @property
    def environment(self) -> dict[str, str]:
        """A clean environment without the variables of the user who runs the tests."""
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PERDURE_STORE": f"sqlite:///{self.file}",
            "PERDURE_MODEL": "scripted:echo",
            "COLUMNS": "100",
            "LANG": "C.UTF-8",
            "PYTHONWARNINGS": "error",
            **self.extra,
        }
        return {name: value for name, value in variables.items() if value is not None}

    def run(self, *words: str, stdin: str | None = None) -> Ended:
        """Run ``perdure`` with `words`; without `stdin` its input is empty."""
        given = (stdin or "").encode()
        is_here = can_run_here()
        if is_forkable(self.environment, b"" if is_here else given):
            run = run_here if is_here else run_command
            done = run(words, self.environment, self.folder, given)
            ended = Ended(done.code, done.out.decode(), done.err)
        else:
            ended = self.run_anew(*words, stdin=given)
        assert "Traceback" not in ended.err, ended.err
        return ended

    def run_anew(self, *words: str, stdin: bytes = b"") -> Ended:
        """Run the installed ``perdure`` in a new process."""
        done = subprocess.run(
            [PERDURE, *words],
            input=stdin,
            capture_output=True,
            env=self.environment,
            cwd=self.folder,
            timeout=PATIENCE_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *words: str, stdin: str | None = None) -> Ended:
        """Run a command that must succeed."""
        ended = self.run(*words, stdin=stdin)
        assert ended.code == 0, ended.err
        return ended

    def start(self, *words: str, stdin: int | None = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """Start ``perdure`` in the background."""
        return subprocess.Popen(
            [PERDURE, *words],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            cwd=self.folder,
        )

    def fork(self, *words: str) -> AbstractContextManager[Forked]:
        """Start ``perdure`` in the background, in a fork with empty input."""
        assert is_forkable(self.environment, b"")
        return started_command(words, self.environment, self.folder)

    def scenario(self, text: str, name: str = "acted") -> str:
        """The path of a scenario file that holds `text`."""
        file = self.folder / f"{name}.yaml"
        file.write_text(text, encoding="utf-8")
        return str(file)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world in an empty folder."""
    return World(tmp_path)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world with the imported sample session, shared by the read-only tests of a module."""
    shared = World(tmp_path_factory.mktemp("imported"))
    shared.ok("import", str(SAMPLE))
    return shared


@pytest.fixture
def sample(world: World) -> World:
    """A world with the imported sample session, for one test."""
    world.ok("import", str(SAMPLE))
    return world
