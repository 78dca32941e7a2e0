"""Each tier of tests, `make check`, `make test`, `make test-all`, runs those of the one before."""

from __future__ import annotations

import ast
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


def names_of_tests(file: Path) -> list[str]:
    """Return the functions and assigned state machines of `file` that are named like tests."""
    body = ast.parse(file.read_text("utf-8")).body
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = [node.name for node in body if isinstance(node, functions)]
    assigned = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    names += [target.id for target in assigned if isinstance(target, ast.Name)]
    return [name for name in names if name.startswith(("test_", "Test"))]


def test_every_test_is_in_a_file_that_pytest_collects() -> None:
    lost = [
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        if bool(names_of_tests(file)) != file.name.startswith("test_")
    ]
    assert lost == []
