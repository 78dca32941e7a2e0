"""Real repositories, and a program that creates a file if git runs the program."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import msgspec

from perdure.tools.builtin.git import git_commit, git_status
from perdure.tools.execution import ToolRun
from tests.fakes.tool_calls import Tools

SECRET = "text-from-outside"
SUBJECT = "history-from-outside"
COMMANDS = ("status", "log", "diff")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


class Scene(msgspec.Struct, frozen=True):
    """A repository that a test changes, and a second repository `outside` of it.

    `program` creates the file `mark` when it runs.
    """

    repository: Path
    outside: Path
    program: Path
    mark: Path

    @property
    def config(self) -> Path:
        return self.repository / ".git" / "config"

    def configure(self, key: str, value: str) -> None:
        git(self.repository, "config", key, value)

    def write(self, path: str, text: str) -> Path:
        place = self.repository / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place


def initialized(folder: Path, subject: str = "first") -> Path:
    """Copy a repository with one commit to `folder`.

    A copy is faster than a new repository, for which git has to start five times.
    """
    return Path(shutil.copytree(_committed(subject), folder, symlinks=True))


@cache
def _committed(subject: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="perdure-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    for sample in (folder / ".git" / "hooks").iterdir():
        sample.unlink()  # no test needs them, and copying them takes half of the time
    git(folder, "config", "user.name", "Ada")
    git(folder, "config", "user.email", "ada@example.com")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", subject)
    return folder


def scene_in(tmp_path: Path) -> Scene:
    """Create the repositories and the program of a scene, and the folder ``home`` for HOME."""
    (tmp_path / "home").mkdir()
    outside = initialized(tmp_path / "outside", SUBJECT)
    (outside / "secret.txt").write_text(f"{SECRET}\n")
    program = tmp_path / "program"
    mark = tmp_path / "mark"
    program.write_text(f"#!/bin/sh\ntouch {mark}\nexit 0\n")
    program.chmod(0o755)
    return Scene(initialized(tmp_path / "repository"), outside, program, mark)


async def all_runs(scene: Scene) -> list[ToolRun]:
    """Change a file, then run every git tool in the repository of `scene`; return the results."""
    (scene.repository / "a.txt").write_text("two\n")
    os.utime(scene.repository / "a.txt", (1, 1))
    tools = Tools(scene.repository)
    runs = [await tools.run(git_status, command=command) for command in COMMANDS]
    runs.append(await tools.run(git_commit, message="x", files=["a.txt"]))
    runs.append(await tools.run(git_commit, message="nothing"))
    return runs


def require_harmless(scene: Scene, runs: list[ToolRun]) -> None:
    assert not scene.mark.exists()
    for run in runs:
        for text in (SECRET, SUBJECT, "secret.txt", "passwd", "root:"):
            assert text not in run.output.text


def sign_head(scene: Scene) -> None:
    """Replace HEAD with a commit that has a signature, which only an external program can check."""
    text = git(scene.repository, "cat-file", "commit", "HEAD")
    headers, _, message = text.partition("\n\n")
    kind = "SSH" if "ssh" in scene.config.read_text() else "PGP"
    signature = (
        f"gpgsig -----BEGIN {kind} SIGNATURE-----\n \n AAAA\n -----END {kind} SIGNATURE-----"
    )
    signed = scene.write("signed", f"{headers}\n{signature}\n\n{message}")
    made = git(scene.repository, "hash-object", "-t", "commit", "-w", str(signed)).strip()
    signed.unlink()
    git(scene.repository, "update-ref", "HEAD", made)
