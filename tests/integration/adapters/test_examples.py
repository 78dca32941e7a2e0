"""The examples of the adapters run, offline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "examples" / "adapters").glob("*.py"))


@pytest.mark.all_only
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_adapter_example_runs(example: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "lighthouse" in done.stdout or "On the cape." in done.stdout
