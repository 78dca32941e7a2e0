"""The commands and outputs in the guide for a new user are real."""

from __future__ import annotations

import pytest

from scripts.guide_transcript import ANSWER, GUIDE, HOME, place
from scripts.readme_transcript import Exchange, agrees, played

TEXT = GUIDE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def exchanged() -> list[tuple[Exchange, list[str]]]:
    with place() as here:
        return list(played(TEXT, here))


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
