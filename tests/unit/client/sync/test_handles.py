"""The generated handles are those that would be generated now."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.make_blocking import FLOWS_TARGET, TARGET, written


@pytest.mark.parametrize("target", [TARGET, FLOWS_TARGET], ids=lambda target: target.stem)
def test_the_handles_are_up_to_date(target: Path) -> None:
    assert target.read_text(encoding="utf-8") == written(target), "run scripts/make_blocking.py"
