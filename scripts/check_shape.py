"""Check the shape of the repository: sizes, places, names, reasons and forbidden contents.

Run the script in the repository: `python -m scripts.check_shape [ROOT]`. The script prints each
violation as `path:line: rule: problem`. If it finds a violation, it exits with 1. It reads the
files that git tracks or would add, without importing them. New files are checked before their
commit.

Each rule is a function `(Repository) -> violations`, listed in `RULES` at the end. The two tables
under "Test mirror" contain the only exceptions, and each row gives its reason.
"""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from scripts.class_methods import Classes, Module, statements
from scripts.suppressions import unexplained

PACKAGE = PurePosixPath("src/perdure")
CODE_FOLDERS = ("src", "scripts", "benchmarks", "examples", "tests")

# Sizes ------------------------------------------------------------------------------------------

MODULE_LINES = 500
TEST_FILE_LINES = 700
EXAMPLE_LINES = 140
FUNCTION_LINES = 50
CLASS_LINES = 250
CLASS_PUBLIC_METHODS = 15
MORE_OF_CLASS = {
    # class that is an interface for programs: its maximum lines, and its maximum public methods;
    # a method of a handle has only a signature, a docstring and a call of the part that does it
    "PerdureSaver": (250, 17),
    "Session": (560, 47),
    "Store": (540, 30),
    "Chat": (270, 18),
    "Flow": (280, 18),
    "Flows": (260, CLASS_PUBLIC_METHODS),
    "SessionStore": (CLASS_LINES, 36),
    # declares the calls of the SQLite driver that are used
    "Connection": (CLASS_LINES, 18),
}
MORE_OF_STORE = (330, 36)
"""Limits of lines and methods in `stores/*/store.py`, which implement a long protocol."""

CLASS_CHAIN = 2
"""Maximum number of classes in a chain of base classes: prefer a member to a base class."""
FAMILIES = {
    # root of a longer chain: why the chain may be longer
    "PerdureError": "programs catch a family of errors",
    "Handle": "makes the handles without async, of which `perdure.blocking` has another Store",
    "IndexState": "a session file is read whole, or from its end, by the same rules",
}

HANDLE_MODULES = frozenset(
    PACKAGE / path
    for path in (
        "client/session.py",
        "client/store.py",
        "stores/in_memory/store.py",
        "stores/jsonl/store.py",
        "stores/sqlite/store.py",
    )
)
"""Modules that contain only a handle or a store; they can have `HANDLE_MODULE_LINES` lines."""
HANDLE_MODULE_LINES = 700
FOLDER_MODULES = 16
FOLDER_DEPTH = 3
DOCUMENT_LINES = {"ARCHITECTURE.md": 275, "CONTRIBUTING.md": 80}

HELP_SECTIONS = frozenset({"Examples:", "Exit codes:"})

BANNED_NAMES = frozenset({"utils", "helpers", "common", "base", "core", "manager", "misc"})

# Test mirror ------------------------------------------------------------------------------------
# src/perdure/a/b.py is tested by tests/unit/a/test_b.py, except:

