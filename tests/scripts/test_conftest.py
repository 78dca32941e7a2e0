"""The fixtures of tests/conftest.py: found, missing and counted, or wrongly named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.all_only

CONFTEST = Path(__file__).resolve().parent.parent / "conftest.py"
TWO_TESTS = """
def test_one(recordings): assert recordings.is_dir()
def test_two(recordings): assert recordings.is_dir()
"""
ONE_PAGE = """
def test_page(chromium): assert chromium
"""
ONE_PROGRAM = """
def test_program(real_pi_package): assert real_pi_package.is_dir()
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A repository of its own with two tests that want the recordings."""
    tests = tmp_path / "repository" / "tests"
    tests.mkdir(parents=True)
    shutil.copy(CONFTEST, tests)
    (tests / "test_two.py").write_text(TWO_TESTS, encoding="utf-8")
    return tests


def run(
    suite: Path,
    recordings: Path | None = None,
    *arguments: str,
    changes: Mapping[str, str] | None = None,
) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PERDURE"))}
    environment["PYTHONPATH"] = str(CONFTEST.parent.parent)  # the fakes are not copied
    environment.update(changes or {})
    if recordings:
        environment["PERDURE_RECORDINGS"] = str(recordings)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, str(suite)]
    finished = subprocess.run(
        command, env=environment, cwd=suite, capture_output=True, text=True, check=False
    )
    return finished.stdout


def test_skipped_tests_are_counted_across_processes(suite: Path) -> None:
    output = run(suite, None, "-n", "2")
    assert "2 skipped" in output
    assert "RECORDINGS MISSING: 2 tests skipped" in output


def test_recordings_beside_the_repository_are_found(suite: Path) -> None:
    (suite.parent.parent / "shared" / "data" / "recordings").mkdir(parents=True)
    output = run(suite)
    assert "2 passed" in output
    assert "RECORDINGS MISSING" not in output


def test_a_named_folder_is_used(suite: Path, tmp_path: Path) -> None:
    assert "2 passed" in run(suite, tmp_path)


def test_a_named_folder_that_is_not_there_is_an_error(suite: Path, tmp_path: Path) -> None:
    assert "2 errors" in run(suite, tmp_path / "gone")


def test_without_a_browser_its_tests_are_skipped_and_counted(suite: Path, tmp_path: Path) -> None:
    (suite / "test_two.py").write_text(ONE_PAGE, encoding="utf-8")
    output = run(suite, changes={"PATH": str(tmp_path)})
    assert "1 skipped" in output
    assert "CHROMIUM MISSING: 1 tests skipped" in output


def test_a_named_browser_must_be_there(suite: Path, tmp_path: Path) -> None:
    (suite / "test_two.py").write_text(ONE_PAGE, encoding="utf-8")
    assert "1 error" in run(suite, changes={"PERDURE_CHROMIUM": str(tmp_path / "gone")})
    assert "1 passed" in run(suite, changes={"PERDURE_CHROMIUM": sys.executable})


def test_without_the_package_of_pi_its_tests_are_skipped_and_counted(
    suite: Path, tmp_path: Path
) -> None:
    (suite / "test_two.py").write_text(ONE_PROGRAM, encoding="utf-8")
    output = run(suite, changes={"PATH": str(tmp_path)})  # no node
    assert "1 skipped" in output
    assert "PI MISSING: 1 tests skipped" in output


def test_named_folder_without_the_package_of_pi_is_an_error(suite: Path, tmp_path: Path) -> None:
    (suite / "test_two.py").write_text(ONE_PROGRAM, encoding="utf-8")
    assert "1 error" in run(suite, changes={"PERDURE_PI": str(tmp_path)})
