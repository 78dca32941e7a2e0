"""Facts that an approval of a command covers: its program, scripts and other files."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from perdure.errors import ToolError
from perdure.tools.approval import hash_of
from perdure.tools.bound_facts import MAX_HASHED_BYTES, file_fact, times_fact

MAX_FILES = 64
MAX_TRIED = 10_000
MAX_TOTAL_BYTES = 4 * MAX_HASHED_BYTES
MAX_PATH = 4096

_ENDINGS = ("", ".py", ".js", ".mjs", ".cjs", ".sh", "/__main__.py", "/index.js", "/package.json")
"""Suffixes that interpreters append to find the file to run."""

_PYTEST = ("conftest.py", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_NODE = ("package.json",)
_DEFAULTS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("make", "gmake"), ("GNUmakefile", "makefile", "Makefile")),
    **dict.fromkeys(("npm", "npx", "pnpm", "yarn", "bun"), _NODE),
    **dict.fromkeys(("pytest", "py.test"), _PYTEST),
    "just": ("justfile", "Justfile", ".justfile"),
    "tox": ("tox.ini", "pyproject.toml", "setup.cfg"),
    "nox": ("noxfile.py",),
    "rake": ("Rakefile", "rakefile"),
    "cargo": ("Cargo.toml", "build.rs"),
    "gradle": ("build.gradle", "build.gradle.kts"),
    "docker-compose": ("compose.yaml", "docker-compose.yml"),
}
"""Files that programs run or read from their working directory though no argument names them."""

_STARTERS = frozenset(
    (
        *("sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "env", "nice", "nohup", "timeout"),
        *("xargs", "find", "setsid", "stdbuf", "ionice", "time", "strace", "watch", "sudo", "doas"),
    )
)
"""Programs that start other programs, which the arguments name."""

_separators = re.compile(r"[\s;&|()<>'\"`$=,:]+")
_module = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def program_facts(program: str, folder: Path) -> dict[str, str]:
    """Return the facts for the program of a command that runs in `folder`: resolved path and hash.

    Raises: ToolError if the file is unreadable.
    """
    path = os.path.realpath(folder / program)
    fact = None if _status_of(Path(path)) is None else _fact_of(path)
    if fact is None:
        raise ToolError("run_command", "the program cannot be started: it is not a readable file")
    return {"program": path, "program file": fact}


def script_facts(argv: Sequence[str], folder: Path) -> dict[str, str]:
    """Return a fact about each file that `argv` names: its resolved path, and its hash or times.

    A relative name is resolved in `folder`.
    Shape: "script NAME" maps to the fact about the file. Each of the first `MAX_FILES` files has
    its own fact; all other files share one fact.
    Raises: ToolError if there are too many names.
    """
    facts: dict[str, str] = {}
    others: list[str] = []
    left_bytes = MAX_TOTAL_BYTES
    for tried, name in enumerate(_names(argv)):
        if tried == MAX_TRIED:
            raise ToolError("run_command", "the command is too long to be approved")
        found = _status_of(folder / name)
        if found is None:
            continue
        real = os.path.realpath(folder / name)
        left_bytes -= found.st_size
        is_hashed = left_bytes >= 0 and len(facts) < MAX_FILES
        content = _fact_of(real) if is_hashed else None
        fact = f"{real}, {content or times_fact(found)}"
        if len(facts) < MAX_FILES:
            facts[f"script {name}"] = fact
        else:
            others.append(f"{name} = {fact}")
    if others:
        digest = hash_of("\n".join(others).encode(errors="surrogateescape"))
        facts["further files"] = f"{len(others)}, blake2b-256 {digest}"
    return facts


def started_facts(argv: Sequence[str], folder: Path, path: str) -> dict[str, str]:
    """Return facts for the programs that the program of `argv`, such as ``env``, starts.

    The started programs are found on `path`. The result is empty if the program does not start
    other programs.
    Shape: "starts NAME" maps to the program's resolved path and hash, for at most `MAX_FILES`
    programs.
    """
    facts: dict[str, str] = {}
    if argv[0].rpartition("/")[2] not in _STARTERS:
        return facts
    for name in _names(argv):
        found = None if "/" in name or len(facts) == MAX_FILES else shutil.which(name, path=path)
        if found is not None:
            real = os.path.realpath(folder / found)
            facts[f"starts {name}"] = f"{real}, {_fact_of(real) or 'not readable'}"
    return facts


def file_at(path: Path) -> str:
    """Return the fact for the file at `path` (size and hash), without following links."""
    try:
        if path.is_symlink():
            return f"link to {os.readlink(path)}"  # noqa: PTH115 - as text
        if not path.exists():
            return "nothing is there"
    except OSError:
        return "not readable"
    fact = _fact_of(str(path))
    return "not readable" if fact is None else fact


def _names(argv: Sequence[str]) -> Iterator[str]:
    """Yield the texts in `argv` that might be names of files, in order, each once."""
    seen: set[str] = set()
    for name in _candidates(argv):
        if name not in seen and len(name) <= MAX_PATH:
            seen.add(name)
            yield name


def _candidates(argv: Sequence[str]) -> Iterator[str]:
    yield from _DEFAULTS.get(argv[0].rpartition("/")[2], ())
    for place, word in enumerate(argv[1:], 1):
        words = [word]
        if argv[place - 1] == "-m" and _module.fullmatch(word):
            words.append(word.replace(".", "/"))
            yield from _DEFAULTS.get(word, ())
        yield from (each + ending for each in words if each for ending in _ENDINGS)
        yield from filter(None, _separators.split(word))


def _status_of(path: Path) -> os.stat_result | None:
    """Return the status of the regular file that `path` leads to; None if there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _fact_of(path: str) -> str | None:
    """Return the fact for the file at `path`; None if it is unreadable.

    Never blocks, even if the file is a pipe.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return file_fact(descriptor)[0]
    except OSError:
        return None
    finally:
        os.close(descriptor)
