"""A command that is forked or runs in the test's process works like a newly started one."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import SAMPLE_ID, World
from tests.fakes.forked import Ended
from tests.fakes.forked_commands import run_command
from tests.fakes.inner_commands import run_here
from tests.fakes.samples import sampled

Runner = Callable[..., Ended]

LINES = (
    ("--version",),
    ("sessions", "list"),
    ("sessions", "show", SAMPLE_ID, "--json"),
    ("export", SAMPLE_ID, "-f", "markdown"),
    ("sessions", "show", "none"),
    ("nonsense",),
    ("chat", "-p", "", "--model"),
)


@sampled("words", LINES, kind=type, each=3)
def test_command_output_is_the_same_in_the_test_process_and_a_new_process(
    imported: World, words: tuple[str, ...]
) -> None:
    anew = imported.run_anew(*words)
    assert anew.out or anew.err
    for run in (run_command, run_here):
        done = run(words, imported.environment, imported.folder)
        assert (done.code, done.out.decode(), done.err) == (anew.code, anew.out, anew.err), run


@pytest.mark.parametrize("run", [run_command, run_here])
def test_command_run_without_a_new_process_reads_its_input_and_environment(
    run: Runner, world: World, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    done = run(("chat",), world.environment, tmp_path, b"the input")
    anew = world.run_anew("chat", stdin=b"the input")
    assert (done.code, anew.code) == (0, 0)
    assert "the input" in done.out.decode()
    assert "the input" in anew.out
    assert sorted(each.name for each in tmp_path.glob("store*")) == ["store.db"]
    other = World(tmp_path, {"PERDURE_STORE": "sqlite:///elsewhere/other.db"})
    assert run(("chat", "-p", "hi"), other.environment, tmp_path).code == 0
    assert (tmp_path / "elsewhere" / "other.db").exists()


def test_command_run_inside_the_test_process_changes_no_global_state(tmp_path: Path) -> None:
    def state() -> tuple[object, ...]:
        streams = (sys.stdin, sys.stdout, sys.stderr, os.fstat(1).st_ino)
        root = logging.getLogger()
        return (dict(os.environ), Path.cwd(), sys.argv, streams, root.level, list(root.handlers))

    before, warned = state(), list(warnings.filters)
    asked = World(tmp_path, {"PERDURE_LOG": "debug", "TMPDIR": str(tmp_path)})
    for words in (("sessions", "list"), ("nonsense",), ("--version",), ("chat", "-p", "hi")):
        run_here(words, asked.environment, tmp_path)
        assert state() == before
        assert list(warnings.filters) == warned
