"""``perdure`` commands in processes that are forked from a process that has loaded their modules.

Starting a command from scratch takes half a second of processor time, most of it for imports.
A test of the start itself (the entry point, imports, signals, a terminal) starts a real process.
"""

from __future__ import annotations

import gc
import os
import pkgutil
import signal
import string
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import perdure.apps
from perdure.__main__ import run
from tests.fakes.forked import Ended, Forked, forked, preload, run_forked, take_streams

_UNUSED = ("perdure.apps.server", "perdure.apps.tui")
"""Prefixes of modules that no forked command of the tests uses."""

_APPS = (each.name for each in pkgutil.walk_packages(perdure.apps.__path__, "perdure.apps."))
preload(*(each for each in _APPS if not each.startswith(_UNUSED)), "tests.fakes.built_commands")

SERVERS = (
    *("perdure.apps.server.application", "perdure.apps.server_commands.server_process"),
    *("litestar.middleware.response_cache", "litestar.middleware.allowed_hosts", "attrs"),
    *("litestar.exceptions.responses", "litestar.plugins.attrs", "litestar.plugins.pydantic"),
    *("litestar.plugins.pydantic.plugins.di", "litestar.plugins.pydantic.plugins.schema"),
    *("uvicorn.lifespan.on", "uvicorn.loops.auto", "uvicorn.protocols.http.auto"),
    "uvicorn.protocols.websockets.auto",
)
"""Modules that a forked ``perdure serve`` loads late; a test of servers preloads them."""

MOST_INPUT = 60_000
"""Number of bytes that a pipe can hold while no process reads it."""

AT_START = (*("PYTHON" + each for each in string.ascii_uppercase), "LC_", "LD_")
"""Prefixes of the variables that a process reads only when it starts."""


def is_forkable(environment: Mapping[str, str], stdin: bytes) -> bool:
    """Return whether a forked command behaves like a real process started with `environment`."""
    starting = [name for name in environment if name.startswith(AT_START)]
    if environment.get("PYTHONPATH") in sys.path:
        starting.remove("PYTHONPATH")
    is_usual = starting == ["PYTHONWARNINGS"] and environment.get("LANG") == "C.UTF-8"
    return is_usual and len(stdin) <= MOST_INPUT


def run_command(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, stdin: bytes = b""
) -> Ended:
    """Run ``perdure`` with `words` in `folder`."""
    return run_forked(_command, list(words), dict(environment), str(folder), stdin)


def started_command(
    words: Sequence[str], environment: Mapping[str, str], folder: Path
) -> AbstractContextManager[Forked]:
    """Start ``perdure`` with `words` in `folder`, with empty input."""
    return forked(_command, list(words), dict(environment), str(folder), b"")


def command_at_terminal(
    words: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    terminal: int,
    streams: Sequence[int] = (0, 1, 2),
    *,
    is_controlling: bool = True,
) -> AbstractContextManager[Forked]:
    """Start ``perdure`` in a new session, at the inner end `terminal` of a pty.

    `streams` are the standard streams that the command has at the terminal. If `is_controlling`,
    the terminal controls the session: it sends signals for Ctrl-C and at its end.
    """
    opened_with = os.O_RDWR if is_controlling else os.O_RDWR | os.O_NOCTTY
    place = (os.ttyname(terminal), opened_with, tuple(streams))
    return forked(_at_terminal, list(words), dict(environment), str(folder), place)


def _at_terminal(
    words: list[str],
    environment: dict[str, str],
    folder: str,
    place: tuple[str, int, tuple[int, ...]],
) -> None:
    terminal, opened_with, streams = place
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, for children too
    opened = os.open(terminal, opened_with)
    for stream in streams:
        os.dup2(opened, stream)
    if opened not in streams:
        os.close(opened)
    _run(words, environment, folder)


def _command(words: list[str], environment: dict[str, str], folder: str, stdin: bytes) -> None:
    reading, writing = os.pipe()
    os.write(writing, stdin)
    os.close(writing)
    os.dup2(reading, 0)
    os.close(reading)
    _run(words, environment, folder)


def _run(words: list[str], environment: dict[str, str], folder: str) -> None:
    gc.freeze()
    take_streams()
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    warnings.simplefilter("error")
    sys.argv = ["perdure", *words]
    sys.exit(run())
