"""``perdure`` commands in the process of the test: the cheapest way to run one.

The test process restores everything that a command changes: streams, folder, environment, signals,
logs and limits. A command needs its own process (`forked_commands`) if it is killed, runs
concurrently with another, or is run by an asyncio test.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import Any

from perdure.apps.cli.main import main
from perdure.bounds.limits import limits as limits_in_force
from perdure.bounds.limits import use_input_limits
from perdure.yaml.parser import PlainYaml
from tests.fakes.forked import Ended

STREAMS = (0, 1, 2)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)


def can_run_here() -> bool:
    """Return whether this thread can be the main thread of a command."""
    if threading.current_thread() is not threading.main_thread():
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def run_here(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, stdin: bytes = b""
) -> Ended:
    """Run ``perdure`` with `words` in `folder`, then restore the state of this process."""
    with _memory_file() as given, _memory_file() as out, _memory_file() as err:
        given.write(stdin)
        given.seek(0)
        with _own_streams(given.fileno(), out.fileno(), err.fileno()), _own_world(words, folder):
            os.environ.clear()
            os.environ.update(environment)
            time.tzset()
            _choose_keyring()
            with _parsing_once():
                code = _run()
        out.seek(0)
        err.seek(0)
        return Ended(code, out.read(), err.read().decode())


def _memory_file() -> FileIO:
    """Create a file without a name that is cheaper than a temporary file on the disk."""
    return FileIO(os.memfd_create("stream"), "r+")


def _choose_keyring() -> None:
    """If the package ``keyring`` is loaded, let it choose its backend from the environment again.

    Without a new choice, ``keyring.core`` would keep its first choice for the whole process.
    """
    if (core := sys.modules.get("keyring.core")) is not None:
        core.init_backend()


@contextmanager
def _parsing_once() -> Generator[None]:
    """Parse each YAML text only once in this process.

    The commands of a test read the same scenarios and workflows again and again, which would take a
    third of their time. Commands do not change the nodes that the parser returns.
    """
    library: Any = PlainYaml
    library.compose = _composed
    try:
        yield
    finally:
        del library.compose  # the inherited method is visible again


_nodes: dict[str, Any] = {}


def _composed(parser: Any, text: str) -> Any:
    if text not in _nodes:
        inherited: Any = super(PlainYaml, parser)
        _nodes[text] = inherited.compose(text)
    return _nodes[text]


def _run() -> int:
    try:
        return main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


@contextmanager
def _own_streams(*files: int) -> Generator[None]:
    """Replace the standard streams with `files`."""
    sys.stdout.flush()
    sys.stderr.flush()
    objects = (sys.stdin, sys.stdout, sys.stderr)
    before = [os.dup(stream) for stream in STREAMS]
    try:
        for stream, file in zip(STREAMS, files, strict=True):
            os.dup2(file, stream)
        sys.stdin = TextIOWrapper(BufferedReader(FileIO(0, "r", closefd=False)), "utf-8")
        sys.stdout = TextIOWrapper(BufferedWriter(FileIO(1, "w", closefd=False)), "utf-8")
        sys.stderr = TextIOWrapper(BufferedWriter(FileIO(2, "w", closefd=False)), "utf-8")
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = objects
        for stream, copy in zip(STREAMS, before, strict=True):
            os.dup2(copy, stream)
            os.close(copy)


@contextmanager
def _own_world(words: Sequence[str], folder: Path) -> Generator[None]:
    """Run a command in `folder`, then restore the state that it can change."""
    environment, arguments, here = dict(os.environ), sys.argv, Path.cwd()
    temporary, tempfile.tempdir = tempfile.tempdir, None  # as its environment says
    root, of_perdure = logging.getLogger(), logging.getLogger("perdure")
    handlers, levels = list(root.handlers), (root.level, of_perdure.level)
    limits = limits_in_force()
    handled = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        sys.argv = ["perdure", *words]
        os.chdir(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        use_input_limits(limits)
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        of_perdure.setLevel(levels[1])
        os.chdir(here)
        sys.argv = arguments
        tempfile.tempdir = temporary
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        _choose_keyring()
