"""Each tier of tests (`make check`, `make test`, `make test-all`) includes the tier before."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from tests.conftest import CHECKED, LATER, LONG_S, limit_of, long_first

REPOSITORY = Path(__file__).resolve().parents[2]
TESTS = REPOSITORY / "tests"
MARKERS = ("checked", "full_only", "all_only", "soak", "contained", "hypothesis")


def selected(expression: str, markers: tuple[str, ...]) -> bool:
    """Return whether pytest's `expression` for ``-m`` selects a test with these markers."""
    names = {marker: marker in markers for marker in MARKERS}
    return bool(eval(expression, {"__builtins__": {}}, names))


def expressions(file: str) -> dict[str, str]:
    """Return the ``-m`` of each line of a Makefile or script, by the beginning of the line."""
    return dict(_lines(file))


def _lines(file: str) -> list[tuple[str, str]]:
    lines = (REPOSITORY / file).read_text("utf-8").replace("\\\n", " ").splitlines()
    word = r"not |and |or |_only|full|all|checked|contained|hypothesis|\s"
    found = [re.match(rf"\s*(\S+).*?-m [\"']?((?:{word})+)", line) for line in lines]
    return [(match[1], match[2].strip()) for match in found if match]


def all_markers() -> list[tuple[str, ...]]:
    """Return every possible set of markers: `checked` never occurs with a later tier."""
    sets = [some for count in range(len(MARKERS) + 1) for some in combinations(MARKERS, count)]
    return [some for some in sets if "checked" not in some or LATER.isdisjoint(some)]


def test_each_tier_includes_tests_of_previous_tier() -> None:
    makefile = expressions("Makefile")
    check, test = makefile["QUICK"], makefile["$(TESTS)"]
    assert (check, test) == ("checked", "not all_only")
    for markers in all_markers():
        assert selected(test, markers) >= selected(check, markers), markers


def test_check_runs_folders_of_checked_tests() -> None:
    runs = re.findall(r"\$\(QUICK\) (tests/\w+)", (REPOSITORY / "Makefile").read_text("utf-8"))
    assert {f"{folder}/" for folder in runs} == set(CHECKED)


def test_tests_in_the_folders_of_make_check_are_marked_checked_unless_marked_for_later(
    request: pytest.FixtureRequest,
) -> None:
    for item in request.session.items:
        names = {marker.name for marker in item.iter_markers()}
        is_checked = item.nodeid.startswith(CHECKED) and LATER.isdisjoint(names)
        assert ("checked" in names) == is_checked, item.nodeid


def test_ci_runs_each_test_once_and_properties_of_check_again_with_more_examples() -> None:
    check, steps = expressions("Makefile")["QUICK"], _lines(".ci/run")
    assert [begin for begin, _ in steps] == ["make"]
    for markers in all_markers():
        runs = sum(selected(each, markers) for each in (check, steps[0][1]))
        ways = {"checked", "hypothesis"} & set(markers)
        assert runs == (len(ways) if "contained" in markers else max(1, len(ways))), markers


@pytest.mark.parametrize("processes", [0, 1, 2, 3, 4, 7])
def test_long_tests_start_first_in_each_process(
    request: pytest.FixtureRequest, processes: int
) -> None:
    for items in (request.session.items, request.session.items[:3], []):
        ordered = long_first(items, processes)
        assert sorted(map(id, ordered)) == sorted(map(id, items))
        left = ordered
        for number in range(processes):
            share = left[: len(left) // (processes - number)]
            left = left[len(share) :]
            limits = [limit_of(item) for item in share]
            long = [limit for limit in limits if limit >= LONG_S]
            assert limits[: len(long)] == sorted(long, reverse=True)


TEST = re.compile(r"^(?:(?:async )?def test_|Test\w* = )", re.MULTILINE)
"""A function, or a state machine under its name in unittest."""


def test_every_test_is_in_a_file_that_pytest_collects() -> None:
    lost = [
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        if bool(TEST.search(file.read_text("utf-8"))) != file.name.startswith("test_")
    ]
    assert lost == []
