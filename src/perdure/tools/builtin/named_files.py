"""Files that a command names: its program and its scripts, as facts of an approval."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from perdure.errors import ToolError
from perdure.tools.binding import MAX_HASHED_BYTES, file_fact

MAX_FILES = 64
MAX_TRIED = 2000
MAX_TOTAL_BYTES = 4 * MAX_HASHED_BYTES
MAX_PATH = 4096

_ENDINGS = ("", ".py", ".js", ".mjs", ".cjs", ".sh", "/__main__.py", "/index.js", "/package.json")
"""What interpreters add to a name to find the file that they run."""

_separators = re.compile(r"[\s;&|()<>'\"`$=,:]+")
_module = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def program_facts(program: str, folder: Path) -> dict[str, str]:
    """The program file of a command that runs in `folder`: its path, links resolved, and hash.

    Raises: ToolError when it cannot be read.
    """
    path = os.path.realpath(folder / program)
    fact = None if _size_of(Path(path)) is None else _fact_of(path)
    if fact is None:
        raise ToolError("run_command", "the program cannot be started: it is not a readable file")
    return {"program": path, "program file": fact}


def script_facts(argv: Sequence[str], folder: Path) -> dict[str, str]:
    """Each file that the arguments of `argv` name, as a command in `folder` would find it.

    Shape: "script NAME" -> the path, links resolved, and its hash.
    Raises: ToolError when they are too many or too large to be hashed.
    """
    facts: dict[str, str] = {}
    left_bytes = MAX_TOTAL_BYTES
    for tried, name in enumerate(_names(argv)):
        if tried == MAX_TRIED or len(facts) == MAX_FILES or left_bytes < 0:
            raise ToolError("run_command", "the command names too many files to be approved")
        path = folder / name
        size = _size_of(path)
        if size is None:
            continue
        left_bytes -= min(size, MAX_HASHED_BYTES)
        real = os.path.realpath(path)
        fact = _fact_of(real)
        facts[f"script {name}"] = f"{real}, {'not readable' if fact is None else fact}"
    return facts


def file_at(path: Path) -> str:
    """What is at `path`, links not followed, as a fact."""
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
    """Every name in the arguments that may be a file's, in order."""
    seen: set[str] = set()
    for place, word in enumerate(argv[1:], 1):
        words = [word, *_separators.split(word)]
        if argv[place - 1] == "-m" and _module.fullmatch(word):
            words.append(word.replace(".", "/"))
        for each in words:
            if each and each not in seen and len(each) <= MAX_PATH:
                seen.add(each)
                yield from (each + ending for ending in _ENDINGS)


def _size_of(path: Path) -> int | None:
    """The size of the regular file that `path` leads to; None when it leads to none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _fact_of(path: str) -> str | None:
    """The file at `path` as a fact; None when it cannot be read. Never waits for a pipe."""
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
