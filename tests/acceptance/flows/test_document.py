"""The commands and outputs in docs/flows.md are real."""

from __future__ import annotations

import pytest

from scripts.flow_transcripts import FLOWS, PLACE
from scripts.readme_transcript import agrees, played

TEXT = FLOWS.read_text(encoding="utf-8")


@pytest.mark.all_only
def test_every_command_prints_the_output_in_the_document() -> None:
    for exchange, real in played(TEXT, PLACE):
        shown = "\n".join(real)
        assert agrees(exchange.output, real), f"line {exchange.line}, {exchange.command}:\n{shown}"


def test_document_guide_shows_all_three_examples() -> None:
    for name in ("single-owner", "review", "fan-out"):
        assert f"{name} && perdure flow run" in TEXT
