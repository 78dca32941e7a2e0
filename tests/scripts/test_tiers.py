"""Each tier of tests (`make check`, `make test`, `make test-all`) includes the tier before."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import cast

import pytest

from tests.conftest import CHECKED, LATER, pytest_collection_modifyitems

REPOSITORY = Path(__file__).resolve().parents[2]
TESTS = REPOSITORY / "tests"
OWN = Path("scripts", "test_tiers.py")
MARKERS = ("checked", "full_only", "all_only", "soak", "contained", "hypothesis")


def selected(expression: str, markers: tuple[str, ...]) -> bool:
    """Return whether pytest's `expression` for ``-m`` selects a test with these markers."""
    names = {marker: marker in markers for marker in MARKERS}
    return bool(eval(expression, {"__builtins__": {}}, names))


def expressions(file: str) -> dict[str, str]:
    """Map the beginning of each line of a Makefile or script to its ``-m`` expression."""
    return dict(_lines(file))


def _lines(file: str) -> list[tuple[str, str]]:
    lines = (REPOSITORY / file).read_text("utf-8").replace("\\\n", " ").splitlines()
    word = r"not |and |or |_only|full|all|checked|contained|hypothesis|\s"
    found = [re.match(rf"\s*(\S+).*?-m [\"']?((?:{word})+)", line) for line in lines]
    return [(match[1], match[2].strip()) for match in found if match]


def all_markers() -> list[tuple[str, ...]]:
    """Return every possible set of markers; one with `checked` has no marker of a later tier."""
    sets = [some for count in range(len(MARKERS) + 1) for some in combinations(MARKERS, count)]
    return [some for some in sets if "checked" not in some or LATER.isdisjoint(some)]


def test_each_tier_includes_tests_of_previous_tier() -> None:
    makefile = expressions("Makefile")
    check, test = makefile["QUICK"], makefile["@$(MAKE)"]
    assert (check, test) == ("checked", "not all_only")
    for markers in all_markers():
        assert selected(test, markers) >= selected(check, markers), markers


def test_make_check_runs_exactly_the_checked_test_folders() -> None:
    runs = re.findall(r"\$\(QUICK\) (tests/\w+)", (REPOSITORY / "Makefile").read_text("utf-8"))
    assert {f"{folder}/" for folder in runs} == set(CHECKED)


class FakeItem:
    """A collected test with markers."""

    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid = nodeid
        self.markers = list(markers)

    def iter_markers(self) -> list[pytest.Mark]:
        return [getattr(pytest.mark, name).mark for name in self.markers]

    def add_marker(self, marker: str) -> None:
        self.markers.append(marker)


def test_tests_of_make_check_get_the_marker_checked() -> None:
    items = [FakeItem(f"{folder}test_a.py::test_b") for folder in (*CHECKED, "tests/attacks/")]
    items += [FakeItem(f"{CHECKED[0]}test_a.py::test_b", later) for later in sorted(LATER)]
    pytest_collection_modifyitems(cast("list[pytest.Item]", items))
    assert ["checked" in item.markers for item in items] == [True, True, False, False, False]


def test_no_test_file_sets_the_marker_checked() -> None:
    texts = {file: file.read_text("utf-8") for file in TESTS.rglob("*.py")}
    assert [file for file, text in texts.items() if "mark.checked" in text] == [TESTS / OWN]


def parts_of(tier: str, arguments: str = "") -> list[list[str]]:
    """Return the words of each pytest command that ``make`` runs for a tier of the tests."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-n", tier, f"ARGS={arguments}"]  # the make of this test may export others
    printed = subprocess.check_output(command, cwd=REPOSITORY, env=environment, text=True)
    return [line.split() for line in printed.splitlines() if " -m pytest " in line]


def test_each_test_file_is_in_exactly_one_part_of_a_tier() -> None:
    for tier in ("test", "test-all", "soak"):
        parts = parts_of(tier)
        for file in TESTS.rglob("test_*.py"):
            name = str(file.relative_to(REPOSITORY))
            assert sum(is_in(name, words) for words in parts) == 1, (tier, name)


def test_tests_named_on_the_command_line_replace_the_default_parts() -> None:
    names = ("tests/unit", "./tests/unit/errors", "'tests/a.py::t[x y]'", str(TESTS / OWN), "tests")
    for name in names:
        (words,) = parts_of("test", name)
        assert [word for word in words if "tests" in word] == name.split()[:1]
    assert len(parts_of("test", "--deselect=tests/a.py::t")) > 5


def is_in(file: str, words: Sequence[str]) -> bool:
    """Return whether a command of pytest collects `file`."""
    ignored = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
    named = [word for word in words if word.partition("/")[0] == "tests"]
    below = [any(f"{file}/".startswith(f"{each}/") for each in some) for some in (named, ignored)]
    return below == [True, False]


def test_ci_runs_each_test_once_except_repeated_property_tests() -> None:
    check, steps = expressions("Makefile")["QUICK"], _lines(".ci/run")
    assert [begin for begin, _ in steps] == ["make"]
    for markers in all_markers():
        runs = sum(selected(each, markers) for each in (check, steps[0][1]))
        ways = {"checked", "hypothesis"} & set(markers)
        assert runs == (len(ways) if "contained" in markers else max(1, len(ways))), markers


TEST = re.compile(r"^(?:(?:async )?def test_|Test\w* = )", re.MULTILINE)
"""A function, or a state machine under its name in unittest."""


def test_every_test_is_in_a_file_that_pytest_collects() -> None:
    lost = [
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        if bool(TEST.search(file.read_text("utf-8"))) != file.name.startswith("test_")
    ]
    assert lost == []
