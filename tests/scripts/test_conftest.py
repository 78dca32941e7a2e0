"""Optional parts of the tests: a missing part is counted; a wrong path to a part is an error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.all_only

CONFTEST = Path(__file__).resolve().parent.parent / "conftest.py"
TESTS = """
def test_one(recordings): assert recordings.is_dir()
def test_two(recordings): assert recordings.is_dir()
def test_page(chromium): assert chromium
def test_program(real_pi_package): assert real_pi_package.is_dir()
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A separate repository whose tests need recordings, a browser and the pi package."""
    tests = tmp_path / "repository" / "tests"
    tests.mkdir(parents=True)
    shutil.copy(CONFTEST, tests)
    (tests / "test_wishes.py").write_text(TESTS, encoding="utf-8")
    return tests


def run(suite: Path, **named: object) -> str:
    """Run the tests of `suite` without this machine's programs; `named` are set as variables."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PERDURE"))}
    environment["PYTHONPATH"] = str(CONFTEST.parent.parent)  # the fakes are not copied
    environment["PATH"] = str(suite)
    environment.update({name: str(value) for name, value in named.items()})
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(suite)]
    finished = subprocess.run(
        command, env=environment, cwd=suite, capture_output=True, text=True, check=False
    )
    return finished.stdout


def test_tests_without_their_requirement_are_skipped_and_counted(suite: Path) -> None:
    output = run(suite)
    assert "4 skipped" in output
    for counted in ("RECORDINGS MISSING: 2", "CHROMIUM MISSING: 1", "PI MISSING: 1"):
        assert f"{counted} tests skipped" in output


def test_recordings_beside_the_repository_are_found(suite: Path) -> None:
    (suite.parent.parent / "shared" / "data" / "recordings").mkdir(parents=True)
    output = run(suite)
    assert "2 passed, 2 skipped" in output
    assert "RECORDINGS MISSING" not in output


def test_tests_of_configured_optional_parts_are_run(suite: Path, tmp_path: Path) -> None:
    output = run(suite, PERDURE_RECORDINGS=tmp_path, PERDURE_CHROMIUM=sys.executable)
    assert "3 passed, 1 skipped" in output
    assert "CHROMIUM MISSING" not in output


def test_configured_but_missing_programs_cause_errors(suite: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    output = run(suite, PERDURE_RECORDINGS=gone, PERDURE_CHROMIUM=gone, PERDURE_PI=gone)
    assert "4 errors" in output
    for name in ("PERDURE_RECORDINGS", "PERDURE_CHROMIUM", "PERDURE_PI"):
        assert f"{name} names no " in output