NO_TEST = {
    # module: why no test of its own could fail
    "egress/http_types.py": "values only; driven through egress/fetch.py",
    "errors/engine.py": "exceptions with fields, read in the tests of what raises them",
    "errors/flows.py": "exceptions with fields, read in the tests of what raises them",
    "errors/retention.py": "exceptions with fields, read in the tests of what raises them",
    "errors/log.py": "exceptions with fields, read in the tests of what raises them",
    "errors/models.py": "exceptions with fields, read in the tests of what raises them",
    "errors/maintenance.py": "exceptions with fields, read in the tests of what raises them",
    "errors/root.py": "the root of the exceptions",
    "errors/outside.py": "exceptions with fields, read in the tests of what raises them",
    "engine/telemetry/names.py": "names only; read in the tests of the spans",
    "errors/stores.py": "exceptions with fields, read in the tests of what raises them",
    "errors/usage.py": "an exception with fields, read in the tests of what raises it",
    "errors/workflow.py": "exceptions with fields, read in the tests of what raises them",
    "errors/tools.py": "exceptions with fields, read in the tests of what raises them",
    "session/kinds.py": "bodies only; read by unit/session/test_golden.py, written by property/",
    "session/ledger.py": "bodies only; read by unit/session/test_golden.py, written by property/",
    "session/notes.py": "bodies only; read by unit/session/test_golden.py, written by property/",
    "session/memory/kinds.py": "bodies only; read by unit/session/test_golden.py",
    "session/records.py": "values only; made and read in unit/client/records",
    "engine/turns/inputs.py": "values only; each is driven through the machine in its tests",
    "workflow/document.py": "values only; written and read in the tests beside it",
    "engine/hooks/points.py": "values only; each is asked about in the tests beside it",
    "engine/flows/roles.py": "a protocol",
    "engine/turns/co_commit.py": "a protocol and the value it passes",
    "memory/arrays.py": "the sums of memory/sums.py with numpy: each test there runs on both",
    "models/protocol.py": "protocols and the values they pass",
    "stores/protocol.py": "protocols and the values they pass",
    "tools/spec.py": "the values that tools are and are called with",
}
GATHERS = {
    # package file that re-exports its modules: why this is allowed
    "adapters/google_adk/__init__.py": "what a program of the framework imports",
    "adapters/langgraph/__init__.py": "what a program of LangGraph imports",
    "adapters/pydantic_ai/__init__.py": "what a program of Pydantic AI imports",
    "adapters/openai_agents/__init__.py": "what a program of the framework imports",
    "errors/__init__.py": "one flat list of errors to catch, drawn as a tree in its docstring",
}
TESTED_IN = {
    # module, or folder ending in "/": (where its tests are, why there)
    "stores/": ("tests/conformance/store", "one specification is run against every backend"),
    "apps/cluster/": ("tests/integration/cluster", "workers are processes on one database"),
    "client/cluster/": ("tests/integration/cluster", "likewise"),
    "client/requests/followed_turn.py": ("tests/integration/cluster", "likewise"),
    "client/requests/led_turn.py": ("tests/concurrency", "the other process is a real one"),
    "apps/cli/": ("tests/acceptance", "the command line is tested as a process"),
    "apps/chat/": ("tests/acceptance", "likewise"),
    "apps/terminal/line_editor.py": ("tests/acceptance", "at the terminal of a process"),
    "apps/tui/": ("tests/integration/tui", "keys are pressed in the whole program"),
    "apps/configuration/": ("tests/acceptance", "likewise"),
    "apps/demo/": ("tests/acceptance", "likewise"),
    "client/flows/": ("tests/integration/flows", "they run whole flows with files and tools"),
    "apps/maintenance/": ("tests/integration/operating", "they work on whole stores on disk"),
    "tools/git/": ("tests/attacks", "against real repositories, configured to run something"),
    "tools/mcp/connection.py": ("tests/acceptance/mcp", "against servers that are processes"),
    "tools/mcp/server_tools.py": ("tests/acceptance/mcp", "likewise"),
    "apps/flow/": ("tests/acceptance/flows", "likewise"),
    "apps/setup/": ("tests/acceptance", "likewise"),
    "apps/memory/": ("tests/acceptance", "likewise"),
    "adapters/": ("tests/integration/adapters", "with each framework, on SQLite and PostgreSQL"),
    "client/recording/record.py": ("tests/integration/recording", "it needs the client libraries"),
    "apps/picker/command.py": ("tests/acceptance", "likewise"),
    "apps/picker/screen.py": ("tests/acceptance", "at a terminal of its own"),
}

# What no file may contain -----------------------------------------------------------------------
# The patterns do not match themselves. Searching for a pattern takes fifty times as long as
# searching for words, so each pattern has words in lower case, of which every matching text
# contains at least one.

FORBIDDEN_TEXT = {
    "package-index-address": (
        (".org", "/simple", "index-url"),
        re.compile(
            r"\bpypi[.]org|\bfiles[.]pythonhosted[.]org|\bregistry[.]npmjs[.]org"
            r"|https?[:]//\S+/simple\b|(?<![\w-])--(?:extra-)?index[-]url[ =]",
            re.IGNORECASE,
        ),
    ),
    "machine-path": (("/work", "/root"), re.compile(r"(?<![\w.])/(?:work|root)[/]")),
}


@dataclass(frozen=True, order=True)
class Violation:
    """One broken rule at one place."""

    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


