"""Each tier of tests, `make check`, `make test`, `make test-all`, runs those of the one before."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TESTS = REPOSITORY / "tests"
MARKERS = ("full_only", "all_only", "soak", "hypothesis")


def selected(expression: str, markers: tuple[str, ...]) -> bool:
    """Return whether pytest's `expression` for ``-m`` selects a test with these markers."""
    names = {marker: marker in markers for marker in MARKERS}
    return bool(eval(expression, {"__builtins__": {}}, names))


def expressions(file: str) -> dict[str, str]:
    """The ``-m`` of each line of a Makefile or script, by what the line begins with."""
    lines = (REPOSITORY / file).read_text("utf-8").replace("\\\n", " ").splitlines()
    found = [
        re.match(r"\s*(\S+).*?-m [\"']?((?:not |and |or |_only|full|all|hypothesis|\s)+)", x)
        for x in lines
    ]
    return {match[1]: match[2].strip() for match in found if match}


def all_markers() -> list[tuple[str, ...]]:
    return [some for count in range(len(MARKERS) + 1) for some in combinations(MARKERS, count)]


def test_each_tier_runs_the_tests_of_the_one_before() -> None:
    makefile = expressions("Makefile")
    check, test = makefile["QUICK"], makefile["$(TESTS)"]
    assert (check, test) == ("not full_only and not all_only", "not all_only")
    for markers in all_markers():
        assert selected(test, markers) >= selected(check, markers), markers


def test_ci_runs_each_test_of_every_tier_once_and_properties_again_with_more_examples() -> None:
    makefile, script = expressions("Makefile"), expressions(".ci/run")
    rest = script["make"]
    for markers in all_markers():
        runs = selected(makefile["$(TESTS)"], markers) + selected(rest, markers)
        runs_twice = "hypothesis" in markers and "all_only" not in markers
        assert runs == 1 + runs_twice, markers


TEST = re.compile(r"^(?:(?:async )?def test_|Test\w* = )", re.MULTILINE)
"""A function, or a state machine under its name in unittest."""


def test_every_test_is_in_a_file_that_pytest_collects() -> None:
    lost = [
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        if bool(TEST.search(file.read_text("utf-8"))) != file.name.startswith("test_")
    ]
    assert lost == []
