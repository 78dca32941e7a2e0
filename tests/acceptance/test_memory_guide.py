"""The worked example of docs/guides/memory.md prints what the guide shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "memory.md"


def comparable(text: str) -> str:
    """Return `text` without the random boundary, and with a fixed time of the fact."""
    text = re.sub(r"context-[0-9a-f]{16}", "context-X", text)
    return re.sub(r"Fact, [0-9: -]{16}", "Fact, T", text).strip()


def test_worked_example_prints_the_output_in_the_guide() -> None:
    example = GUIDE.read_text(encoding="utf-8").partition("## A worked example")[2]
    code, shown = re.findall(r"```(?:python)?\n(.*?)```", example, re.DOTALL)[:2]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert comparable(done.stdout) == comparable(shown)
