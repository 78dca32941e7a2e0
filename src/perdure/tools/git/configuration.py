"""Read the configuration files of a repository without letting git search for them.

This module reads a file, with limits, and passes its content to ``git config`` on standard input.
Git parses the content in a directory that is not a repository, and starts no program.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from perdure.errors import ToolDenied, ToolUnavailable
from perdure.tools.git.keys import Setting

MAX_FILE_BYTES = 1024 * 1024
MAX_INCLUDES = 32

TIMEOUT_S = 30.0
"""How long one run of git may take."""

_INCLUDE = "include.path"
_NOT_WAITING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class Included(msgspec.Struct, frozen=True):
    """An included configuration file: the key and the value that include it, and its content.

    `content` is None if the included file is missing.
    """

    setting: Setting
    content: bytes | None


class Configuration(msgspec.Struct, frozen=True):
    """The settings in a repository's configuration files and all files that these include.

    Conditional includes are always included.
    """

    settings: tuple[Setting, ...]
    included: tuple[Included, ...]


def configuration_of(files: tuple[Path, ...], path: str, home: str | None) -> Configuration:
    """Return the settings in `files` and in the files that they include; missing files are skipped.

    Blocks the thread.

    `path` is the search path for the program git, and `home` is the directory for ``~``.
    Raises: ToolDenied if a file is not regular, is too large, or is rejected by git. Raises
    ToolUnavailable if git cannot be run.
    """
    settings: list[Setting] = []
    included: list[Included] = []
    waiting = [(file, read_regular(file)) for file in reversed(files)]
    while waiting:
        file, content = waiting.pop()
        if content is None:
            continue
        found = tuple(_parsed(content, path))
        settings.extend(found)
        for setting in found:
            if not is_include(setting) or not setting.value:
                continue
            target = _target(setting.value, file, home)
            inner = read_regular(target)
            included.append(Included(setting, inner))
            if len(included) > MAX_INCLUDES:
                raise _refused(f"its configuration includes more than {MAX_INCLUDES} files")
            waiting.append((target, inner))
    return Configuration(tuple(settings), tuple(included))


def is_include(setting: Setting) -> bool:
    """Return True if `setting` includes a file."""
    return setting.key == _INCLUDE or (
        setting.key.startswith("includeif.") and setting.key.endswith(".path")
    )


def read_regular(file: Path) -> bytes | None:
    """Return the content of a regular file of a repository; None if the file is missing.

    Never blocks.

    Raises: ToolDenied if the file is not regular, or is larger than `MAX_FILE_BYTES`.
    """
    try:
        descriptor = os.open(file, _NOT_WAITING)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _refused(f"its {file.name} cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _refused(f"its {file.name} is not a regular file")
        content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise _refused(f"its {file.name} is larger than {MAX_FILE_BYTES} bytes")
    return content


def settings_in(listed: bytes) -> Iterator[Setting]:
    """Yield the settings in the output of ``git config --list -z``."""
    for item in listed.split(b"\0"):
        if item:
            key, newline, value = item.decode("utf-8", "surrogateescape").partition("\n")
            yield Setting(key, value if newline else None)


def _bare_environment(path: str) -> Mapping[str, str]:
    """Return an environment in which git reads no configuration files of its own."""
    return {
        "PATH": path,
        "HOME": "/nonexistent",
        "GIT_DIR": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "LC_ALL": "C.UTF-8",
    }


def _parsed(content: bytes, path: str) -> Iterator[Setting]:
    program = shutil.which("git", path=path)
    if program is None:
        raise ToolUnavailable("git", "no such program on this machine")
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments; the content is read from stdin
            (program, "config", "--file", "-", "--no-includes", "--list", "-z"),
            input=content,
            capture_output=True,
            timeout=TIMEOUT_S,
            env=dict(_bare_environment(path)),
            cwd="/",
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        raise ToolUnavailable("git", "the program cannot be run") from None
    if done.returncode != 0:
        raise _refused("its configuration is not understood by git")
    return settings_in(done.stdout)


def _target(value: str, file: Path, home: str | None) -> Path:
    """Return the path of the file that an include in `file` with the text `value` refers to."""
    if value.startswith("~/") and home is not None:
        return Path(home) / value[2:]
    return file.resolve().parent / value


def _refused(reason: str) -> ToolDenied:
    return ToolDenied("git", f"the repository cannot be used: {reason}")
