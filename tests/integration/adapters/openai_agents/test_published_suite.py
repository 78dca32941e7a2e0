"""The SDK's own published tests of sessions pass on `PerdureSession`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import NO_SUITES, REPOSITORY

SUITE = REPOSITORY / ".programs" / "suites" / "openai_agents-0.24.0"
PLUGINS = REPOSITORY / "tests" / "fakes" / "suites"

# One test here is a whole suite in a process of its own: seconds alone, minutes on a busy machine.
pytestmark = pytest.mark.timeout(900)

OF_SESSIONS = ["tests/memory/test_session.py", "tests/memory/test_session_limit.py"]
# Not test_compaction_suffix.py: the SDK compacts the end of a session by a private method of its
# own stores, and with others it says that it skips that.
OF_RUNS = [
    "tests/memory/test_openai_responses_compaction_session.py",
    "tests/memory/test_session_context_wrapper.py",
    "tests/memory/test_session_persistence_sanitize.py",
    "tests/test_agent_runner.py",
    "tests/test_agent_runner_streamed.py",
    "tests/test_max_turns.py",
    "tests/test_native_tool_failure_history.py",
    "tests/test_programmatic_tool_calling.py",
    "tests/test_run_impl_resume_paths.py",
    "tests/test_soft_cancel.py",
    "tests/test_tool_batch_failure_history.py",
    "tests/test_tool_failure_boundaries.py",
]


def run_suite(files: list[str], address: str) -> dict[str, int]:
    """Run `files` of the SDK's tests on the store at `address`; count the cases by outcome."""
    if not SUITE.is_dir():
        pytest.skip(f"{NO_SUITES} (make suites)")
    environment = {**os.environ, "PYTHONPATH": str(PLUGINS)}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none but asyncio's: 3 CPU-seconds less
    if address.startswith("postgres"):
        environment["PERDURE_SUITE_STORE"] = address
    command = [sys.executable, "-m", "pytest", "-q", "-p", "asyncio", "-p", "openai_agents_suite"]
    command += ["-p", "no:cacheprovider", *files]
    done = subprocess.run(
        command, check=False, cwd=SUITE, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    summary = done.stdout.strip().rpartition("\n")[2]
    return {outcome: int(number) for number, outcome in re.findall(r"(\d+) (\w+)", summary)}


@pytest.mark.all_only
def test_published_tests_of_sessions_pass(store_address: str) -> None:
    assert run_suite(OF_SESSIONS, store_address) == {"passed": 48, "deselected": 23}


@pytest.mark.all_only
def test_published_tests_of_runs_with_a_session_pass(store_address: str) -> None:
    assert run_suite(OF_RUNS, store_address) == {"passed": 177, "deselected": 960}
