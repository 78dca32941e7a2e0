"""The first model call loads no module on the event loop: a thread loads the modules before.

A full garbage collection in the thread would block the event loop, because the collection holds
Python's lock until it ends.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.fakes.samples import sampled


@pytest.mark.all_only
@sampled("provider", ["openai", "anthropic", "openai-responses", "google"], kind=type, each=1)
def test_first_model_call_after_loading_imports_no_module(
    provider: str,
) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.concurrency.children.first_call", provider],
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.split() == []
