"""Each rule of scripts/check_shape.py reports a planted violation, and no borderline case."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from scripts import check_shape
from scripts.check_shape import Repository, Source, Violation
from tests.fakes.samples import case

# Put together here, because this file is checked as well.
HASH = chr(35)
WORK = "/" + "work/"
ROOT = "/" + "root/"
INDEX = "https://" + "pypi" + ".org/project/x"

PACKAGE = "src/perdure"
CLEAN = {
    f"{PACKAGE}/__init__.py": "from perdure.errors import PerdureError\n",
    f"{PACKAGE}/session/__init__.py": '"""Sessions."""\n',
    f"{PACKAGE}/session/tree.py": "LEAF = 1\n",
    "tests/unit/session/test_tree.py": "def test_leaf() -> None: ...\n",
}
TABLES = {
    **{f"{PACKAGE}/{module}": "" for module in check_shape.NO_TEST},
    **{f"{PACKAGE}/{key}x.py": "" for key in check_shape.TESTED_IN if key.endswith("/")},
    **{f"{PACKAGE}/{key}": "" for key in check_shape.TESTED_IN if not key.endswith("/")},
    **{f"{place}/test_x.py": "" for place, _ in check_shape.TESTED_IN.values()},
}


def lines(count: int) -> str:
    return "x = 1\n" * count


def function(count: int, docstring: str = "") -> str:
    return f"def long() -> None:\n{docstring}" + "    x = 1\n" * (count - 1)


HELP = '''    """Do it.

    Examples:
        perdure x

    Exit codes:
        1  it failed
    """
'''
"""A docstring of eight lines, of which five are examples and exit codes."""


def class_of(methods: int) -> str:
    return "class Wide:\n" + "".join(f"    def m{i}(self) -> None: ...\n" for i in range(methods))


def derived(base: str) -> str:
    methods = "".join(f"    def n{i}(self) -> None: ...\n" for i in range(8))
    return f"class Derived({base}):\n{methods}"


def modules(count: int) -> dict[str, str]:
    planted = {f"{PACKAGE}/events/m{i}.py": "" for i in range(count)}
    return planted | {f"tests/unit/events/test_m{i}.py": "" for i in range(count)}


def repository(planted: dict[str, str]) -> Repository:
    files = {**TABLES, **CLEAN, **planted}
    return Repository(tuple(Source(PurePosixPath(path), text) for path, text in files.items()))


def violations(planted: dict[str, str]) -> list[Violation]:
    return check_shape.violations(repository(planted))


TREE = f"{PACKAGE}/session/tree.py"
INIT = f"{PACKAGE}/session/__init__.py"

PLANTED = {
    "a long module": ({TREE: lines(501)}, TREE, 1, "file-size"),
    "a long script": ({"scripts/long.py": lines(501)}, "scripts/long.py", 1, "file-size"),
    "a long test": ({"tests/test_long.py": lines(701)}, "tests/test_long.py", 1, "file-size"),
    "a long example": ({"examples/long.py": lines(141)}, "examples/long.py", 1, "file-size"),
    "a long document": ({"CONTRIBUTING.md": lines(81)}, "CONTRIBUTING.md", 1, "file-size"),
    "a long function": ({TREE: "\n" + function(51)}, TREE, 2, "function-size"),
    "a long function with help": ({TREE: function(48, HELP)}, TREE, 1, "function-size"),
    "a long coroutine": ({TREE: "async " + function(51)}, TREE, 1, "function-size"),
    "a long method": (
        {TREE: "class A:\n    def long(self) -> None:\n" + "        x = 1\n" * 50},
        TREE,
        2,
        "function-size",
    ),
    "a long class": ({TREE: "class Long:\n" + "    x = 1\n" * 250}, TREE, 1, "class-size"),
    "a class of 16 methods": ({TREE: class_of(16)}, TREE, 1, "class-methods"),
    "a class of 16 methods with its base": (
        {TREE: class_of(8) + derived("Wide")},
        TREE,
        10,
        "class-methods",
    ),
    "a class of 16 methods with its generic base": (
        {TREE: class_of(8) + derived("Wide[int]")},
        TREE,
        10,
        "class-methods",
    ),
    "a class of 16 methods with the base of another module": (
        {
            f"{PACKAGE}/session/near.py": "class Wide: ...\n",
            f"{PACKAGE}/session/wide.py": class_of(8),
            "tests/unit/session/test_near.py": "",
            "tests/unit/session/test_wide.py": "",
            TREE: "from perdure.session import wide\n" + derived("wide.Wide"),
        },
        TREE,
        2,
        "class-methods",
    ),
    "a chain of base classes": (
        {TREE: "class A: ...\nclass B(A): ...\nclass C(B): ...\n"},
        TREE,
        3,
        "class-chain",
    ),
    "a folder of 17 modules": (modules(17), f"{PACKAGE}/events", 1, "folder-size"),
    "a folder too deep": (
        {f"{PACKAGE}/a/b/c/d/e.py": "", "tests/unit/a/b/c/d/test_e.py": ""},
        f"{PACKAGE}/a/b/c/d/e.py",
        1,
        "folder-depth",
    ),
    "a module named utils": (
        {f"{PACKAGE}/utils.py": ""},
        f"{PACKAGE}/utils.py",
        1,
        "banned-name",
    ),
    "a folder named core": ({"tests/core/test_x.py": ""}, "tests/core/test_x.py", 1, "banned-name"),
    "code in a package file": ({INIT: '"""Doc."""\nX = 1\n'}, INIT, 2, "package-file"),
    "an import in a package file": ({INIT: '"""Doc."""\nimport os\n'}, INIT, 2, "package-file"),
    "a package file without words": ({INIT: ""}, INIT, 1, "package-file"),
    "a module without a test": (
        {f"{PACKAGE}/session/fold.py": ""},
        f"{PACKAGE}/session/fold.py",
        1,
        "test-mirror",
    ),
    "a test in the wrong folder": (
        {f"{PACKAGE}/fold.py": "", "tests/unit/session/test_fold.py": ""},
        f"{PACKAGE}/fold.py",
        1,
        "test-mirror",
    ),
    "invalid Python": ({TREE: "def (:\n"}, TREE, 1, "syntax"),
    "a bare noqa": ({TREE: f"x = 1  {HASH} noqa\n"}, TREE, 1, "suppression-reason"),
    "noqa with codes only": (
        {TREE: f"\nx = 1  {HASH} noqa: E501, PLR0913\n"},
        TREE,
        2,
        "suppression-reason",
    ),
    "noqa with one word": (
        {TREE: f"x = 1  {HASH} noqa: E501 - long\n"},
        TREE,
        1,
        "suppression-reason",
    ),
    "a type ignore": ({TREE: f"x = 1  {HASH} type: ignore[x]\n"}, TREE, 1, "suppression-reason"),
    "a pyright ignore": (
        {"tests/unit/session/test_tree.py": f"x = 1  {HASH} pyright: ignore[reportPrivateUsage]\n"},
        "tests/unit/session/test_tree.py",
        1,
        "suppression-reason",
    ),
    "two suppressions without a reason": (
        {TREE: f"x = 1  {HASH} pyright: ignore[reportAny]  {HASH} noqa: E501\n"},
        TREE,
        1,
        "suppression-reason",
    ),
    "noqa for a file": (
        {TREE: f"{HASH} ruff: noqa: E501 - the lines are long\n"},
        TREE,
        1,
        "file-wide-suppression",
    ),
    "a pyrefly ignore": (
        {TREE: f"x = 1  {HASH} pyrefly: ignore[bad-return]\n"},
        TREE,
        1,
        "suppression-reason",
    ),
    "pyrefly off for a file": (
        {TREE: f"{HASH} pyrefly: ignore-errors\n"},
        TREE,
        1,
        "file-wide-suppression",
    ),
    "a pyright rule off for a file": (
        {TREE: f"{HASH} pyright: reportPrivateUsage=false\n"},
        TREE,
        1,
        "file-wide-suppression",
    ),
    "pyright basic for a file": (
        {TREE: f"{HASH} pyright: basic\n"},
        TREE,
        1,
        "file-wide-suppression",
    ),
    "an index address": ({"a.md": f"\nsee {INDEX}\n"}, "a.md", 2, "package-index-address"),
    "an index option": (
        {"r.txt": "--" + "index-url x\n"},
        "r.txt",
        1,
        "package-index-address",
    ),
    "a mirror's address": (
        {"r.txt": "https://" + "host.example/simple/x\n"},
        "r.txt",
        1,
        "package-index-address",
    ),
    "a path of one machine": ({"a.json": f'["{WORK}x"]\n'}, "a.json", 1, "machine-path"),
    "a home folder": ({TREE: f'HOME = "file://{ROOT}x"\n'}, TREE, 1, "machine-path"),
}


def test_planted_violation_is_reported_with_its_file_and_line() -> None:
    for name, (planted, path, line, rule) in PLANTED.items():
        with case(name):
            found = violations(planted)
            assert [(v.path, v.line, v.rule) for v in found if v.rule == rule] == [
                (path, line, rule)
            ]


ALLOWED = {
    "nothing planted": {},
    "a module of 500 lines": {TREE: lines(500)},
    "a test of 700 lines": {"tests/unit/session/test_tree.py": lines(700)},
    "a long generated module": {TREE: f"{HASH} Generated by scripts/x.py.\n" + lines(600)},
    "a function of 50 lines": {TREE: function(50)},
    "a function of 50 lines and its help": {TREE: function(47, HELP)},
    "a long test function": {"tests/unit/session/test_tree.py": function(90)},
    "a class of 15 public methods and a private one": {
        TREE: class_of(15) + "    def _m(self) -> None: ...\n"
    },
    "a folder of 16 modules": modules(16),
    "a module three levels down": {
        f"{PACKAGE}/a/b/c.py": "",
        "tests/unit/a/b/test_c.py": "",
    },
    "a name that contains a banned one": {
        f"{PACKAGE}/database.py": "",
        "tests/unit/test_database.py": "",
    },
    "a way to start the package": {f"{PACKAGE}/__main__.py": ""},
    "noqa with a reason": {TREE: f"x = 1  {HASH} noqa: E501 - a long address\n"},
    "noqa with its reason in a comment": {TREE: f"x = 1  {HASH} noqa: E501  {HASH} an address\n"},
    "a type ignore with a reason": {TREE: f"x = 1  {HASH} type: ignore[x]  {HASH} no stubs\n"},
    "a pyright ignore with a reason": {
        TREE: f"x = 1  {HASH} pyright: ignore[reportAny] - apsw has no stubs\n"
    },
    "one reason for two suppressions": {
        TREE: f"x = 1  {HASH} pyright: ignore[reportAny]  {HASH} noqa: E501 - no stubs\n"
    },
    "a suppression inside a string": {TREE: f'x = "{HASH} noqa"\n'},
    "pyright strict": {TREE: f"{HASH} pyright: strict\n"},
    "a path below another": {"a.md": f"~{WORK[1:]}x shared{WORK}x ./{WORK[1:]}x\n"},
}


def test_module_exactly_at_each_limit_has_no_violation() -> None:
    for name, planted in ALLOWED.items():
        with case(name):
            assert violations(planted) == []


@pytest.mark.parametrize("rule", check_shape.RULES)
def test_every_rule_has_a_planted_violation(rule: check_shape.Rule) -> None:
    planted = [repository(files) for files, *_ in PLANTED.values()]
    assert any(list(rule(files)) for files in [*planted, Repository(())])


def test_exception_for_a_missing_module_is_reported() -> None:
    for key in [*check_shape.NO_TEST, *check_shape.TESTED_IN]:
        with case(key):
            gone = f"{PACKAGE}/{key}"
            files = {path: text for path, text in TABLES.items() if not path.startswith(gone)}
            sources = tuple(Source(PurePosixPath(path), text) for path, text in files.items())
            found = check_shape.violations(Repository(sources))
            assert any(v.rule == "mirror-table" and repr(key) in v.message for v in found)


@pytest.mark.parametrize("key", [key for key in check_shape.TESTED_IN if key.endswith("/")])
def test_missing_test_in_another_test_folder_is_reported(key: str) -> None:
    place = check_shape.TESTED_IN[key][0]
    files = {path: text for path, text in TABLES.items() if not path.startswith(place)}
    sources = tuple(Source(PurePosixPath(path), text) for path, text in files.items())
    found = check_shape.violations(Repository(sources))
    assert (f"{PACKAGE}/{key}x.py", "test-mirror") in [(v.path, v.rule) for v in found]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    for path, text in {**TABLES, **CLEAN, ".gitignore": "ignored.md\n"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path


def test_check_of_a_clean_clone_exits_with_0(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (clone / "ignored.md").write_text(INDEX, encoding="utf-8")
    (clone / "picture.png").write_bytes(b"\x89PNG\xff")
    assert check_shape.main([str(clone)]) == 0
    assert "0 violations" in capsys.readouterr().out


def test_violation_is_printed_with_its_file_and_line(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (clone / TREE).write_text(f"\nx = 1  {HASH} noqa\n", encoding="utf-8")
    assert check_shape.main([str(clone)]) == 1
    assert f"{TREE}:2: suppression-reason: " in capsys.readouterr().out
