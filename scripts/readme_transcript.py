"""Run the transcripts in README.md again, and compare or rewrite their output.

`python scripts/readme_transcript.py` reports differences between README.md and the real output, and
then exits with 1; `--write` updates README.md.

Rules: in a block marked ``console``, a line with ``$ `` is a command; the lines after the command
are its output. All blocks run in order, as in one shell (``cd`` persists), which starts in a new
folder. The folder contains ``session.jsonl`` (the sample) and every ``python`` block that begins
with the comment ``# <name>.py``. A line ``...`` matches any lines.
Values that differ between runs (ids, times, process numbers) are not compared. `make demo` runs as
its underlying command; `make test` is not run, because `make test` runs this check.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

REPOSITORY = Path(__file__).resolve().parent.parent
README = REPOSITORY / "README.md"
SAMPLE = REPOSITORY / "src" / "perdure" / "data" / "sample.jsonl"
BIN = Path(sys.executable).parent
PROMPT = "$ "
ANYTHING = "..."
NOT_RUN = ("make test",)
INSTEAD = {"make demo": "perdure demo"}
PATIENCE_S = 120

CHANGING = (
    (re.compile(r"\b01[0-9a-hjkmnp-tv-z]{24}\b"), "<id>"),
    (re.compile(r"\bprocess \d+\b"), "process <pid>"),
    (re.compile(r"perdure-demo-\w+"), "perdure-demo-<name>"),
    (re.compile(r"\bin \d+\.\d+ s\b"), "in <seconds> s"),
    (re.compile(r"\S*/bin/perdure\b"), "perdure"),
    (re.compile(r"\b20\d\d-\d\d-\d\d( \d\d:\d\d)?\b"), "<time>"),
)


@dataclass
class Exchange:
    """A command and the output that the README prints for it."""

    line: int
    command: str
    output: list[str]


def exchanges(text: str) -> Iterator[Exchange]:
    """Return every command of the ``console`` blocks, in order; line numbers start at 1."""
    current: Exchange | None = None
    is_inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            if current is not None:
                yield current
            current, is_inside = None, line == "```console"
        elif is_inside and line.startswith(PROMPT):
            if current is not None:
                yield current
            current = Exchange(number, line.removeprefix(PROMPT), [])
        elif current is not None:
            current.output.append(line)


def programs(text: str) -> dict[str, str]:
    """Map file names to the contents of the ``python`` blocks that begin with a file name."""
    found = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return {name: f"# {name}\n{content}" for name, content in found}


def sample_in(folder: Path) -> None:
    """Write the sample with which the README begins into the folder."""
    shutil.copyfile(SAMPLE, folder / "session.jsonl")


@dataclass(frozen=True)
class Place:
    """Where a transcript runs: the content of the folder, and the environment.

    `home` replaces the name of the folder in the output; None shows the real name.
    """

    prepare: Callable[[Path], None] = sample_in
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    home: str | None = None


README_PLACE = Place()


def run(
    command: str, folder: Path, place: Place = README_PLACE, at: Path | None = None
) -> list[str]:
    """Return the output lines of `command` in a shell in `at`, by default in the home `folder`."""
    done = subprocess.run(
        ["sh", "-c", INSTEAD.get(command, command)],
        cwd=at or folder,
        env=environment(folder, place),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE_S,
        check=False,
    )
    return lines_of(done.stdout, folder, place)


def environment(folder: Path, place: Place) -> dict[str, str]:
    """Return the environment of a command whose home is `folder`."""
    return {
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
        "HOME": str(folder),
        "COLUMNS": "80",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        **place.environment,
    }


def lines_of(output: bytes, folder: Path, place: Place) -> list[str]:
    """Return the lines of `output`, in which the place's home replaces `folder`."""
    told = output.decode()
    if place.home is not None:
        told = told.replace(str(folder), place.home)
    return told.splitlines()


Runner: TypeAlias = Callable[[str, Path, Place, Path], list[str]]
"""Runs a command with a home folder, in a place and in a folder; returns its output lines."""


def unchanging(line: str) -> str:
    """Return `line` with values that change in each run replaced by constants."""
    for pattern, replacement in CHANGING:
        line = pattern.sub(replacement, line)
    return line.rstrip()


def agrees(printed: Sequence[str], real: Sequence[str]) -> bool:
    """Return whether `printed` matches `real`; `ANYTHING` in `printed` matches any lines."""
    wanted = "".join(
        "(?:.*\n)*" if line == ANYTHING else re.escape(unchanging(line)) + "\n"
        for line in [*printed]
    )
    return re.fullmatch(wanted, "".join(unchanging(line) + "\n" for line in real)) is not None


def played(
    text: str, place: Place = README_PLACE, run: Runner = run
) -> Iterator[tuple[Exchange, list[str]]]:
    """Yield every command of `text` with its real output, run by `run` in one new folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place.prepare(folder)
        for file, content in programs(text).items():
            (folder / file).write_text(content, encoding="utf-8")
        at = folder
        for exchange in exchanges(text):
            if exchange.command not in NOT_RUN:
                yield exchange, run(exchange.command, folder, place, at)
                at = folder_after(exchange.command, folder, at)


def folder_after(command: str, home: Path, at: Path) -> Path:
    """Return the folder of the shell after `command`, which ran in `at`."""
    gone = re.match(r"cd (\S+)(?: && |$)", command)
    return at if gone is None else Path(os.path.normpath(at / gone[1].replace("~", str(home))))


def rewritten(text: str, place: Place = README_PLACE) -> str:
    """Return `text` with the real outputs; outputs with `ANYTHING` in them are unchanged."""
    lines = text.splitlines()
    for exchange, real in reversed(list(played(text, place))):
        if ANYTHING not in exchange.output and not agrees(exchange.output, real):
            start = exchange.line
            lines[start : start + len(exchange.output)] = [line.rstrip() for line in real]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str], document: Path = README, place: Place = README_PLACE) -> int:
    """Check `document`, or update it with ``--write``; return the exit code."""
    text = document.read_text(encoding="utf-8")
    if "--write" in arguments:
        document.write_text(rewritten(text, place), encoding="utf-8")
        return 0
    wrong = [(each, real) for each, real in played(text, place) if not agrees(each.output, real)]
    for exchange, real in wrong:
        print(f"{document.name}:{exchange.line}: `{exchange.command}` really prints:")
        print("\n".join(f"    {line}" for line in real))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
