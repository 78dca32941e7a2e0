"""What README.md shows is what really happens."""

from __future__ import annotations

import re

import pytest

from scripts.readme_transcript import (
    README,
    REPOSITORY,
    agrees,
    exchanges,
    played,
    programs,
    unchanging,
)

TEXT = README.read_text(encoding="utf-8")


def test_every_command_prints_what_the_readme_says() -> None:
    for exchange, real in played(TEXT):
        shown = "\n".join(real)
        assert agrees(exchange.output, real), f"line {exchange.line}, {exchange.command}:\n{shown}"


def test_the_readme_opens_with_the_two_commands() -> None:
    commands = [exchange.command for exchange in exchanges(TEXT)]
    assert commands[:2] == ["make demo", "make test"]
    assert "failed" not in "\n".join(list(exchanges(TEXT))[1].output)
    assert list(programs(TEXT)) == ["trip.py"]


def test_every_link_leads_somewhere() -> None:
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
            if not target.startswith("https:"):
                assert (REPOSITORY / target).exists(), f"{name}: {target}"


@pytest.mark.parametrize("name", ["ARCHITECTURE.md"])
def test_every_module_that_is_named_is_there(name: str) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    package = REPOSITORY / "src" / "perdure"
    for module in re.findall(r"`([a-z_]+(?:/[a-z_]+)+(?:\.py)?)`", text):
        places = (package / module, package.parent / module, REPOSITORY / module)
        assert any(place.exists() for place in places), module


def test_what_changes_from_run_to_run_is_not_compared() -> None:
    assert agrees(["a", "...", "d"], ["a", "b", "c", "d"])
    assert not agrees(["a", "d"], ["a", "b", "d"])
    assert unchanging("01m7xr2cwdk2ej17gj533vfqcm in 1.2 s") == "<id> in <seconds> s"