@dataclass(frozen=True)
class Source:
    """A text file, with its syntax tree if the file is Python."""

    path: PurePosixPath
    text: str

    @property
    def is_python(self) -> bool:
        return self.path.suffix == ".py" and self.path.parts[0] in CODE_FOLDERS

    @property
    def is_test(self) -> bool:
        return self.path.parts[0] == "tests"

    @property
    def is_generated(self) -> bool:
        return "generated by" in self.text.partition("\n")[0].lower()

    @property
    def line_count(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def tree(self) -> ast.Module | None:
        """The syntax tree; None if the file is not valid Python."""
        try:
            return ast.parse(self.text)
        except SyntaxError:
            return None

    def at(self, line: int, rule: str, message: str) -> Violation:
        return Violation(str(self.path), line, rule, message)


@dataclass(frozen=True)
class Repository:
    """The files that the rules check."""

    sources: tuple[Source, ...]

    @classmethod
    def read(cls, root: Path) -> Repository:
        """Read every UTF-8 text file under `root` that git tracks or would add."""
        found: list[Source] = []
        for path in sorted(tracked_paths(root)):
            try:
                text = (root / path).read_text(encoding="utf-8")
            except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
                continue  # binary, deleted but not yet committed, or a link to a folder
            found.append(Source(PurePosixPath(path), text))
        return cls(tuple(found))

    @cached_property
    def python(self) -> tuple[Source, ...]:
        return tuple(source for source in self.sources if source.is_python)

    @cached_property
    def written(self) -> tuple[Source, ...]:
        """The Python files that a person wrote."""
        return tuple(source for source in self.python if not source.is_generated)

    @cached_property
    def modules(self) -> dict[PurePosixPath, Source]:
        """The Python files of the package, by their path in the package."""
        return {
            source.path.relative_to(PACKAGE): source
            for source in self.python
            if source.path.is_relative_to(PACKAGE)
        }


def tracked_paths(root: Path) -> list[str]:
    """Return the paths relative to `root` that git tracks or would add."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others"]
    listing = subprocess.run(
        [*command, "--exclude-standard"], check=True, capture_output=True, text=True
    )
    return [path for path in listing.stdout.split("\0") if path]


def file_sizes(repository: Repository) -> Iterator[Violation]:
    """Report each file, and each document with a limit, that has too many lines."""
    for source in repository.written:
        folder = source.path.parts[0]
        limit = {"tests": TEST_FILE_LINES, "examples": EXAMPLE_LINES}.get(folder, MODULE_LINES)
        if source.path in HANDLE_MODULES:
            limit = HANDLE_MODULE_LINES
        if source.line_count > limit:
            yield source.at(1, "file-size", f"{source.line_count} lines, at most {limit}")
    for source in repository.sources:
        limit = DOCUMENT_LINES.get(str(source.path), source.line_count)
        if source.line_count > limit:
            yield source.at(1, "file-size", f"{source.line_count} lines, at most {limit}")


def definition_sizes(repository: Repository) -> Iterator[Violation]:
    """Report each function or class outside the tests that is too large."""
    sources = [each for each in repository.written if not each.is_test]
    classes = Classes([Module(each.path, each.tree) for each in sources])
    for source in sources:
        if source.tree is None:
            continue
        for node in statements(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from too_long(source, node, "function-size", FUNCTION_LINES)
            elif isinstance(node, ast.ClassDef):
                limits = MORE_OF_CLASS.get(node.name, (CLASS_LINES, CLASS_PUBLIC_METHODS))
                if source.path.match("stores/*/store.py"):
                    limits = MORE_OF_STORE
                yield from too_long(source, node, "class-size", limits[0])
                yield from too_many_methods(source, node, classes, limits[1])
                yield from too_many_bases(source, node, classes)


def too_long(
    source: Source,
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
    rule: str,
    limit: int,
) -> Iterator[Violation]:
    """Report the definition if it has more lines than `limit`, including its docstring.

    The examples and exit codes of a command's docstring do not count, because they are help text.
    """
    count = (node.end_lineno or node.lineno) - node.lineno + 1 - help_lines(node)
    if count > limit:
        yield source.at(node.lineno, rule, f"`{node.name}` has {count} lines, at most {limit}")


def help_lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """Return the number of docstring lines in the sections ``Examples:`` and ``Exit codes:``."""
    lines = (ast.get_docstring(node) or "").splitlines()
    starts = [number for number, line in enumerate(lines) if line in HELP_SECTIONS]
    return len(lines) - min(starts, default=len(lines))


def too_many_methods(
    source: Source, node: ast.ClassDef, classes: Classes, limit: int
) -> Iterator[Violation]:
    """Report the class if it has more public methods than `limit`, including inherited ones."""
    count = len(classes.public_methods(Module(source.path, source.tree), node))
    if count > limit:
        message = f"`{node.name}` has {count} public methods, at most {limit}"
        yield source.at(node.lineno, "class-methods", message)


def too_many_bases(source: Source, node: ast.ClassDef, classes: Classes) -> Iterator[Violation]:
    """Report the class if its chain of base classes is too long."""
    chain = classes.chain(Module(source.path, source.tree), node)
    if len(chain) > CLASS_CHAIN and chain[-1] not in FAMILIES:
        yield source.at(node.lineno, "class-chain", f"`{' -> '.join(chain)}`: hold a part instead")


def folders(repository: Repository) -> Iterator[Violation]:
    """Report each folder of the package that contains too many modules or is nested too deep."""
    modules = repository.modules
    counts = Counter(path.parent for path in modules if path.name != "__init__.py")
    for folder, count in counts.items():
        if count > FOLDER_MODULES:
            message = f"{count} modules, at most {FOLDER_MODULES}"
            yield Violation(str(PACKAGE / folder), 1, "folder-size", message)
    for path, source in modules.items():
        depth = len(path.parent.parts)
        if depth > FOLDER_DEPTH:
            message = f"its folder is {depth} below {PACKAGE}, at most {FOLDER_DEPTH}"
            yield source.at(1, "folder-depth", message)


def names(repository: Repository) -> Iterator[Violation]:
    """Report each folder or module whose name does not say what it contains."""
    for source in repository.python:
        parts = [*source.path.parts[:-1], source.path.stem.removeprefix("test_")]
        for part in BANNED_NAMES.intersection(parts):
            message = f"`{part}` does not say what the file holds"
            yield source.at(1, "banned-name", message)


def package_files(repository: Repository) -> Iterator[Violation]:
    """Report each `__init__.py` below the top folder that contains more than a docstring."""
    for path, source in repository.modules.items():
        is_package_file = path.name == "__init__.py" and path.parent != PurePosixPath()
        if not is_package_file or str(path) in GATHERS or source.tree is None:
            continue
        if ast.get_docstring(source.tree) is None:
            yield source.at(1, "package-file", "has no docstring")
        for node in source.tree.body:
            if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                yield source.at(node.lineno, "package-file", "holds more than its docstring")
                break


def syntax(repository: Repository) -> Iterator[Violation]:
    """Report each invalid Python file outside the tests; in the tests, ruff finds such files."""
    for source in repository.python:
        if not source.is_test and source.tree is None:
            yield source.at(1, "syntax", "is not valid Python, so most rules could not look at it")


def mirrored_tests(repository: Repository) -> Iterator[Violation]:
    """Report each module without a test at the expected path."""
    tests = {str(source.path) for source in repository.python if source.path.parts[0] == "tests"}
    for path, source in repository.modules.items():
        if path.name in {"__init__.py", "__main__.py"} or str(path) in NO_TEST:
            continue
        unit = f"tests/unit/{path.parent / f'test_{path.name}'}"
        elsewhere = [place for key, (place, _) in TESTED_IN.items() if covers(key, path)]
        if unit in tests or any(holds_tests(place, tests) for place in elsewhere):
            continue
        yield source.at(1, "test-mirror", f"no test: expected {' or '.join([unit, *elsewhere])}")


def mirror_tables(repository: Repository) -> Iterator[Violation]:
    """Report each row of the exceptions that matches no module."""
    modules = repository.modules
    for key in [*NO_TEST, *TESTED_IN]:
        if not any(covers(key, path) for path in modules):
            message = f"the table's row {key!r} names no module"
            yield Violation("scripts/check_shape.py", 1, "mirror-table", message)


def covers(key: str, path: PurePosixPath) -> bool:
    """Return whether a row of the exceptions applies to the module."""
    return str(path).startswith(key) if key.endswith("/") else str(path) == key


def holds_tests(place: str, tests: set[str]) -> bool:
    """Return whether there is a test file at any depth under `place`."""
    return any(path.startswith(f"{place}/") and "/test_" in path for path in tests)


def suppressions(repository: Repository) -> Iterator[Violation]:
    """Report each comment that silences a tool without a reason, or for a whole file."""
    for source in repository.python:
        for line, comment, is_file_wide in unexplained(source.text):
            if is_file_wide:
                yield source.at(line, "file-wide-suppression", "silence one line, with a reason")
            else:
                message = f"`{comment.strip()}` has no reason after it"
                yield source.at(line, "suppression-reason", message)


def forbidden_text(repository: Repository) -> Iterator[Violation]:
    """Report each file that contains an address of a package index or a path of one machine."""
    for source in repository.sources:
        lower = source.text.lower()
        for rule, (words, pattern) in FORBIDDEN_TEXT.items():
            if not any(word in lower for word in words) or not pattern.search(source.text):
                continue
            for number, line in enumerate(source.text.splitlines(), 1):
                if match := pattern.search(line):
                    yield source.at(number, rule, f"`{match[0].strip()}`")


Rule = Callable[[Repository], Iterator[Violation]]
RULES: tuple[Rule, ...] = (
    syntax,
    file_sizes,
    definition_sizes,
    folders,
    names,
    package_files,
    mirrored_tests,
    mirror_tables,
    suppressions,
    forbidden_text,
)


def violations(repository: Repository) -> list[Violation]:
    """Return every violation, in the order of path, line and rule."""
    return sorted(violation for rule in RULES for violation in rule(repository))


def main(arguments: list[str]) -> int:
    """Check the repository at the given root, or this one; return the exit code."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    repository = Repository.read(root)
    found = violations(repository)
    for violation in found:
        print(violation)
    print(f"shape: {len(repository.sources)} files, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    gc.disable()  # syntax trees hold no cycles, and looking for some takes a third of the time
    sys.exit(main(sys.argv[1:]))
