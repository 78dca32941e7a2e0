"""A forked command does what a command does that is started anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import SAMPLE_ID, World

LINES = (
    ("--version",),
    ("sessions", "list"),
    ("sessions", "show", SAMPLE_ID, "--json"),
    ("export", SAMPLE_ID, "-f", "markdown"),
    ("sessions", "show", "none"),
    ("nonsense",),
    ("chat", "-p", "", "--model"),
)


@pytest.mark.parametrize("words", LINES)
def test_forked_command_ends_and_prints_as_one_started_anew(
    imported: World, words: tuple[str, ...]
) -> None:
    anew = imported.run_anew(*words)
    assert imported.run(*words) == anew
    assert anew.out or anew.err


def test_forked_command_reads_its_input_environment_and_folder(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    asked = ("chat",)
    forked, anew = world.run(*asked, stdin="the input"), world.run_anew(*asked, stdin=b"the input")
    assert (forked.code, anew.code) == (0, 0)
    assert "the input" in forked.out
    assert "the input" in anew.out
    assert sorted(each.name for each in tmp_path.glob("store*")) == ["store.db"]
    other = World(tmp_path, {"PERDURE_STORE": "sqlite:///elsewhere/other.db"})
    other.ok("chat", "-p", "hi")
    assert (tmp_path / "elsewhere" / "other.db").exists()
