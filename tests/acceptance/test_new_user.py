"""The commands and outputs in the guide for a new user are real."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from scripts.guide_transcript import ANSWER, GUIDE, HOME, place
from scripts.readme_transcript import Exchange, Place, agrees, environment, lines_of, played, run
from tests.fakes.inner_commands import run_here

TEXT = GUIDE.read_text(encoding="utf-8")


def run_inside(command: str, folder: Path, place: Place, at: Path) -> list[str]:
    """Run ``perdure`` in this process, which takes a tenth of the time; run the rest in a shell.

    `tests/acceptance/test_readme.py` runs the installed program.
    """
    own, pipe, rest = command.partition(" | ")
    program, *words = shlex.split(own)
    if program != "perdure":
        return run(command, folder, place, at)
    words = [str(folder) if word == "~" else word for word in words]
    ended = run_here(words, environment(folder, place), at)
    output = ended.out
    if pipe:
        output = subprocess.run(
            ["sh", "-c", rest], input=output, stdout=subprocess.PIPE, check=True
        ).stdout
    return lines_of(output + ended.err.encode(), folder, place)


@pytest.fixture(scope="module")
def exchanged() -> list[tuple[Exchange, list[str]]]:
    with place() as here:
        return list(played(TEXT, here, run_inside))


def test_every_command_prints_the_output_in_the_guide(
    exchanged: list[tuple[Exchange, list[str]]],
) -> None:
    for exchange, real in exchanged:
        shown = "\n".join(real)
        assert agrees(exchange.output, real), f"line {exchange.line}, {exchange.command}:\n{shown}"


def test_guide_for_new_users_imports_finds_continues_and_exports_a_session(
    exchanged: list[tuple[Exchange, list[str]]],
) -> None:
    told = {exchange.command.split()[1]: "\n".join(real) for exchange, real in exchanged}
    files = sum(len(files) for files in HOME.values())
    assert f"{files} sessions" in told["import"]
    assert told["chat"] == ANSWER
    assert "/home/ana" not in told["-c"]
    assert told["-c"] == "0"
