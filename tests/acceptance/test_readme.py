"""The commands and outputs in README.md are real."""

from __future__ import annotations

import re
import tomllib

from scripts.readme_transcript import (
    README,
    agrees,
    exchanges,
    played,
    programs,
    unchanging,
)

TEXT = README.read_text(encoding="utf-8")


def test_every_command_prints_the_output_in_the_readme() -> None:
    for exchange, real in played(TEXT):
        shown = "\n".join(real)
        assert agrees(exchange.output, real), f"line {exchange.line}, {exchange.command}:\n{shown}"


def test_first_commands_in_the_readme_are_make_demo_and_make_test() -> None:
    commands = [exchange.command for exchange in exchanges(TEXT)]
    assert commands[:2] == ["make demo", "make test"]
    assert "failed" not in "\n".join(list(exchanges(TEXT))[1].output)
    assert list(programs(TEXT)) == ["trip.py"]


def test_readme_check_ignores_output_that_varies() -> None:
    assert agrees(["a", "...", "d"], ["a", "b", "c", "d"])
    assert not agrees(["a", "d"], ["a", "b", "d"])
    assert unchanging("01m7xr2cwdk2ej17gj533vfqcm in 1.2 s") == "<id> in <seconds> s"


def test_every_extra_in_an_install_command_of_the_documents_exists() -> None:
    project = tomllib.loads((README.parent / "pyproject.toml").read_text(encoding="utf-8"))
    known = project["project"]["optional-dependencies"].keys()
    pages = [README, *README.parent.glob("docs/**/*.md")]
    named = {
        extra
        for page in pages
        for extras in re.findall(
            r"""install [^\n`]*?['"](?:perdure|\.)\[([a-z,-]+)\]""", page.read_text()
        )
        for extra in extras.split(",")
    }
    assert {"models", "tui", "server", "mcp"} <= named <= known
