"""The generated handles are those that would be generated now."""

from __future__ import annotations

from scripts.make_blocking import TARGET, written


def test_the_handles_are_up_to_date() -> None:
    assert TARGET.read_text(encoding="utf-8") == written(), "run python scripts/make_blocking.py"
