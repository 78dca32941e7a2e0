"""LangGraph's published tests of stores pass on `PerdureStore`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import NO_SUITES, REPOSITORY

SUITES = REPOSITORY / ".programs" / "suites"
PLUGINS = REPOSITORY / "tests" / "fakes" / "suites"


def run_suite(archive: str, files: list[str], address: str) -> dict[str, int]:
    """Run `files` of an archive's tests on the store at `address`; count the cases by outcome."""
    folder = SUITES / archive
    if not folder.is_dir():
        pytest.skip(f"{NO_SUITES} (make suites)")
    environment = {**os.environ, "PYTHONPATH": str(PLUGINS), "PERDURE_SUITE_STORE": address}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none but asyncio's: 1.5 seconds less
    command = [sys.executable, "-m", "pytest", "-q", "-p", "asyncio", "-p", "langgraph_store_suite"]
    command += ["-p", "no:cacheprovider", *files]
    done = subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    summary = done.stdout.strip().rpartition("\n")[2]
    return {outcome: int(number) for number, outcome in re.findall(r"(\d+) (\w+)", summary)}


@pytest.mark.all_only
@pytest.mark.parametrize("store_address", ["sqlite", "postgres"], indirect=True)
def test_published_tests_of_in_memory_store_pass(store_address: str) -> None:
    outcomes = run_suite("langgraph_checkpoint-4.3.2", ["tests/test_store.py"], store_address)
    assert outcomes == {"passed": 116, "deselected": 1}


@pytest.mark.all_only
@pytest.mark.timeout(600)  # one of them makes 5,000 calls
def test_published_tests_of_sqlite_stores_pass(store_address: str) -> None:
    files = ["tests/test_store.py", "tests/test_async_store.py"]
    outcomes = run_suite("langgraph_checkpoint_sqlite-3.1.2", files, store_address)
    assert outcomes == {"passed": 75, "deselected": 67}
