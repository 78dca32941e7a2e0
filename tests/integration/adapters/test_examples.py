"""The examples of the adapters run, offline."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.fakes.samples import sampled

EXAMPLES = sorted((REPOSITORY / "examples" / "adapters").glob("*.py"))


@pytest.mark.full_only
@sampled("example", EXAMPLES, kind=type, each=1, ids=lambda path: path.stem)
def test_adapter_example_runs(example: object) -> None:
    done = subprocess.run(
        [sys.executable, str(example)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "lighthouse" in done.stdout or "On the cape." in done.stdout
